"""Opens a llama-server by its address."""

from __future__ import annotations

from pathlib import PurePath

from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import UnknownModel
from espalier.upstream.llama_server.asked import SCHEMA_AS
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.llama_server.engine import LlamaServerEngine
from espalier.upstream.opening import is_address, link_of

TAKES = ("url", "key_file", "timeout", "schema_as")


def open_engine(model: str, *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE) -> LlamaServerEngine:
    """model: the address, where `options.url` gives none. Raises InputError, UnknownModel for another
    model than the server's, Unavailable, UpstreamError."""
    options.check_only("llama-server", TAKES)
    opened = LlamaServerEngine(
        LlamaServer(link_of(model, options)),
        folders=folders,
        tool_format=options.tool_format,
        schema_as=options.schema_as or SCHEMA_AS,
    )
    if model and not is_address(model) and PurePath(model).name not in (opened.name, PurePath(opened.name).name):
        raise UnknownModel(
            f"the server has the model {opened.name}, not {model}", hint="leave the model out", field="model"
        )
    return opened
