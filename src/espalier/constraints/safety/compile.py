"""Compiles a `Safety` spec: the DFA of all patterns, its matchers for one vocabulary, and explanations of refusals.

The DFA does not depend on the vocabulary and is built once for each spec. A refusal names its category and pattern as
the rule.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.automata.reasons.explain import RulePosition
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import AutomatonCompiled, AutomatonMatcher
from espalier.constraints.matching.undoable import UndoableCompiled
from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.automaton import ByteDfa, byte_dfa, is_endless, joined
from espalier.constraints.safety.cards import card_automaton, card_sets
from espalier.constraints.safety.catalogue import Pattern
from espalier.constraints.safety.expressions import CharDfa, PatternParts, PatternPositions, pattern_dfa
from espalier.constraints.safety.folding import folded_pattern
from espalier.constraints.safety.judge import first_found
from espalier.constraints.safety.machine import MAX_IDLE, SafetyMachine
from espalier.constraints.safety.phrases import Phrase, phrase_automaton, phrase_sets
from espalier.constraints.safety.spec import Custom, Safety
from espalier.errors import SpecError
from espalier.grammar.ast import EMPTY, NEVER
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import time_limit

SECONDS = 60.0
"""The time limit for building one filter's DFA; a caller's own limit holds as well."""
FILTERS = 8
"""How many DFAs are kept."""
_FLAGS = re.compile(r"\(\?[aimsux]+\)")


class FilterRule(NamedTuple):
    """The source of a match, by its number in the DFA. shown: the text for explanations."""

    category: str
    name: str
    shown: str

    @property
    def full_name(self) -> str:
        return f"{self.category}/{self.name}"


class CompiledFilter(NamedTuple):
    """bytes_dfa: the DFA that names matches. dfa: the DFA of the texts without a match. rules: by number."""

    bytes_dfa: ByteDfa
    dfa: Dfa
    rules: tuple[FilterRule, ...]


@lru_cache(maxsize=FILTERS)
def filter_of(spec: Safety) -> CompiledFilter:
    """The DFA of a filter, whatever its mode. Raises SpecError for a custom pattern that is found in (nearly) every
    text, RegexError and UnsupportedError for one that cannot be compiled, LimitExceeded."""
    with time_limit(SECONDS, what="building the automaton of the safety filter"):
        rules: list[FilterRule] = []
        built_in = spec.built_in()
        numbers = _numbered(rules, [FilterRule(one.category, one.name, one.about) for one in built_in])
        expressions = [(_parts(one), number) for one, number in zip(built_in, numbers, strict=True) if one.itself]
        words: list[Phrase] = []
        listed = [FilterRule(name, "list", f"the list of {name}") for name, _ in spec.lists]
        for (_, phrases), number in zip(spec.lists, _numbered(rules, listed), strict=True):
            words += [(phrase, number) for phrase in phrases]
        texts: list[Phrase] = []
        own = [FilterRule("custom", one.text[:80], quoted(one.text[:80])) for one in spec.patterns]
        for custom, number in zip(spec.patterns, _numbered(rules, own), strict=True):
            if custom.is_regex:
                expressions.append((checked_parts(custom), number))
            else:
                texts.append((custom.text, number))
        places = PatternPositions([parts for parts, _ in expressions])
        card = next((number for one, number in zip(built_in, numbers, strict=True) if one.detector == "card"), None)
        char_sets = [*places.char_sets, *phrase_sets(words), *phrase_sets(texts)]
        char_sets += [] if card is None else card_sets()
        alphabet = Alphabet(char_sets)
        parts: list[CharDfa] = []
        if expressions:
            parts.append(_renumbered(pattern_dfa(places, alphabet), [number for _, number in expressions]))
        if words:
            parts.append(phrase_automaton(words, alphabet, whole=True))
        if texts:
            parts.append(phrase_automaton(texts, alphabet, whole=False))
        if card is not None:
            parts.append(card_automaton(alphabet, card))
        whole = joined(parts)
        if spec.patterns and not is_endless(whole):
            raise SpecError("the patterns together leave next to no text", field="patterns")
        found = byte_dfa(whole, alphabet)
        dfa = found.avoiding
        if dfa is None:
            raise SpecError("the patterns together leave no text at all", field="patterns")
        return CompiledFilter(found, dfa, tuple(rules))


def _numbered(rules: list[FilterRule], new: list[FilterRule]) -> list[int]:
    rules += new
    return list(range(len(rules) - len(new), len(rules)))


def _renumbered(dfa: CharDfa, numbers: list[int]) -> CharDfa:
    table = dfa.table.copy()
    for place, number in reversed(list(enumerate(numbers))):  # numbers only grow
        table[dfa.table == -1 - place] = -1 - number
    return replace(dfa, table=table)


def _parts(pattern: Pattern) -> PatternParts:
    flags = "i" if pattern.is_folded else ""
    return PatternParts(
        before=parse_regex(f"(?s:.*)(?:{pattern.before})", flags=flags),
        itself=parse_regex(pattern.itself, flags=flags),
        after=parse_regex(f"(?:{pattern.after})(?s:.*)", flags=flags),
        is_folded=pattern.is_folded,
    )


def checked_parts(custom: Custom) -> PatternParts:
    """A custom regular expression, found anywhere. Raises SpecError and its subclasses, UnsupportedError."""
    parse_regex(custom.text)  # an error then names a position in what the user wrote
    own = _FLAGS.match(custom.text)
    flags = own[0] if own else ""
    pattern = f"{flags}(?s:.*)(?:{folded_pattern(custom.text[len(flags) :])})(?s:.*)"
    node = parse_regex(pattern, flags="" if "i" in flags else "i")
    if node is NEVER:
        raise SpecError(f"the pattern {custom.text!r} matches no text at all", field="patterns")
    parts = PatternParts(before=EMPTY, itself=node, after=EMPTY, is_folded=True)
    places = PatternPositions([parts])
    if places.empty[0]:
        raise SpecError(
            f"the pattern {custom.text!r} matches the empty text, so it is found everywhere", field="patterns"
        )
    if not is_endless(pattern_dfa(places, Alphabet(places.char_sets))):
        raise SpecError(f"the pattern {custom.text!r} is found in every text but a few short ones", field="patterns")
    return parts


def compile_safety(spec: Safety, compiler: Compiler) -> Compiled:
    """The filter for one vocabulary. Raises as `filter_of` does, and VocabError."""
    found = filter_of(_masking(spec))
    idle = np.array([state for state in range(len(found.dfa)) if found.bytes_dfa.idle(state)][:MAX_IDLE], dtype=np.intp)
    machine = SafetyMachine(found.dfa, compiler.vocab, compiler.trie, idle)
    strict = SafetyCompiled(spec, compiler, machine, found)
    return UndoableCompiled(strict, _Reader(spec, found)) if spec.rewinds else strict


def safety_language(spec: Safety, compiler: Compiler) -> Dfa:
    """The DFA of the texts without a match, the same in both modes. Raises as `filter_of` does."""
    return filter_of(_masking(spec)).dfa


def _masking(spec: Safety) -> Safety:
    if not spec.rewinds:
        return spec
    return Safety.from_fields({k: v for k, v in spec.to_json().items() if k not in ("kind", "mode")})  # type: ignore[return-value]


class SafetyCompiled(AutomatonCompiled):
    """An automaton that names the pattern that a token would complete."""

    def __init__(self, spec: Safety, compiler: Compiler, machine: RegularMachine, found: CompiledFilter) -> None:
        super().__init__(spec, compiler.vocab, compiler.trie, machine)
        self.filter = found
        self.explain_with(lambda: _PatternReasons(machine, found))

    def matcher(self, *, before: str = "") -> SafetyMatcher:
        return SafetyMatcher(self)


class SafetyMatcher(AutomatonMatcher):
    """An `AutomatonMatcher` whose explanations name `category/pattern` as the rule."""

    __slots__ = ("_filter",)

    def __init__(self, compiled: SafetyCompiled) -> None:
        super().__init__(compiled)
        self._filter = compiled.filter

    def explain(self, token: int) -> Blame:
        blame = super().explain(token)
        if self._finished or not 0 <= token < self._compiled.vocab.width:
            return blame
        number = self._filter.bytes_dfa.completed(self._state, self._compiled.vocab.bytes_of(token))
        if number is None and token in self._compiled.vocab.eos_ids:
            number = self._filter.bytes_dfa.pending(self._state)
        if number is None:
            return blame
        rule = self._filter.rules[number]
        if token in self._compiled.vocab.eos_ids:
            blame = replace(blame, reason=f"the text cannot end here: it would complete {rule.category}: {rule.shown}")
        return replace(blame, rule=rule.full_name)


class _PatternReasons:
    """Names the pattern that a token would complete."""

    def __init__(self, machine: Machine, found: CompiledFilter) -> None:
        self.machine = machine
        self._filter = found

    def rule_position(self, state: State) -> RulePosition:
        return None, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """See `Reasoner.reason`. None for bytes that are not valid UTF-8 here."""
        number = self._filter.bytes_dfa.completed(state, refused[:1])
        if number is None:
            return None
        rule = self._filter.rules[number]
        token_start = quoted((read + refused[:1]).decode("utf-8", "replace"))
        return f"with {token_start} it would complete {rule.category}: {rule.shown}"


class _Reader:
    """See `undoable.Reader`. A match in progress is assumed to start where the automaton was idle last."""

    def __init__(self, spec: Safety, found: CompiledFilter) -> None:
        self._spec = spec
        self._bytes_dfa = found.bytes_dfa
        self._dfa = found.dfa

    def begun(self, state: State, text: bytearray) -> int:
        if self._bytes_dfa.idle(state):
            return 0
        at, last = self._dfa.start, 0
        for place, byte in enumerate(text, 1):
            at = self._dfa.step(at, byte)
            if self._bytes_dfa.idle(at):
                last = place
        return len(text) - last

    def completes(self, state: State, data: bytes) -> bool:
        if self._bytes_dfa.idle(state) or self._bytes_dfa.completed(state, data) is None:
            return False
        # A match that the token contains as a whole is not worth trying: no other start would help.
        return self._bytes_dfa.completed(self._dfa.start, data) is None

    def reach(self, state: State, text: bytearray, data: bytes) -> int:
        begun = self.begun(state, text)
        whole = bytes(text) + data
        found = first_found(self._spec, whole.decode("utf-8", "ignore"), from_byte=len(text) - begun)
        if found is None:  # the match is complete in the middle of a character, which `re` cannot see
            return begun
        return max(1, min(begun, len(text) - found))
