"""The public names of `espalier`, each imported when it is first used, so that `import espalier` stays light.

A name stands here twice: in `EXPORTS` for Python, and below it for type checkers. A test holds the two together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

EXPORTS = {
    "Activations": "espalier.activations.capture.options",
    "After": "espalier.constraints.after.spec",
    "AllOf": "espalier.constraints.compose.all_of",
    "analyse_vocab": "espalier.tokens.analyse",
    "AnyOf": "espalier.constraints.compose.any_of",
    "Ban": "espalier.constraints.ban",
    "build": "espalier.schema.python.instances",
    "CategoryCodeInjection": "espalier.constraints.safety.catalogue",
    "CategoryCredentials": "espalier.constraints.safety.catalogue",
    "CategoryDangerous": "espalier.constraints.safety.catalogue",
    "CategoryPII": "espalier.constraints.safety.catalogue",
    "CategoryProfanity": "espalier.constraints.safety.catalogue",
    "CategoryViolence": "espalier.constraints.safety.catalogue",
    "ChatConfig": "espalier.sampling.presets.catalogue",
    "Channels": "espalier.constraints.channels.spec",
    "Choice": "espalier.constraints.spec",
    "CodeGenerationConfig": "espalier.sampling.presets.catalogue",
    "compile": "espalier.api",
    "contract": "espalier.api",
    "CreativeConfig": "espalier.sampling.presets.catalogue",
    "Decoding": "espalier.decoding.options",
    "DeterministicConfig": "espalier.sampling.presets.catalogue",
    "EspalierError": "espalier.errors",
    "explain": "espalier.api",
    "FilterChain": "espalier.sampling.filters",
    "FilterContext": "espalier.sampling.filters",
    "Free": "espalier.constraints.free",
    "Gbnf": "espalier.constraints.spec",
    "generate": "espalier.api",
    "get_preset": "espalier.api",
    "GrammarFilter": "espalier.constraints.filters.matcher",
    "Harness": "espalier.harness.run",
    "hazards": "espalier.schema.lint.hazards",
    "InferenceRequest": "espalier.upstream.llama_cli.client",
    "JsonLinesRecorder": "espalier.trace.recorders.memory",
    "JsonModeProcessor": "espalier.constraints.filters.json_mode",
    "JsonObject": "espalier.constraints.spec",
    "JSONObjectGrammar": "espalier.grammar.builtin",
    "JsonState": "espalier.grammar.json_position",
    "JsonSchema": "espalier.constraints.spec",
    "JsonSchemaFilter": "espalier.constraints.filters.matcher",
    "LlamaCppClient": "espalier.upstream.llama_cli.client",
    "load": "espalier.api",
    "LoadedEngine": "espalier.api",
    "LogitBias": "espalier.sampling.filters",
    "LogitTool": "espalier.agents.tool",
    "MatcherFilter": "espalier.constraints.filters.matcher",
    "MemoryRecorder": "espalier.trace.recorders.memory",
    "multi_tool_call_schema": "espalier.constraints.tools.schemas",
    "parse_shorthand": "espalier.schema.shorthand",
    "plugins": "espalier.api",
    "Preset": "espalier.sampling.presets.spec",
    "PresetBuilder": "espalier.api",
    "Priority": "espalier.sampling.filters",
    "Recorder": "espalier.trace.recorders.protocol",
    "Regex": "espalier.constraints.spec",
    "Region": "espalier.constraints.free",
    "RejectionLog": "espalier.trace.recorders.rejection_log",
    "Report": "espalier.harness.results",
    "Result": "espalier.engines.base",
    "Safety": "espalier.constraints.safety.spec",
    "SafetyFilter": "espalier.constraints.filters.safety",
    "SamplingConfig": "espalier.sampling.config",
    "schema_of": "espalier.schema.python.schemas",
    "schema_to_gbnf": "espalier.api",
    "SoftJson": "espalier.constraints.soft.spec",
    "SoftWordlist": "espalier.constraints.soft.spec",
    "StructuredOutputConfig": "espalier.sampling.presets.catalogue",
    "TestCase": "espalier.harness.cases.case",
    "Thinking": "espalier.constraints.after.thinking",
    "TokenBan": "espalier.sampling.filters",
    "to_llguidance": "espalier.api",
    "to_xgrammar": "espalier.api",
    "tool_call_schema": "espalier.constraints.tools.schemas",
    "ToolCallFilter": "espalier.constraints.filters.matcher",
    "ToolCallGrammar": "espalier.grammar.builtin",
    "ToolCalls": "espalier.constraints.tools.spec",
    "tools_of": "espalier.constraints.tools.schemas",
    "Trace": "espalier.trace.records",
    "Vocab": "espalier.tokens.vocab",
    "Wordlist": "espalier.constraints.words.spec",
}

public = sorted([*EXPORTS, "__version__"])

if TYPE_CHECKING:
    from espalier.activations.capture.options import Activations as Activations
    from espalier.agents.tool import LogitTool as LogitTool
    from espalier.api import LoadedEngine as LoadedEngine
    from espalier.api import PresetBuilder as PresetBuilder
    from espalier.api import compile as compile  # noqa: A004  # the public name
    from espalier.api import contract as contract
    from espalier.api import explain as explain
    from espalier.api import generate as generate
    from espalier.api import get_preset as get_preset
    from espalier.api import load as load
    from espalier.api import plugins as plugins
    from espalier.api import schema_to_gbnf as schema_to_gbnf
    from espalier.api import to_llguidance as to_llguidance
    from espalier.api import to_xgrammar as to_xgrammar
    from espalier.constraints.after.spec import After as After
    from espalier.constraints.after.thinking import Thinking as Thinking
    from espalier.constraints.ban import Ban as Ban
    from espalier.constraints.channels.spec import Channels as Channels
    from espalier.constraints.compose.all_of import AllOf as AllOf
    from espalier.constraints.compose.any_of import AnyOf as AnyOf
    from espalier.constraints.filters.json_mode import JsonModeProcessor as JsonModeProcessor
    from espalier.constraints.filters.matcher import GrammarFilter as GrammarFilter
    from espalier.constraints.filters.matcher import JsonSchemaFilter as JsonSchemaFilter
    from espalier.constraints.filters.matcher import MatcherFilter as MatcherFilter
    from espalier.constraints.filters.matcher import ToolCallFilter as ToolCallFilter
    from espalier.constraints.filters.safety import SafetyFilter as SafetyFilter
    from espalier.constraints.free import Free as Free
    from espalier.constraints.free import Region as Region
    from espalier.constraints.safety.catalogue import CategoryCodeInjection as CategoryCodeInjection
    from espalier.constraints.safety.catalogue import CategoryCredentials as CategoryCredentials
    from espalier.constraints.safety.catalogue import CategoryDangerous as CategoryDangerous
    from espalier.constraints.safety.catalogue import CategoryPII as CategoryPII
    from espalier.constraints.safety.catalogue import CategoryProfanity as CategoryProfanity
    from espalier.constraints.safety.catalogue import CategoryViolence as CategoryViolence
    from espalier.constraints.safety.spec import Safety as Safety
    from espalier.constraints.soft.spec import SoftJson as SoftJson
    from espalier.constraints.soft.spec import SoftWordlist as SoftWordlist
    from espalier.constraints.spec import Choice as Choice
    from espalier.constraints.spec import Gbnf as Gbnf
    from espalier.constraints.spec import JsonObject as JsonObject
    from espalier.constraints.spec import JsonSchema as JsonSchema
    from espalier.constraints.spec import Regex as Regex
    from espalier.constraints.tools.schemas import multi_tool_call_schema as multi_tool_call_schema
    from espalier.constraints.tools.schemas import tool_call_schema as tool_call_schema
    from espalier.constraints.tools.schemas import tools_of as tools_of
    from espalier.constraints.tools.spec import ToolCalls as ToolCalls
    from espalier.constraints.words.spec import Wordlist as Wordlist
    from espalier.decoding.options import Decoding as Decoding
    from espalier.engines.base import Result as Result
    from espalier.errors import EspalierError as EspalierError
    from espalier.grammar.builtin import JSONObjectGrammar as JSONObjectGrammar
    from espalier.grammar.builtin import ToolCallGrammar as ToolCallGrammar
    from espalier.grammar.json_position import JsonState as JsonState
    from espalier.harness.cases.case import TestCase as TestCase
    from espalier.harness.results import Report as Report
    from espalier.harness.run import Harness as Harness
    from espalier.sampling.config import SamplingConfig as SamplingConfig
    from espalier.sampling.filters import FilterChain as FilterChain
    from espalier.sampling.filters import FilterContext as FilterContext
    from espalier.sampling.filters import LogitBias as LogitBias
    from espalier.sampling.filters import Priority as Priority
    from espalier.sampling.filters import TokenBan as TokenBan
    from espalier.sampling.presets.catalogue import ChatConfig as ChatConfig
    from espalier.sampling.presets.catalogue import CodeGenerationConfig as CodeGenerationConfig
    from espalier.sampling.presets.catalogue import CreativeConfig as CreativeConfig
    from espalier.sampling.presets.catalogue import DeterministicConfig as DeterministicConfig
    from espalier.sampling.presets.catalogue import StructuredOutputConfig as StructuredOutputConfig
    from espalier.sampling.presets.spec import Preset as Preset
    from espalier.schema.lint.hazards import hazards as hazards
    from espalier.schema.python.instances import build as build
    from espalier.schema.python.schemas import schema_of as schema_of
    from espalier.schema.shorthand import parse_shorthand as parse_shorthand
    from espalier.tokens.analyse import analyse_vocab as analyse_vocab
    from espalier.tokens.vocab import Vocab as Vocab
    from espalier.trace.recorders.memory import JsonLinesRecorder as JsonLinesRecorder
    from espalier.trace.recorders.memory import MemoryRecorder as MemoryRecorder
    from espalier.trace.recorders.protocol import Recorder as Recorder
    from espalier.trace.recorders.rejection_log import RejectionLog as RejectionLog
    from espalier.trace.records import Trace as Trace
    from espalier.upstream.llama_cli.client import InferenceRequest as InferenceRequest
    from espalier.upstream.llama_cli.client import LlamaCppClient as LlamaCppClient


def lookup(name: str) -> Any:
    """The public object of that name. Raises AttributeError, as modules do."""
    if name == "__version__":  # reading the metadata of the distribution takes 40 ms
        return import_module("espalier.version").__version__
    if name not in EXPORTS:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def names() -> list[str]:
    return public
