"""Compiles a JSON Schema, and names its rules by JSON pointer in explanations.

What a schema is lowered to is in `lowered.py`; this module knows the vocabulary and the matchers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.machine import Machine
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.shared import SharedParts
from espalier.automata.masks.states import Items, Stacks
from espalier.automata.reasons.explain import RulePosition
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.document_form import closed_entries
from espalier.constraints.json_schema.lowered import LoweredSchema, Use
from espalier.constraints.matching.automaton import CompiledAutomaton, compile_automaton, compile_lazily
from espalier.constraints.spec import JsonSchema
from espalier.constraints.unique.places import with_tracker
from espalier.constraints.unique.string_matcher import CompiledUniqueStrings, QuoteTokens
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.constraints.watching import WatchedLanguage, WatchedMachine
from espalier.schema.contract import Contract
from espalier.schema.form import Array, Object, Values
from espalier.schema.lazy.rules import SchemaRules
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

_USUAL: Any = {
    "type": "object",
    "properties": {
        "plain": {"type": "string"},
        "long": {"type": "string", "maxLength": 30_000},
        "short": {"type": "string", "minLength": 1, "maxLength": 40},
        "whole": {"type": "integer"},
        "real": {"type": "number"},
        "any": {},
    },
    "required": ["plain", "long", "short", "whole", "real", "any"],
}
_USUAL_TEXT = b'{"plain":"a\\n","long":"a","short":"a","whole":-12,"real":-1.5e3,"any":[{"a":null}]}'
"""A document of it, in which each kind of leaf is entered."""


def compile_schema(spec: JsonSchema, compiler: Compiler) -> Compiled:
    """The schema as an automaton that is explored on demand; built as a whole for a vocabulary that lacks bytes.

    Raises SchemaError with a JSON pointer, UnsupportedError naming the keywords that would not be enforced,
    LimitExceeded, VocabError."""
    lowered = LoweredSchema(spec)
    vocab = compiler.vocab
    if vocab.missing_bytes():
        compiled = automaton_compiled(lowered, "alone", vocab, compiler.trie)
    else:
        network = LazyNetwork(lowered.start(), owns_tables=True)
        compiled = compile_lazily(network, lowered.spec, vocab, compiler.trie, compiler.part(SharedParts))
        _with_explainer(compiled, lowered)
    if lowered.unique is not None:
        return CompiledUniqueStrings(compiled, lowered.unique, compiler.part(QuoteTokens))
    if (items := lowered.items) is None:
        return compiled
    return with_tracker(compiled, DocumentTracker(items.spots), compiler, is_easy=items.is_easy)


def warm_schemas(compiler: Compiler) -> None:
    """Make what all schemas of a vocabulary share, its strings, counted strings and numbers, before a text waits for
    it."""
    if compiler.vocab.missing_bytes():
        return
    matcher = compile_schema(JsonSchema(_USUAL), compiler).matcher()
    for token in compiler.trie.segment(_USUAL_TEXT) or ():
        matcher.mask()
        matcher.advance(token)


def schema_language(spec: JsonSchema, compiler: Compiler) -> Dfa | Network:
    """The automaton of the valid documents, for compositions. Raises as `compile_schema` does."""
    return LoweredSchema(spec).automaton("grammar")


def schema_watched(spec: JsonSchema, compiler: Compiler) -> WatchedLanguage:
    """The same with the tracker of arrays with unique items. Raises as `compile_schema` does."""
    lowered = LoweredSchema(spec)
    cases = lowered.expansion.cases(lowered.expansion.root)
    is_document = all(
        isinstance(case, Array | Object)
        or (isinstance(case, Values) and all(isinstance(value, list | dict) for value in case.values))
        for case in cases
    )
    # A grammar takes care of names that must differ; it leaves only equal items to a tracker.
    if (items := lowered.items) is None or all(gap.keyword != "uniqueItems" for gap in lowered.converted.gaps):
        return WatchedLanguage(automaton=lowered.automaton("grammar"), is_document=is_document)
    return WatchedLanguage(
        automaton=lowered.automaton("watched"),
        tracker=DocumentTracker(items.spots),
        is_easy=items.is_easy,
        is_document=is_document,
    )


def schema_machine(spec: JsonSchema, compiler: Compiler) -> WatchedMachine | None:
    """The same as a machine that is explored on demand; None for a vocabulary that lacks bytes. Raises as
    `compile_schema` does."""
    if compiler.vocab.missing_bytes():
        return None
    lowered = LoweredSchema(spec)
    items = lowered.items
    machine = PushdownMachine(LazyNetwork(lowered.start(), owns_tables=True), compiler.vocab, compiler.trie)
    if items is None:
        return WatchedMachine(machine=machine)
    return WatchedMachine(machine=machine, tracker=DocumentTracker(items.spots), is_easy=items.is_easy)


ELSEWHERE = "what the server enforces is not known here; the verdict says whether the text satisfies it"


def contract_of(spec: JsonSchema, compiler: Compiler | None, *, request: Any = None) -> Contract:
    """The contract of a schema, even if compiling it would raise UnsupportedError. compiler: None where constraints are
    compiled elsewhere: there each keyword is only checked. request: the engine's, in which the schema stands: what is
    beside it may decide who holds it. Raises SchemaError, UnsupportedError for an unknown draft or a document that
    cannot be loaded, LimitExceeded."""
    if compiler is None:
        lowered = LoweredSchema(spec)
        checked = lowered.expansion.contract.with_changes(
            (entry.pointer, "checked", ELSEWHERE)
            for entry in lowered.expansion.contract.entries
            if entry.verdict != "annotation"
        )
        closed = (replace(entry, verdict="checked") for entry in closed_entries(lowered.expansion))
        return Contract((*checked.entries, *closed))
    if compiler.held_elsewhere is not None:
        held: Contract | None = compiler.held_elsewhere(spec, request)
        if held is not None:
            return held
    lowered = LoweredSchema(spec)
    try:
        return lowered.contract("alone")
    finally:
        lowered.forget_rules()


def automaton_compiled(lowered: LoweredSchema, use: Use, vocab: Vocab, trie: TokenTrie) -> CompiledAutomaton:
    """The schema's automaton for one vocabulary, built as a whole, `uniqueItems` unwatched: for a vocabulary that lacks
    bytes, and to measure grammars. Raises as `LoweredSchema.automaton` does."""
    return _with_explainer(compile_automaton(lowered.automaton(use), lowered.spec, vocab, trie), lowered)


def _with_explainer(compiled: CompiledAutomaton, lowered: LoweredSchema) -> CompiledAutomaton:
    vocab, trie = compiled.vocab, compiled.trie
    compiled.explain_with(lambda _: SchemaExplainer(lowered.named_rules(), vocab, trie))
    return compiled


class SchemaExplainer:
    """Names the JSON pointer of the sub-schema that could go on, as the rule. It explores rules of its own, which know
    their pointers, only as far as explanations are asked for."""

    def __init__(self, rules: SchemaRules, vocab: Vocab, trie: TokenTrie) -> None:
        self._network = network = LazyNetwork(rules.start, owns_tables=True)
        self.machine: Machine = PushdownMachine(network, vocab, trie, needs_bytes=False)

    def rule_position(self, state: Stacks) -> RulePosition:
        """The innermost sub-schema, where several could go on."""
        return self._innermost(state.items), None

    def rule_reading(self, state: Stacks, byte: int) -> RulePosition:
        """The same for the sub-schemas that can read a byte, for all of them if none can."""
        if len(state.items) == 1:  # most of the time: nothing to tell apart
            return self._innermost(state.items), None
        items = tuple(item for item in state.items if self._network.reads(item[0]) >> byte & 1)
        return self._innermost(items or state.items), None

    def _innermost(self, items: Items) -> str | None:
        pointers = [name for item in items if (name := self._pointer(item)) is not None]
        return max(pointers, key=len) or "/" if pointers else None

    def _pointer(self, item: tuple[int, Stacks]) -> str | None:
        """The pointer of a position; of what it returns to where it is shared, as undeclared names are."""
        position, below = item
        while (name := self._network.places[position].explored.name) is None and below.items:
            position, below = below.items[0]
        return name
