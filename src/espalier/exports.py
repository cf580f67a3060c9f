"""The public names, each imported when it is first used, so that `import espalier` stays light."""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXPORTS = {
    "After": "espalier.constraints.after.spec",
    "AllOf": "espalier.constraints.compose.all_of",
    "AnyOf": "espalier.constraints.compose.any_of",
    "Ban": "espalier.constraints.ban",
    "Choice": "espalier.constraints.spec",
    "Decoding": "espalier.decoding.options",
    "EspalierError": "espalier.errors",
    "FilterChain": "espalier.sampling.filters",
    "FilterContext": "espalier.sampling.filters",
    "Free": "espalier.constraints.free",
    "Gbnf": "espalier.constraints.spec",
    "GrammarFilter": "espalier.constraints.as_filter",
    "JsonLinesRecorder": "espalier.trace.recorders.memory",
    "JsonObject": "espalier.constraints.spec",
    "JsonSchema": "espalier.constraints.spec",
    "JsonSchemaFilter": "espalier.constraints.as_filter",
    "LoadedEngine": "espalier.api",
    "LogitBias": "espalier.sampling.filters",
    "MatcherFilter": "espalier.constraints.as_filter",
    "MemoryRecorder": "espalier.trace.recorders.memory",
    "Preset": "espalier.sampling.presets.spec",
    "PresetBuilder": "espalier.api",
    "Priority": "espalier.sampling.filters",
    "Regex": "espalier.constraints.spec",
    "Region": "espalier.constraints.free",
    "Recorder": "espalier.trace.recorders.protocol",
    "RejectionLog": "espalier.trace.recorders.rejection_log",
    "Result": "espalier.engines.base",
    "Safety": "espalier.constraints.safety.spec",
    "SafetyFilter": "espalier.constraints.safety.spec",
    "SamplingConfig": "espalier.sampling.config",
    "SoftJson": "espalier.constraints.soft.spec",
    "SoftWordlist": "espalier.constraints.soft.spec",
    "Thinking": "espalier.constraints.after.thinking",
    "ToolCalls": "espalier.constraints.tools.spec",
    "TokenBan": "espalier.sampling.filters",
    "ToolCallFilter": "espalier.constraints.as_filter",
    "Trace": "espalier.trace.records",
    "Vocab": "espalier.tokens.vocab",
    "Wordlist": "espalier.constraints.words.spec",
    "analyse_vocab": "espalier.tokens.analyse",
    "build": "espalier.schema.python.instances",
    "compile": "espalier.api",
    "contract": "espalier.api",
    "generate": "espalier.api",
    "get_preset": "espalier.api",
    "hazards": "espalier.schema.lint.hazards",
    "load": "espalier.api",
    "multi_tool_call_schema": "espalier.constraints.tools.schemas",
    "parse_shorthand": "espalier.schema.shorthand",
    "schema_of": "espalier.schema.python.schemas",
    "tool_call_schema": "espalier.constraints.tools.schemas",
    "tools_of": "espalier.constraints.tools.schemas",
}


def lookup(name: str) -> Any:
    """The public object of that name. Raises AttributeError, as modules do."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def names() -> list[str]:
    return sorted([*EXPORTS, "__version__"])
