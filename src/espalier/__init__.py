"""Espalier: constrained decoding for local language models that shows what the constraint did."""

from typing import TYPE_CHECKING

from espalier.exports import lookup as __getattr__
from espalier.exports import names as __dir__
from espalier.version import __version__

if TYPE_CHECKING:
    from espalier.api import LoadedEngine, compile, generate, load
    from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
    from espalier.engines.base import Result
    from espalier.errors import EspalierError
    from espalier.sampling.config import SamplingConfig
    from espalier.tokens.vocab import Vocab
    from espalier.trace.records import Trace

__all__ = [
    "Choice",
    "EspalierError",
    "Gbnf",
    "JsonObject",
    "JsonSchema",
    "LoadedEngine",
    "Regex",
    "Result",
    "SamplingConfig",
    "Trace",
    "Vocab",
    "__version__",
    "compile",
    "generate",
    "load",
]
