"""The public names, each imported when it is first used, so that `import espalier` stays light."""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXPORTS = {
    "After": "espalier.constraints.after",
    "AllOf": "espalier.constraints.combine",
    "AnyOf": "espalier.constraints.any_of",
    "Ban": "espalier.constraints.bans",
    "Choice": "espalier.constraints.spec",
    "Decoding": "espalier.decoding.options",
    "EspalierError": "espalier.errors",
    "FilterChain": "espalier.sampling.filters",
    "FilterContext": "espalier.sampling.filters",
    "Free": "espalier.constraints.free",
    "Gbnf": "espalier.constraints.spec",
    "GrammarFilter": "espalier.constraints.matcher_filter",
    "JsonLinesRecorder": "espalier.trace.recording",
    "JsonObject": "espalier.constraints.spec",
    "JsonSchema": "espalier.constraints.spec",
    "JsonSchemaFilter": "espalier.constraints.matcher_filter",
    "LoadedEngine": "espalier.api",
    "LogitBias": "espalier.sampling.filters",
    "MatcherFilter": "espalier.constraints.matcher_filter",
    "MemoryRecorder": "espalier.trace.recording",
    "Preset": "espalier.sampling.preset",
    "PresetBuilder": "espalier.api",
    "Priority": "espalier.sampling.filters",
    "Regex": "espalier.constraints.spec",
    "Region": "espalier.constraints.free",
    "Recorder": "espalier.trace.recorder",
    "RejectionLog": "espalier.trace.rejection_log",
    "Result": "espalier.engines.base",
    "Safety": "espalier.constraints.safety",
    "SafetyFilter": "espalier.constraints.safety",
    "SamplingConfig": "espalier.sampling.config",
    "SoftJson": "espalier.constraints.soft",
    "SoftWordlist": "espalier.constraints.soft",
    "Thinking": "espalier.constraints.thinking",
    "ToolCalls": "espalier.constraints.tool_calls",
    "TokenBan": "espalier.sampling.filters",
    "ToolCallFilter": "espalier.constraints.matcher_filter",
    "Trace": "espalier.trace.records",
    "Vocab": "espalier.tokens.vocab",
    "Wordlist": "espalier.constraints.wordlist",
    "analyse_vocab": "espalier.tokens.analyse",
    "build": "espalier.schema.build",
    "compile": "espalier.api",
    "contract": "espalier.api",
    "generate": "espalier.api",
    "get_preset": "espalier.api",
    "hazards": "espalier.schema.hazards",
    "load": "espalier.api",
    "multi_tool_call_schema": "espalier.constraints.tool_schemas",
    "parse_shorthand": "espalier.schema.shorthand",
    "schema_of": "espalier.schema.from_python",
    "tool_call_schema": "espalier.constraints.tool_schemas",
    "tools_of": "espalier.constraints.tool_schemas",
}


def lookup(name: str) -> Any:
    """The public object of that name. Raises AttributeError, as modules do."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def names() -> list[str]:
    return sorted([*EXPORTS, "__version__"])
