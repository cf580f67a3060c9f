"""The members of `AllOf` as machines, and those machines as one: a DFA where that stays small, else a joint machine,
which is made as it is walked. It knows no kind of constraint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from espalier.automata.ends.closing import Ends
from espalier.automata.joint.ends import JointEnds
from espalier.automata.joint.machine import JointMachine
from espalier.automata.joint.members import named_tokens
from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.languages.network import Network
from espalier.automata.masks.machine import Machine, missing_error
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler, find_kind
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.matching.parallel import spellings
from espalier.constraints.matching.undoable import CompiledUndoable
from espalier.constraints.spec import Spec
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.places import SeveralTrackers, watched_language, with_tracker
from espalier.constraints.watching import Tracker
from espalier.errors import GrammarError, LimitExceeded, SpecError, UnsupportedError, VocabError
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab
from espalier.wording import OptionText, Setting

MERGED = 4_000
"""The most states of a DFA that several regular members are made into; larger ones stay apart and are joined as they
are walked."""


@dataclass(frozen=True, slots=True, eq=False)
class JointPart:
    """A member with a machine. spelled: as in `Compiled`. named: the tokens without bytes that the machine names.
    tracker, is_easy: as in `CompiledUniqueItems`, where it has arrays with unique items."""

    name: str
    machine: Machine
    spelled: Mapping[int, bytes]
    named: frozenset[int]
    tracker: Tracker | None = None
    is_easy: bool = False


class CompiledJoint(CompiledAutomaton):
    """Several machines as one, for one vocabulary."""

    def __init__(
        self, spec: Spec, vocab: Vocab, trie: TokenTrie, machine: JointMachine, spelled: Mapping[int, bytes]
    ) -> None:
        super().__init__(spec, vocab, trie, machine)
        self.joint = machine
        self.spelled = spelled

    def _new_ends(self) -> Ends:
        return JointEnds(self.joint, self.trie, self.vocab)


def part_of(name: str, spec: Spec, compiler: Compiler) -> JointPart | None:
    """The machine of a member, None for one whose matcher is no automaton. Raises what the member's compiler raises,
    LimitExceeded naming the member."""
    try:
        return _part_of(name, spec, compiler)
    except LimitExceeded as error:
        raise LimitExceeded(f"{name}: {error.message}", hint=error.hint) from error


def _part_of(name: str, spec: Spec, compiler: Compiler) -> JointPart | None:
    vocab = compiler.vocab
    kind = find_kind(spec)
    explored = None if kind is None else kind.machine(spec, compiler)
    if explored is not None:
        named = named_tokens(explored.machine, vocab)
        return JointPart(name, explored.machine, {}, named, explored.tracker, explored.is_easy)
    has_automaton = kind is not None and kind.has_automaton
    try:
        compiled: Compiled | None = compiler.compile(spec)
    except VocabError:
        if not has_automaton:
            raise
        compiled = None  # bytes without a token may never be needed by all members together
    if isinstance(compiled, CompiledUndoable):
        compiled = compiled.strict
    tracker, is_easy = None, False
    if isinstance(compiled, CompiledUniqueItems):
        tracker, is_easy = compiled.tracker, compiled.is_easy
        compiled = compiled.inner
    if isinstance(compiled, CompiledAutomaton):
        return JointPart(
            name, compiled.machine, compiled.spelled, named_tokens(compiled.machine, vocab), tracker, is_easy
        )
    if not has_automaton:
        return None
    try:
        language = watched_language(spec, compiler, wanted_by="AllOf")
    except UnsupportedError:
        if compiled is None:
            raise
        return None
    machine = machine_of(language.automaton, compiler)
    return JointPart(name, machine, {}, named_tokens(machine, vocab), language.tracker, language.is_easy)


def machine_of(language: Dfa | Network, compiler: Compiler) -> Machine:
    """The machine of a language. A network may need bytes that have no token: the joint machine sees to that."""
    if isinstance(language, Network) and language.is_regular:
        language = Dfa.of_network(language)
    if isinstance(language, Dfa):
        return RegularMachine(language, compiler.vocab, compiler.trie)
    return PushdownMachine(language, compiler.vocab, compiler.trie, needs_bytes=False)


def join(parts: Sequence[JointPart], spec: Spec, compiler: Compiler, *, may_strand: bool) -> Compiled:
    """The parts as one constraint. may_strand: see `JointMachine`. Raises SpecError, naming them, for members that
    contradict one another; VocabError; LimitExceeded where it was not found whether any text satisfies all of them."""
    trackers = [part.tracker for part in parts if part.tracker is not None]
    whole = _join_machines(parts, spec, compiler, may_strand=may_strand)
    if not trackers:
        return whole
    tracker = SeveralTrackers(trackers) if len(trackers) > 1 else trackers[0]
    return with_tracker(whole, tracker, compiler, is_easy=len(parts) == 1 and parts[0].is_easy)


def joint_of(compiled: Compiled) -> JointMachine | None:
    """The joint machine of what `join` returned, None where it is no such machine."""
    inner = compiled.inner if isinstance(compiled, CompiledUniqueItems) else compiled
    return inner.joint if isinstance(inner, CompiledJoint) else None


def _join_machines(
    parts: Sequence[JointPart], spec: Spec, compiler: Compiler, *, may_strand: bool
) -> CompiledAutomaton:
    vocab, trie, names = compiler.vocab, compiler.trie, [part.name for part in parts]
    spelled = spellings([part.name for part in parts], [part.spelled for part in parts])
    try:
        machines = _merge_regular([part.machine for part in parts], compiler)
    except GrammarError as error:
        raise _contradiction(parts, compiler) from error
    if len(machines) == 1:
        alone = CompiledAutomaton(spec, vocab, trie, machines[0])
        alone.spelled = spelled
        return alone
    machine = JointMachine(machines, vocab, spelled=spelled, may_strand=may_strand)
    if machine.is_dead(machine.start):
        raise _contradiction(parts, compiler)
    if not machine.is_sure(machine.start):
        raise LimitExceeded(
            f"{' and '.join(names)} together: no text that satisfies all of them was found by a bounded search",
            hint="they may contradict one another; a shorter or simpler member helps",
        )
    return CompiledJoint(spec, vocab, trie, machine, spelled)


def _merge_regular(machines: Sequence[Machine], compiler: Compiler) -> list[Machine]:
    """The machines, small regular ones made one, which then stands in the place of the first of them. Raises
    GrammarError for regular machines that have no text in common, VocabError."""
    small = [
        at for at, machine in enumerate(machines) if isinstance(machine, RegularMachine) and len(machine.dfa) <= MERGED
    ]
    merged: list[Machine | None] = list(machines)
    target: int | None = None
    for at in sorted(small, key=lambda at: len(_dfa(machines[at]))):
        if target is None:
            target = at
            continue
        try:
            both = intersect(_dfa(merged[target]), _dfa(machines[at]), max_states=MERGED)
        except LimitExceeded:
            continue  # it is joined as it is walked
        first = min(target, at)
        merged[target] = merged[at] = None
        merged[first] = RegularMachine(both, compiler.vocab, compiler.trie)
        target = first
    return [machine for machine in merged if machine is not None]


def _dfa(machine: Machine | None) -> Dfa:
    if not isinstance(machine, RegularMachine):
        raise AssertionError("only regular machines are merged")
    return machine.dfa


def _contradiction(parts: Sequence[JointPart], compiler: Compiler) -> SpecError | VocabError:
    """The error for members that have no text in common: it names the first two that have none."""
    if not _contradict(parts, compiler):
        missing = compiler.vocab.missing_bytes()
        return missing_error(missing, "no sequence of tokens spells a text that all members accept")
    names = [part.name for part in parts]
    guilty: tuple[str, ...] = ()
    for one, other in combinations(parts, 2):
        if _contradict((one, other), compiler):
            guilty = (one.name, other.name)
            break
    return SpecError(
        f"no text satisfies {' and '.join(guilty or names)} at once",
        hint=_why(guilty or (tuple(names) if len(names) == 2 else ())),
        field="members",
    )


def _why(guilty: Sequence[str]) -> str:
    """A hint for members that share no text. guilty: two of them, or none alone."""
    if not guilty:
        return "they do so only all together"
    if any(name.endswith("].wordlist") for name in guilty):
        return OptionText(
            "a word list takes no marks but its own: give those of the other member as its separators=, or ",
            Setting("digits", True),
        )
    return "the members contradict one another"


def _contradict(parts: Sequence[JointPart], compiler: Compiler) -> bool:
    """Whether the parts have no text in common, even if every byte had a token of its own."""
    spelled = {token: data for part in parts for token, data in part.spelled.items()}
    machine = JointMachine([part.machine for part in parts], compiler.vocab, spelled=spelled, search={"any_byte": True})
    return machine.is_dead(machine.start)
