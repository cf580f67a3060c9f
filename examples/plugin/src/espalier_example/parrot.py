"""The engine `parrot`: it has no weights, and wants to say the name of its model again and again."""

from __future__ import annotations

from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines import fake
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.engines.protocols import Engine

TAKES = ()
"""The options that it takes: none of its own."""


def open_engine(model: str, *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE) -> Engine:
    """model: what it says."""
    return fake.open_engine(model, folders=folders, wish=" ".join([model] * 3))
