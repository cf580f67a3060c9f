"""Espalier: constrained decoding for local language models that shows what the constraint did."""

from typing import TYPE_CHECKING

from espalier.exports import lookup as __getattr__
from espalier.exports import names as __dir__
from espalier.version import __version__

if TYPE_CHECKING:
    from espalier.api import LoadedEngine, PresetBuilder, compile, contract, generate, get_preset, load
    from espalier.constraints.after import After
    from espalier.constraints.any_of import AnyOf
    from espalier.constraints.bans import Ban
    from espalier.constraints.combine import AllOf
    from espalier.constraints.free import Free, Region
    from espalier.constraints.matcher_filter import GrammarFilter, JsonSchemaFilter, MatcherFilter, ToolCallFilter
    from espalier.constraints.safety import Safety, SafetyFilter
    from espalier.constraints.soft import SoftJson, SoftWordlist
    from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
    from espalier.constraints.thinking import Thinking
    from espalier.constraints.tool_calls import ToolCalls
    from espalier.constraints.tool_schemas import multi_tool_call_schema, tool_call_schema, tools_of
    from espalier.constraints.wordlist import Wordlist
    from espalier.decoding.options import Decoding
    from espalier.engines.base import Result
    from espalier.errors import EspalierError
    from espalier.sampling.config import SamplingConfig
    from espalier.sampling.filters import FilterChain, FilterContext, LogitBias, Priority, TokenBan
    from espalier.sampling.preset import Preset
    from espalier.schema.build import build
    from espalier.schema.from_python import schema_of
    from espalier.schema.hazards import hazards
    from espalier.schema.shorthand import parse_shorthand
    from espalier.tokens.analyse import analyse_vocab
    from espalier.tokens.vocab import Vocab
    from espalier.trace.recorder import Recorder
    from espalier.trace.recording import JsonLinesRecorder, MemoryRecorder
    from espalier.trace.records import Trace
    from espalier.trace.rejection_log import RejectionLog

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
