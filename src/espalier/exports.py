"""The public names, each imported when it is first used, so that `import espalier` stays light."""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXPORTS = {
    "Choice": "espalier.constraints.spec",
    "EspalierError": "espalier.errors",
    "Gbnf": "espalier.constraints.spec",
    "JsonObject": "espalier.constraints.spec",
    "JsonSchema": "espalier.constraints.spec",
    "LoadedEngine": "espalier.api",
    "Regex": "espalier.constraints.spec",
    "Result": "espalier.engines.base",
    "SamplingConfig": "espalier.sampling.config",
    "Trace": "espalier.trace.records",
    "Vocab": "espalier.tokens.vocab",
    "compile": "espalier.api",
    "generate": "espalier.api",
    "load": "espalier.api",
}


def lookup(name: str) -> Any:
    """The public object of that name. Raises AttributeError, as modules do."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def names() -> list[str]:
    return sorted([*EXPORTS, "__version__"])
