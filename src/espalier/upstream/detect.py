"""Finds out which server answers at an address, where nobody has named the engine: a llama-server, or one that speaks
OpenAI's routes, such as vLLM. A few small requests, which run nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from espalier.engines.options import EngineOptions
from espalier.errors import InputError, UpstreamBusy, UpstreamError, UpstreamTimeout
from espalier.upstream.link import ServerLink
from espalier.upstream.opening import is_address, link_of

LLAMA_SERVER, OPENAI = "llama-server", "openai"


def _is_llama_props(said: Any) -> bool:
    return isinstance(said, Mapping) and "default_generation_settings" in said


def _is_version(said: Any) -> bool:
    return isinstance(said, Mapping) and isinstance(said.get("version"), str)


def _lists_models(said: Any) -> bool:
    return isinstance(said, Mapping) and isinstance(said.get("data"), list)


SIGNS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("/props", _is_llama_props, LLAMA_SERVER),
    ("/version", _is_version, OPENAI),
    ("/v1/models", _lists_models, OPENAI),
)
"""A route, what its answer looks like, and the engine for such a server. A llama-server lists models too, so its own
route is asked first."""


SILENT = UpstreamTimeout, UpstreamBusy
"""Whoever does not answer now is not asked again."""


def detect_engine(model: str, options: EngineOptions) -> str:
    """The name of the engine for the server of `options.url`, or of `model`, if that is an address. A server that does
    not answer, or answers nothing of this, is taken for a llama-server, whose engine then says what is wrong. Raises
    InputError for no address."""
    url = (options.url or (model if is_address(model) else "")).rstrip("/").removesuffix("/v1")
    return engine_behind(link_of("", replace(options, url=url or None)))


def engine_behind(root: ServerLink) -> str:
    """The same for a link to the root of a server."""
    for route, is_it, engine in SIGNS:
        try:
            said = root.get(route)
        except SILENT:
            break
        except (UpstreamError, InputError):  # it has no such route
            continue
        if is_it(said):
            return engine
    return LLAMA_SERVER
