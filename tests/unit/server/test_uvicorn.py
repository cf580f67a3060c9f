"""uvicorn's private names that `GuardedProtocol` builds on, and the releases with which it was tested.

When a test here fails after an update: run test_protocol.py with the new release, adapt http/protocol.py, and change
the range in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

ROOT = Path(__file__).parents[3]
METHODS = {
    "eof_received": ["self"],
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "on_message_begin": ["self"],
    "on_url": ["self", "url"],
    "on_header": ["self", "name", "value"],
    "on_headers_complete": ["self"],
    "on_message_complete": ["self"],
    "send_400_response": ["self", "msg"],
}


def test_the_installed_release_is_in_the_tested_range() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = [one for one in map(Requirement, extras["server"]) if one.name == "uvicorn"]
    installed = version("uvicorn")
    assert {one.operator for one in wanted.specifier} == {">=", "<"}
    assert wanted.specifier.contains(installed), f"uvicorn {installed} is outside the tested range {wanted.specifier}"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_we_extend_is_there(name: str) -> None:
    found = getattr(HttpToolsProtocol, name, None)
    assert found is not None, f"uvicorn's HttpToolsProtocol has no {name}"
    assert list(inspect.signature(found).parameters) == METHODS[name], f"HttpToolsProtocol.{name} has other parameters"


@pytest.mark.parametrize("name", ["transport", "loop", "scope", "cycle", "pipeline"])
def test_an_attribute_that_we_read_is_there(name: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    async def made() -> HttpToolsProtocol:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        config.load()
        return HttpToolsProtocol(config, ServerState(), {})

    assert hasattr(asyncio.run(made()), name), f"uvicorn's HttpToolsProtocol has no attribute {name}"


def test_a_cycle_says_whether_its_response_is_complete() -> None:
    assert "response_complete" in RequestResponseCycle.__init__.__code__.co_names
