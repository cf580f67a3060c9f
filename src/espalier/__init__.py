"""Espalier: constrained decoding for local language models that shows what the constraint did."""

from typing import TYPE_CHECKING

from espalier.exports import lookup as __getattr__
from espalier.exports import names as __dir__
from espalier.version import __version__

if TYPE_CHECKING:
    from espalier.api import LoadedEngine, PresetBuilder, compile, contract, generate, get_preset, load
    from espalier.constraints.after.spec import After
    from espalier.constraints.after.thinking import Thinking
    from espalier.constraints.as_filter import GrammarFilter, JsonSchemaFilter, MatcherFilter, ToolCallFilter
    from espalier.constraints.ban import Ban
    from espalier.constraints.compose.all_of import AllOf
    from espalier.constraints.compose.any_of import AnyOf
    from espalier.constraints.free import Free, Region
    from espalier.constraints.safety.spec import Safety, SafetyFilter
    from espalier.constraints.soft.spec import SoftJson, SoftWordlist
    from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
    from espalier.constraints.tools.schemas import multi_tool_call_schema, tool_call_schema, tools_of
    from espalier.constraints.tools.spec import ToolCalls
    from espalier.constraints.words.spec import Wordlist
    from espalier.decoding.options import Decoding
    from espalier.engines.base import Result
    from espalier.errors import EspalierError
    from espalier.sampling.config import SamplingConfig
    from espalier.sampling.filters import FilterChain, FilterContext, LogitBias, Priority, TokenBan
    from espalier.sampling.presets.spec import Preset
    from espalier.schema.lint.hazards import hazards
    from espalier.schema.python.instances import build
    from espalier.schema.python.schemas import schema_of
    from espalier.schema.shorthand import parse_shorthand
    from espalier.tokens.analyse import analyse_vocab
    from espalier.tokens.vocab import Vocab
    from espalier.trace.recorders.memory import JsonLinesRecorder, MemoryRecorder
    from espalier.trace.recorders.protocol import Recorder
    from espalier.trace.recorders.rejection_log import RejectionLog
    from espalier.trace.records import Trace

__all__ = [
    "After",
    "AllOf",
    "AnyOf",
    "Ban",
    "Choice",
    "Decoding",
    "EspalierError",
    "FilterChain",
    "FilterContext",
    "Free",
    "Gbnf",
    "GrammarFilter",
    "JsonLinesRecorder",
    "JsonObject",
    "JsonSchema",
    "JsonSchemaFilter",
    "LoadedEngine",
    "LogitBias",
    "MatcherFilter",
    "MemoryRecorder",
    "Preset",
    "PresetBuilder",
    "Priority",
    "Recorder",
    "Regex",
    "Region",
    "RejectionLog",
    "Result",
    "Safety",
    "SafetyFilter",
    "SamplingConfig",
    "SoftJson",
    "SoftWordlist",
    "Thinking",
    "TokenBan",
    "ToolCallFilter",
    "ToolCalls",
    "Trace",
    "Vocab",
    "Wordlist",
    "__version__",
    "analyse_vocab",
    "build",
    "compile",
    "contract",
    "generate",
    "get_preset",
    "hazards",
    "load",
    "multi_tool_call_schema",
    "parse_shorthand",
    "schema_of",
    "tool_call_schema",
    "tools_of",
]
