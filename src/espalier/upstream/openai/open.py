"""Opens a model of an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import InputError, UpstreamError
from espalier.upstream.link import ServerLink
from espalier.upstream.openai.engine import OpenAIEngine
from espalier.upstream.opening import is_address, link_of

TAKES = ("url", "key_file", "timeout", "repair")


def open_engine(model: str, *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE) -> OpenAIEngine:
    """model: its name on the server, or the server's address, whose only model it then is. `/v1` may be left out of the
    address. Raises InputError, UnknownModel, UpstreamError."""
    options.check_only("openai", TAKES)
    if options.tool_format is not None:
        raise InputError("the server writes calls in its own way", hint="leave tool_format out", field="tool_format")
    url = (options.url or (model if is_address(model) else "")).rstrip("/")
    if url and not url.endswith("/v1"):
        url += "/v1"
    link = link_of("", replace(options, url=url or None))
    root = link_of("", replace(options, url=url.removesuffix("/v1") or None))
    return OpenAIEngine(
        link, "" if is_address(model) else model, folders=folders, repair=options.repair, version=lambda: _version(root)
    )


def _version(root: ServerLink) -> str:
    """What vLLM's `/version` says, "" where it says none."""
    try:
        said = root.get("/version")
    except (UpstreamError, InputError):
        return ""
    version = said.get("version") if isinstance(said, Mapping) else None
    return version if isinstance(version, str) else ""
