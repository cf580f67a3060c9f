"""Which engine opens a model, told from its name. It knows no engine's insides."""

from __future__ import annotations

from pathlib import Path

from espalier.constraints.compile import NOWHERE, Folders
from espalier.engines.base import ENGINES, Engine
from espalier.errors import CapabilityError, UnknownModel


def open_engine(
    model: str, *, engine: str | None = None, device: str | None = None, dtype: str | None = None,
    folders: Folders = NOWHERE, tool_format: str | None = None,
) -> Engine:  # fmt: skip
    """Load a model: `fake`, a folder or hub name for transformers. tool_format: how it writes calls where its chat
    template does not tell. Raises UnknownModel, CapabilityError."""
    name = engine or choose(model)
    opened: Engine = ENGINES.load(name)(model, device=device, dtype=dtype, folders=folders, tool_format=tool_format)
    return opened


def choose(model: str) -> str:
    """The name of the engine for a model."""
    if model == "fake":
        return "fake"
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UnknownModel(f"there is no file {model}", field="model")
        raise CapabilityError("GGUF files need the llama.cpp engine, which this version does not have yet")
    return "transformers"
