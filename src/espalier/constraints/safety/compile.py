"""Compiles a `Safety` spec: the automata of all patterns, its matchers for one vocabulary, and explanations of
refusals.

The automata do not depend on the vocabulary and are built once for each spec. A refusal names its category and pattern
as the rule, and says whether the match is in the decoded text of a string.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from espalier.automata.masks.machine import Machine, State
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.automata.reasons.explain import RulePosition
from espalier.confined.builds import Builds
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import AutomatonMatcher, CompiledAutomaton
from espalier.constraints.matching.undoable import CompiledUndoable
from espalier.constraints.safety.judge import first_found
from espalier.constraints.safety.machine import NEAR, Hit, SafetyMachine
from espalier.constraints.safety.own import Own
from espalier.constraints.safety.parts import Tables, built_in_parts, tables_of
from espalier.constraints.safety.phrases import Phrase
from espalier.constraints.safety.spec import Safety
from espalier.kernels.group import KernelGroup
from espalier.owners import owned_cache, owner, working_for
from espalier.time_limit import is_limited, time_limit

SECONDS = 60.0
"""The time limit for building one filter's DFA; a caller's own limit holds as well."""
FILTERS_KEPT = 16
"""How many DFAs are kept."""
FAR_END = 64
"""The most tokens that are assumed to complete a text where users gave patterns of their own."""


class FilterRule(NamedTuple):
    """The source of a match, by its number in the DFA. shown: the text for explanations."""

    category: str
    name: str
    shown: str

    @property
    def full_name(self) -> str:
        return f"{self.category}/{self.name}"


class CompiledFilter(NamedTuple):
    """tables: the automata. rules: by number. is_custom: whether a user gave patterns of their own."""

    tables: Tables
    rules: tuple[FilterRule, ...]
    is_custom: bool


@owned_cache(FILTERS_KEPT)
def filter_of(spec: Safety, folder: Path | None = None, builds: Builds | None = None) -> CompiledFilter:
    """The automata of a filter, whatever its mode. folder: where those of built-in patterns are kept. builds: where
    those of a user's own patterns are built if that takes long; None builds them here. Raises SpecError for a custom
    pattern that is found in (nearly) every text, RegexError and UnsupportedError for one that cannot be compiled,
    LimitExceeded; with builds ConfinedError."""
    with time_limit(SECONDS, what="building the automaton of the safety filter"):
        rules: list[FilterRule] = []
        built_in = spec.built_in()
        numbers = _number_rules(
            rules, [FilterRule(pattern.category, pattern.name, pattern.about) for pattern in built_in]
        )
        parts = built_in_parts(built_in, numbers, folder)
        words: list[Phrase] = []
        listed = [FilterRule(name, "list", f"the list of {name}") for name, _ in spec.lists]
        for (_, phrases), number in zip(spec.lists, _number_rules(rules, listed), strict=True):
            words += [(phrase, number) for phrase in phrases]
        texts: list[Phrase] = []
        expressions: list[tuple[str, int]] = []
        own = [FilterRule("custom", custom.text[:80], quoted(custom.text[:80])) for custom in spec.patterns]
        for custom, number in zip(spec.patterns, _number_rules(rules, own), strict=True):
            if custom.is_regex:
                expressions.append((custom.text, number))
            else:
                texts.append((custom.text, number))
        parts += Own(words=words, texts=texts, expressions=expressions).built(builds)
        return CompiledFilter(tables_of(parts), tuple(rules), bool(words or texts or expressions))


def _number_rules(rules: list[FilterRule], new: list[FilterRule]) -> list[int]:
    rules += new
    return list(range(len(rules) - len(new), len(rules)))


FILTERS = KernelGroup(
    "safety filters", ["espalier.constraints.safety.alone.kernels", "espalier.constraints.safety.kernels"], seconds=12
)


def warm_filters(compiler: Compiler) -> None:
    """Load the kernels and every built-in pattern, so that the first request with a filter waits for neither."""
    FILTERS.load()
    filter_of(Safety("maximum", lists={"profanity": ["krump"]}), compiler.cache_dir)


def compile_safety(spec: Safety, compiler: Compiler) -> Compiled:
    """The filter for one vocabulary. Raises as `filter_of` does, and VocabError."""
    FILTERS.load()
    is_own = bool(spec.patterns or spec.lists)
    with working_for(owner() if is_own else ""):  # what is built in tells of nobody
        compiled_filter = filter_of(
            _masking(spec), compiler.cache_dir, compiler.far.builds if is_own and is_limited() else None
        )
    machine = SafetyMachine(
        compiled_filter.tables, compiler.vocab, compiler.trie, near=FAR_END if compiled_filter.is_custom else NEAR
    )
    strict = CompiledSafety(spec, compiler, machine, compiled_filter)
    return CompiledUndoable(strict, _SafetyMatchReader(spec, machine)) if spec.rewinds else strict


def _masking(spec: Safety) -> Safety:
    if not spec.rewinds:
        return spec
    return Safety.from_fields({k: v for k, v in spec.to_json().items() if k not in ("kind", "mode", "must_mask")})  # type: ignore[return-value]


class CompiledSafety(CompiledAutomaton):
    """An automaton that names the pattern that a token would complete."""

    def __init__(
        self, spec: Safety, compiler: Compiler, machine: SafetyMachine, compiled_filter: CompiledFilter
    ) -> None:
        super().__init__(spec, compiler.vocab, compiler.trie, machine)
        self.filter = compiled_filter
        self.states = machine
        self.explain_with(lambda _: _PatternReasons(machine, compiled_filter))

    def matcher(self, *, before: str = "") -> SafetyMatcher:
        return SafetyMatcher(self)


class SafetyMatcher(AutomatonMatcher):
    """An `AutomatonMatcher` whose explanations name `category/pattern` as the rule."""

    __slots__ = ("_filter", "_states")

    def __init__(self, compiled: CompiledSafety) -> None:
        super().__init__(compiled)
        self._filter = compiled.filter
        self._states = compiled.states

    def place(self) -> None:
        """See `DeferredBlames`: the reasons here hang on the state of the filter."""
        return

    def explain(self, token: int) -> Blame:
        blame = super().explain(token)
        if self._finished or not 0 <= token < self._compiled.vocab.width:
            return blame
        is_end = token in self._compiled.vocab.eos_ids
        hit: object = None
        if is_end:
            hit = self._states.pending(self._state)
        elif data := self._compiled.vocab.bytes_of(token):
            hit = self._states.read(self._state, data)
        if not isinstance(hit, Hit):
            return blame
        rule = self._filter.rules[hit.rule]
        if is_end:
            blame = replace(blame, reason=f"the text cannot end here: it would complete {_describe_hit(rule, hit)}")
        return replace(blame, rule=rule.full_name)


def _describe_hit(rule: FilterRule, hit: Hit) -> str:
    where = " in the decoded text of a string" if hit.reading else ""
    return f"{rule.category}: {rule.shown}{where}"


class _PatternReasons:
    """Names the pattern that a token would complete."""

    def __init__(self, machine: SafetyMachine, compiled_filter: CompiledFilter) -> None:
        self.machine: Machine = machine
        self._machine = machine
        self._filter = compiled_filter

    def rule_position(self, state: State) -> RulePosition:
        return None, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """See `Reasoner.reason`. None for bytes that are not valid UTF-8 here."""
        hit = self._machine.read(state, refused[:1])
        if not isinstance(hit, Hit):
            return None
        token_start = quoted((read + refused[:1]).decode("utf-8", "replace"))
        return f"with {token_start} it would complete {_describe_hit(self._filter.rules[hit.rule], hit)}"


class _SafetyMatchReader:
    """See `undoable.MatchReader`. A match in progress is assumed to start where the automata were idle last."""

    def __init__(self, spec: Safety, machine: SafetyMachine) -> None:
        self._spec = spec
        self._machine = machine

    def begun(self, state: State, text: bytearray) -> int:
        return 0 if self._machine.idle(state) else self._machine.begun(text)

    def completes(self, state: State, data: bytes) -> bool:
        if self._machine.idle(state) or not isinstance(self._machine.read(state, data), Hit):
            return False
        # A match that the token contains as a whole is not worth trying: no other start would help.
        return not isinstance(self._machine.read(self._machine.start, data), Hit)

    def reach(self, state: State, text: bytearray, data: bytes) -> int:
        begun = self.begun(state, text)
        whole = bytes(text) + data
        first = first_found(self._spec, whole.decode("utf-8", "ignore"), from_byte=len(text) - begun)
        if first is None:  # the match is complete in the middle of a character, which `re` cannot see
            return begun
        return max(1, min(begun, len(text) - first))
