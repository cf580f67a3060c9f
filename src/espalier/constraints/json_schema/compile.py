"""JSON Schema: which road a schema takes, and how its rules are named in what is explained. See `backends.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.masks.stacks import Stacks
from espalier.automata.reasons.explain import GrammarTeller, Place
from espalier.constraints.automaton_matcher import AutomatonCompiled, compile_automaton
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.backends import SchemaRoads
from espalier.constraints.json_schema.llguidance import LlgBackend, LlgCompiled, LlgRefusal
from espalier.constraints.json_schema.unique_matcher import QuoteTokens, UniqueCompiled
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError, NotAvailable
from espalier.grammar.ast import Grammar
from espalier.schema.contract import Contract
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab


def compile_schema(spec: JsonSchema, compiler: Compiler) -> Compiled:
    """Raises SchemaError with a JSON pointer, UnsupportedError naming what would not be enforced, LimitExceeded,
    VocabError."""
    roads = SchemaRoads(spec)
    through = _through_llguidance(roads, compiler)
    return through if through is not None else _alone(roads, compiler)


def schema_language(spec: JsonSchema, compiler: Compiler) -> Dfa | Network:
    """As `compile_schema`, always on our own road."""
    return SchemaRoads(spec).automaton


def contract_of(spec: JsonSchema, compiler: Compiler) -> Contract:
    """A verdict for every keyword, also of a schema that would be refused. Raises SchemaError, UnsupportedError for a
    draft or a document that cannot be had, LimitExceeded."""
    roads = SchemaRoads(spec)
    roads.alone = _through_llguidance(roads, compiler) is None
    return roads.contract


def _through_llguidance(roads: SchemaRoads, compiler: Compiler) -> LlgCompiled | None:
    lark = roads.lark()
    if lark is None or not compiler.uses_llguidance or compiler.vocab.missing_bytes():
        return None
    try:
        found = LlgCompiled(roads.spec, compiler.part(LlgBackend), lark)
    except LlgRefusal:
        return None  # our own road enforces it, or says at which pointer it cannot
    roads.through_llguidance = True
    found.shadow = Shadow(lambda: _through_automaton(roads, compiler.vocab, compiler.trie))
    return found


def _alone(roads: SchemaRoads, compiler: Compiler) -> AutomatonCompiled | UniqueCompiled:
    roads.alone = True
    found = _through_automaton(roads, compiler.vocab, compiler.trie)
    return found if roads.unique is None else UniqueCompiled(found, roads.unique, compiler.part(QuoteTokens))


def _through_automaton(roads: SchemaRoads, vocab: Vocab, trie: TokenTrie) -> AutomatonCompiled:
    found = compile_automaton(roads.automaton, roads.spec, vocab, trie)
    converted = roads.converted
    found.explain_with(lambda: SchemaTeller(converted.grammar, converted.pointers, vocab, trie))
    return found


class Shadow:
    """The same schema on our own road, made when it is first needed: what llguidance cannot tell, it can."""

    def __init__(self, make: Callable[[], AutomatonCompiled]) -> None:
        self._make = make
        self._made: AutomatonCompiled | NotAvailable | None = None
        self._lock = threading.Lock()

    def compiled(self) -> AutomatonCompiled:
        """Raises NotAvailable, saying why, where the schema has no automaton."""
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except EspalierError as error:
                    self._made = NotAvailable(f"the schema has no automaton of its own: {error.message}")
            if isinstance(self._made, NotAvailable):
                raise self._made
            return self._made


class SchemaTeller(GrammarTeller):
    """Says the JSON pointer of what could go on."""

    def __init__(self, grammar: Grammar, pointers: dict[str, str], vocab: Vocab, trie: TokenTrie) -> None:
        super().__init__(grammar, vocab, trie)
        self._pointers = pointers

    def place(self, state: Stacks) -> Place:
        """Of several places that could go on the innermost."""
        rules = [self._network.rule[position] for position, _ in state.items]
        pointers = [self._pointers[rule] for rule in rules if rule in self._pointers]
        return (max(pointers, key=len) or "/") if pointers else next(iter(rules), None), None
