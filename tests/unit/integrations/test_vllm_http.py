"""The middleware for vLLM's server: a constraint beside beam search is refused, and all else passes as it came."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.engine_doubles import HAS_VLLM  # noqa: F401  # the package imports vLLM's interface

pytest.importorskip("torch", reason="torch is not installed")

from espalier.integrations.vllm.http import ConstraintGuard


def passed(*chunks: bytes, method: str = "POST") -> tuple[bytes, list[Any]]:
    """What the application behind got, and what was sent."""
    got: list[bytes] = []
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": one, "more_body": one is not chunks[-1]} for one in chunks]

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(ConstraintGuard(behind)({"type": "http", "method": method}, receive, send))
    return b"".join(got), sent


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": "a", **fields}).encode()


CONSTRAINED = {"vllm_xargs": {"espalier": '{"grammar": "root ::= \\"a\\""}'}}


def test_beam_search_beside_a_constraint_is_refused_by_name() -> None:
    asked = body(use_beam_search=True, **CONSTRAINED)
    got, sent = passed(asked[:20], asked[20:])
    assert got == b""
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["error"]["param"] == "use_beam_search"


@pytest.mark.parametrize(
    "asked",
    [
        body(use_beam_search=False, **CONSTRAINED),
        body(**CONSTRAINED),
        body(use_beam_search=True),
        body(use_beam_search=True, vllm_xargs={"other": "espalier"}),
        b'{"use_beam_search": true, "espalier": ',
        b'["use_beam_search", "espalier"]',
        b"",
    ],
)
def test_all_else_passes_as_it_came(asked: bytes) -> None:
    assert passed(asked[:7], asked[7:]) == (asked, [])
    assert passed(asked, method="GET") == (asked, [])
