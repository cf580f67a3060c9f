"""Every kind of constraint that Espalier has: which function compiles, judges, parses or writes its specs.

Each method imports what it calls, so that a spec can be parsed without the code that compiles it. Importing this module
fills `KINDS`, and `espalier.constraints` imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from espalier.constraints.compiler import ConstraintKind
from espalier.constraints.function_kind import Kind as Kind
from espalier.constraints.kind_table import KINDS as KINDS
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex

if TYPE_CHECKING:
    from espalier.automata.languages.dfa import Dfa
    from espalier.automata.languages.network import Network
    from espalier.constraints.after.spec import After
    from espalier.constraints.after.thinking import Thinking
    from espalier.constraints.ban import Ban
    from espalier.constraints.base import Compiled, Verdict
    from espalier.constraints.channels.spec import Channels
    from espalier.constraints.compiler import Compiler
    from espalier.constraints.compose.all_of import AllOf
    from espalier.constraints.compose.any_of import AnyOf
    from espalier.constraints.free import Free
    from espalier.constraints.safety.spec import Safety
    from espalier.constraints.tools.spec import ToolCalls
    from espalier.constraints.watching import WatchedLanguage, WatchedMachine
    from espalier.constraints.words.spec import Wordlist
    from espalier.grammar.ast import Grammar
    from espalier.lexicon.files import WordFiles

# ruff: noqa: PLC0415  # functions import what they call, see above


class JsonSchemaKind(ConstraintKind[JsonSchema]):
    spec = JsonSchema

    def compile(self, spec: JsonSchema, compiler: Compiler) -> Compiled:
        from espalier.constraints.json_schema.compile import compile_schema

        return compile_schema(spec, compiler)

    def automaton(self, spec: JsonSchema, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.json_schema.compile import schema_language

        return schema_language(spec, compiler)

    def watched(self, spec: JsonSchema, compiler: Compiler) -> WatchedLanguage:
        from espalier.constraints.json_schema.compile import schema_watched

        return schema_watched(spec, compiler)

    def machine(self, spec: JsonSchema, compiler: Compiler) -> WatchedMachine | None:
        from espalier.constraints.json_schema.compile import schema_machine

        return schema_machine(spec, compiler)

    def judge(self, spec: JsonSchema, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.json_schema.judge import judge_schema

        return judge_schema(spec, text, words)

    def parse(self, spec: JsonSchema, text: str) -> Any:
        from espalier.constraints.json_schema.judge import parse_json

        return parse_json(spec, text)

    def to_gbnf(self, spec: JsonSchema, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.json_schema.check import schema_grammar

        return schema_grammar(spec)


class JsonObjectKind(ConstraintKind[JsonObject]):
    spec = JsonObject

    def compile(self, spec: JsonObject, compiler: Compiler) -> Compiled:
        from espalier.constraints.text import compile_object

        return compile_object(spec, compiler)

    def automaton(self, spec: JsonObject, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.text import object_language

        return object_language(spec, compiler)

    def judge(self, spec: JsonObject, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.json_schema.judge import judge_object

        return judge_object(spec, text, words)

    def parse(self, spec: JsonObject, text: str) -> Any:
        from espalier.constraints.json_schema.judge import parse_json

        return parse_json(spec, text)

    def to_gbnf(self, spec: JsonObject, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.text import object_grammar

        return object_grammar(spec)


class RegexKind(ConstraintKind[Regex]):
    spec = Regex

    def compile(self, spec: Regex, compiler: Compiler) -> Compiled:
        from espalier.constraints.text import compile_regex

        return compile_regex(spec, compiler)

    def automaton(self, spec: Regex, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.text import regex_language

        return regex_language(spec, compiler)

    def machine(self, spec: Regex, compiler: Compiler) -> WatchedMachine | None:
        from espalier.constraints.text import regex_machine

        return regex_machine(spec, compiler)

    def judge(self, spec: Regex, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.text import judge_regex

        return judge_regex(spec, text, words)

    def to_gbnf(self, spec: Regex, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.text import regex_grammar

        return regex_grammar(spec)


class ChoiceKind(ConstraintKind[Choice]):
    spec = Choice

    def compile(self, spec: Choice, compiler: Compiler) -> Compiled:
        from espalier.constraints.text import compile_choice

        return compile_choice(spec, compiler)

    def automaton(self, spec: Choice, compiler: Compiler) -> Dfa:
        from espalier.constraints.text import choice_language

        return choice_language(spec, compiler)

    def machine(self, spec: Choice, compiler: Compiler) -> WatchedMachine | None:
        from espalier.constraints.text import choice_machine

        return choice_machine(spec, compiler)

    def judge(self, spec: Choice, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.text import judge_choice

        return judge_choice(spec, text, words)


class GbnfKind(ConstraintKind[Gbnf]):
    spec = Gbnf

    def compile(self, spec: Gbnf, compiler: Compiler) -> Compiled:
        from espalier.constraints.text import compile_gbnf

        return compile_gbnf(spec, compiler)

    def automaton(self, spec: Gbnf, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.text import gbnf_language

        return gbnf_language(spec, compiler)

    def to_gbnf(self, spec: Gbnf, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.text import gbnf_grammar

        return gbnf_grammar(spec)


class WordlistKind(ConstraintKind["Wordlist"]):
    @property
    def spec(self) -> type[Wordlist]:
        from espalier.constraints.words.spec import Wordlist

        return Wordlist

    def compile(self, spec: Wordlist, compiler: Compiler) -> Compiled:
        from espalier.constraints.words.compile import compile_wordlist

        return compile_wordlist(spec, compiler)

    def automaton(self, spec: Wordlist, compiler: Compiler) -> Dfa:
        from espalier.constraints.words.compile import wordlist_language

        return wordlist_language(spec, compiler)

    def judge(self, spec: Wordlist, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.words.judge import judge_wordlist

        return judge_wordlist(spec, text, words)


class BanKind(ConstraintKind["Ban"]):
    @property
    def spec(self) -> type[Ban]:
        from espalier.constraints.ban import Ban

        return Ban

    def compile(self, spec: Ban, compiler: Compiler) -> Compiled:
        from espalier.constraints.ban import compile_ban

        return compile_ban(spec, compiler)

    def automaton(self, spec: Ban, compiler: Compiler) -> Dfa:
        from espalier.constraints.ban import ban_language

        return ban_language(spec, compiler)

    def judge(self, spec: Ban, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.ban import judge_ban

        return judge_ban(spec, text, words)


class SafetyKind(ConstraintKind["Safety"]):
    @property
    def spec(self) -> type[Safety]:
        from espalier.constraints.safety.spec import Safety

        return Safety

    def compile(self, spec: Safety, compiler: Compiler) -> Compiled:
        from espalier.constraints.safety.compile import compile_safety

        return compile_safety(spec, compiler)

    def judge(self, spec: Safety, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.safety.judge import judge_safety

        return judge_safety(spec, text, words)


class AllOfKind(ConstraintKind["AllOf"]):
    @property
    def spec(self) -> type[AllOf]:
        from espalier.constraints.compose.all_of import AllOf

        return AllOf

    def compile(self, spec: AllOf, compiler: Compiler) -> Compiled:
        from espalier.constraints.compose.all_of import compile_all_of

        return compile_all_of(spec, compiler)

    def automaton(self, spec: AllOf, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.compose.all_of import all_of_language

        return all_of_language(spec, compiler)

    def watched(self, spec: AllOf, compiler: Compiler) -> WatchedLanguage:
        from espalier.constraints.compose.all_of import all_of_watched

        return all_of_watched(spec, compiler)

    def judge(self, spec: AllOf, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.compose.all_of import judge_all_of

        return judge_all_of(spec, text, words)

    def parse(self, spec: AllOf, text: str) -> Any:
        from espalier.constraints.compose.all_of import parse_all_of

        return parse_all_of(spec, text)


class AnyOfKind(ConstraintKind["AnyOf"]):
    @property
    def spec(self) -> type[AnyOf]:
        from espalier.constraints.compose.any_of import AnyOf

        return AnyOf

    def compile(self, spec: AnyOf, compiler: Compiler) -> Compiled:
        from espalier.constraints.compose.any_of import compile_any_of

        return compile_any_of(spec, compiler)

    def automaton(self, spec: AnyOf, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.compose.any_of import any_of_language

        return any_of_language(spec, compiler)

    def judge(self, spec: AnyOf, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.compose.any_of import judge_any_of

        return judge_any_of(spec, text, words)

    def parse(self, spec: AnyOf, text: str) -> Any:
        from espalier.constraints.compose.any_of import parse_any_of

        return parse_any_of(spec, text)

    def to_gbnf(self, spec: AnyOf, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.compose.any_of import any_of_grammar

        return any_of_grammar(spec, compiler, before)


class AfterKind(ConstraintKind["After"]):
    @property
    def spec(self) -> type[After]:
        from espalier.constraints.after.spec import After

        return After

    def compile(self, spec: After, compiler: Compiler) -> Compiled:
        from espalier.constraints.after.spec import compile_after

        return compile_after(spec, compiler)

    def judge(self, spec: After, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.after.spec import judge_after

        return judge_after(spec, text, words)

    def parse(self, spec: After, text: str) -> Any:
        from espalier.constraints.after.spec import parse_after

        return parse_after(spec, text)

    def to_gbnf(self, spec: After, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.after.gbnf import after_grammar

        return after_grammar(spec, compiler, before)


class FreeKind(ConstraintKind["Free"]):
    @property
    def spec(self) -> type[Free]:
        from espalier.constraints.free import Free

        return Free

    def compile(self, spec: Free, compiler: Compiler) -> Compiled:
        from espalier.constraints.free import compile_free

        return compile_free(spec, compiler)

    def automaton(self, spec: Free, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.free import free_language

        return free_language(spec, compiler)

    def judge(self, spec: Free, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.free import judge_free

        return judge_free(spec, text, words)


class ThinkingKind(ConstraintKind["Thinking"]):
    @property
    def spec(self) -> type[Thinking]:
        from espalier.constraints.after.thinking import Thinking

        return Thinking

    def compile(self, spec: Thinking, compiler: Compiler) -> Compiled:
        from espalier.constraints.after.thinking import compile_thinking

        return compile_thinking(spec, compiler)

    def judge(self, spec: Thinking, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.after.thinking import judge_thinking

        return judge_thinking(spec, text, words)

    def parse(self, spec: Thinking, text: str) -> Any:
        from espalier.constraints.after.thinking import parse_thinking

        return parse_thinking(spec, text)

    def to_gbnf(self, spec: Thinking, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.after.gbnf import thinking_grammar

        return thinking_grammar(spec, compiler, before)


class ToolCallsKind(ConstraintKind["ToolCalls"]):
    @property
    def spec(self) -> type[ToolCalls]:
        from espalier.constraints.tools.spec import ToolCalls

        return ToolCalls

    def compile(self, spec: ToolCalls, compiler: Compiler) -> Compiled:
        from espalier.constraints.tools.compile import compile_tool_calls

        if spec.wire.in_channels:
            return compiler.compile(_channels(spec))
        return compile_tool_calls(spec, compiler)

    def automaton(self, spec: ToolCalls, compiler: Compiler) -> Dfa | Network:
        from espalier.constraints.tools.compile import tool_calls_language

        return tool_calls_language(spec, compiler)

    def watched(self, spec: ToolCalls, compiler: Compiler) -> WatchedLanguage:
        from espalier.constraints.tools.compile import tool_calls_watched

        return tool_calls_watched(spec, compiler)

    def machine(self, spec: ToolCalls, compiler: Compiler) -> WatchedMachine | None:
        from espalier.constraints.tools.compile import tool_calls_machine

        return None if spec.wire.in_channels else tool_calls_machine(spec, compiler)

    def judge(self, spec: ToolCalls, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.tools.judge import judge_tool_calls

        if spec.wire.in_channels:
            return CHANNELS.judge(_channels(spec), text, words)
        return judge_tool_calls(spec, text, words)

    def parse(self, spec: ToolCalls, text: str) -> Any:
        from espalier.constraints.tools.judge import parse_tool_calls

        if spec.wire.in_channels:
            return CHANNELS.parse(_channels(spec), text)
        return parse_tool_calls(spec, text)

    def to_gbnf(self, spec: ToolCalls, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.tools.gbnf import tool_calls_grammar

        if spec.wire.in_channels:
            return CHANNELS.to_gbnf(_channels(spec), compiler, before)
        return tool_calls_grammar(spec, compiler, before)


class ChannelsKind(ConstraintKind["Channels"]):
    @property
    def spec(self) -> type[Channels]:
        from espalier.constraints.channels.spec import Channels

        return Channels

    def compile(self, spec: Channels, compiler: Compiler) -> Compiled:
        from espalier.constraints.channels.compile import compile_channels

        return compile_channels(spec, compiler)

    def judge(self, spec: Channels, text: str, words: WordFiles) -> Verdict:
        from espalier.constraints.channels.judge import judge_channels

        return judge_channels(spec, text, words)

    def parse(self, spec: Channels, text: str) -> Any:
        from espalier.constraints.channels.judge import parse_channels

        return parse_channels(spec, text)

    def to_gbnf(self, spec: Channels, compiler: Compiler, before: str) -> Grammar:
        from espalier.constraints.channels.gbnf import channels_grammar

        return channels_grammar(spec, compiler, before)


CHANNELS = ChannelsKind()


def _channels(spec: ToolCalls) -> Channels:
    """The turn of calls whose format stands in channels."""
    from espalier.constraints.channels.spec import Channels

    return Channels.of(spec)


KINDS.fill(
    {
        "json_schema": JsonSchemaKind(),
        "json_object": JsonObjectKind(),
        "regex": RegexKind(),
        "choice": ChoiceKind(),
        "gbnf": GbnfKind(),
        "wordlist": WordlistKind(),
        "ban": BanKind(),
        "safety": SafetyKind(),
        "all_of": AllOfKind(),
        "any_of": AnyOfKind(),
        "after": AfterKind(),
        "free": FreeKind(),
        "thinking": ThinkingKind(),
        "tool_calls": ToolCallsKind(),
        "channels": CHANNELS,
    },
    holds=ConstraintKind,
)
