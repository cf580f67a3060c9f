"""`AllOf`: the texts that every one of several constraints accepts.

The members' automata are intersected, and states that cannot reach acceptance are removed, so no token leads to a dead
end. It knows no kind: a member is any constraint that has an automaton (`Kind.automaton`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.languages.network import Network
from espalier.automata.languages.product import intersect_network
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of_matcher import AllOfCompiled
from espalier.constraints.compose.members import Joined
from espalier.constraints.compose.side_by_side import RewindingAllOfCompiled, SideBySideCompiled
from espalier.constraints.kinds import KINDS, Kind
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import Spec
from espalier.constraints.unique.places import SeveralTrackers, WatchedLanguage, watched_language, with_tracker
from espalier.constraints.verdict import Verdict, judge, parse
from espalier.errors import GrammarError, LimitExceeded, SpecError, UnsupportedError
from espalier.lexicon.files import WordFiles

DeadEnds: TypeAlias = Literal["refuse", "rewind"]


@dataclass(frozen=True, slots=True, init=False)
class AllOf(Joined):
    """Texts that all members accept: any number of regular members and at most one that is not, such as a grammar.

    The members are given one by one or as one sequence. An AllOf among them is replaced by its members, and equal
    members are kept once. Their order is the order of blame: the first member that refuses a token gets the blame.

    dead_ends: what to do with members whose automata cannot be intersected, such as two grammars, because they could
    each allow tokens without any text that satisfies all. `refuse` raises an error. `rewind` masks with all members in
    parallel; where no token is left, the last token is undone and not sampled there again (`max_rewinds`, strategy
    `mask`). Because any token may be undone, such a text is streamed only once it has ended. The whole rewinds if an
    AllOf among its members does. A member that rewinds itself, such as `Ban(..., mode="rewind")`, does not need
    `dead_ends`. Raises SpecError.
    """

    kind: ClassVar[str] = "all_of"
    dead_ends: DeadEnds

    def __init__(self, *members: Spec | Sequence[Spec], dead_ends: DeadEnds = "refuse") -> None:
        Joined.__init__(self, *members)
        if dead_ends not in get_args(DeadEnds):
            raise SpecError(f"unknown dead_ends {dead_ends!r}", hint=", ".join(get_args(DeadEnds)), field="dead_ends")
        given: Any = members[0] if len(members) == 1 and isinstance(members[0], Sequence) else members
        inner = any(isinstance(one, AllOf) and one.dead_ends == "rewind" for one in given)
        object.__setattr__(self, "dead_ends", "rewind" if inner else dead_ends)

    def to_json(self) -> dict[str, Any]:
        """As `Spec.to_json`; dead_ends only if it is not the default."""
        found = Joined.to_json(self)
        return found if self.dead_ends == "refuse" else found | {"dead_ends": self.dead_ends}

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> AllOf:
        found = super(AllOf, cls).from_fields(values)
        return AllOf(found.members, dead_ends=values.get("dead_ends", "refuse"))

    def named(self) -> list[tuple[str, Spec]]:
        """Name and member, in order."""
        return list(zip(self.names(), self.members, strict=True))

    @property
    def rewinds(self) -> bool:
        return self.dead_ends == "rewind" and len(self.members) > 1


def compile_all_of(spec: AllOf, compiler: Compiler) -> Compiled:
    """A single member compiles as itself. Raises what the members' own compilers raise; SpecError, naming them, for
    members that contradict one another; UnsupportedError for two members that are not regular, unless
    `dead_ends="rewind"`; LimitExceeded."""
    if len(spec.members) == 1:
        return compiler.compile(spec.members[0])
    takers = [member for member in spec.members if member.rewinds]
    try:
        whole = _whole(spec, spec, compiler)
    except (UnsupportedError, LimitExceeded):
        if not spec.rewinds and not takers:
            raise
        return _side_by_side(spec, compiler)
    if not spec.rewinds and not takers:
        return AllOfCompiled(whole, spec.names(), lambda: [compiler.compile(member) for member in spec.members])
    return RewindingAllOfCompiled(
        whole,
        spec.names(),
        lambda: [compiler.compile(member) for member in spec.members],
        rewinding=[(name, compiler.compile(one)) for name, one in spec.named() if one.rewinds],
        rest=_rest(spec, compiler),
    )


def _whole(members: AllOf, spec: AllOf, compiler: Compiler) -> Compiled:
    """The intersection of the members, compiled as `spec`."""
    found = all_of_watched(members, compiler)
    made = compile_automaton(found.automaton, spec, compiler.vocab, compiler.trie)
    return with_tracker(made, found.tracker, compiler, is_easy=found.is_easy)


def _rest(spec: AllOf, compiler: Compiler) -> Compiled | None:
    """The compiled members that do not rewind, as one; None if all or none of them rewind."""
    others = [member for member in spec.members if not member.rewinds]
    if not others or len(others) == len(spec.members):
        return None
    return _whole(AllOf(others), spec, compiler)


def _side_by_side(spec: AllOf, compiler: Compiler) -> Compiled:
    """Members whose automata cannot all be intersected, in parallel. With `dead_ends="refuse"` those that do not rewind
    must be intersected first, so that only members that rewind run beside them."""
    named = spec.named()
    if spec.dead_ends == "refuse":
        others = [(name, one) for name, one in named if not one.rewinds]
        takers = [(name, one) for name, one in named if one.rewinds]
        if len(others) > 1:
            others = [(" and ".join(name for name, _ in others), AllOf([one for _, one in others]))]
        named = [*others, *takers]
    names, members = zip(*named, strict=True)
    may_strand = spec.dead_ends == "rewind"
    return SideBySideCompiled(spec, names, [compiler.compile(one) for one in members], may_strand=may_strand)


def all_of_language(spec: AllOf, compiler: Compiler) -> Dfa | Network:
    """The intersection. Raises as `compile_all_of`."""
    return _intersected(spec, lambda member: compiler.language(member, wanted_by="AllOf"))


def all_of_watched(spec: AllOf, compiler: Compiler) -> WatchedLanguage:
    """The intersection, with the trackers of all members. Raises as `compile_all_of`."""
    found: list[WatchedLanguage] = []

    def language(member: Spec) -> Dfa | Network:
        found.append(watched_language(member, compiler, wanted_by="AllOf"))
        return found[-1].automaton

    automaton = _intersected(spec, language)
    trackers = [one.tracker for one in found if one.tracker is not None]
    return WatchedLanguage(
        automaton=automaton,
        tracker=SeveralTrackers(trackers) if len(trackers) > 1 else trackers[0] if trackers else None,
        is_easy=len(found) == 1 and found[0].is_easy,
        is_document=any(one.is_document for one in found),
    )


def _intersected(spec: AllOf, language: Callable[[Spec], Dfa | Network]) -> Dfa | Network:
    names = spec.names()
    found: dict[str, Dfa | Network] = {}
    for name, member in zip(names, spec.members, strict=True):
        try:
            found[name] = language(member)
        except LimitExceeded as error:
            raise LimitExceeded(f"{name}: {error.message}", hint=error.hint) from error
    stacked = [name for name, part in found.items() if isinstance(part, Network)]
    if len(stacked) > 1:
        raise UnsupportedError(
            f"{' and '.join(stacked)} are not regular, and two such members could lead into a dead end",
            hint="keep one of them, the others being regular: expressions, choices, word lists, bans; or accept that "
            'text is taken back where it leads nowhere: dead_ends="rewind"',
            field="members",
        )
    try:
        return _intersection(found.values())
    except LimitExceeded as error:
        raise LimitExceeded(f"{' and '.join(names)} together: {error.message}", hint=error.hint) from error
    except GrammarError as error:
        guilty = _contradiction(found) or names
        raise SpecError(
            f"no text satisfies {' and '.join(guilty)} at once",
            hint="the members contradict one another" if len(guilty) == 2 else "they do so only all together",
            field="members",
        ) from error


def _intersection(parts: Collection[Dfa | Network]) -> Dfa | Network:
    """Raises GrammarError if no text is left, LimitExceeded, UnsupportedError for a grammar that names tokens."""
    regular = sorted((part for part in parts if isinstance(part, Dfa)), key=len)
    both = intersect(*regular) if regular else None
    for part in parts:
        if isinstance(part, Network):
            return part if both is None else intersect_network(part, both)
    if both is None:
        raise AssertionError("there is no intersection of nothing")
    return both


def _contradiction(found: dict[str, Dfa | Network]) -> tuple[str, ...]:
    """The first two members that no text satisfies together; `()` if there is no such pair."""
    for pair in combinations(found, 2):
        try:
            _intersection([found[name] for name in pair])
        except GrammarError:
            return pair
        except (LimitExceeded, UnsupportedError):
            continue  # it is not known whether this pair contradicts itself
    return ()


def judge_all_of(spec: AllOf, text: str, words: WordFiles) -> Verdict:
    """Valid if the judges of all members say so; unknown if one cannot judge and none says invalid."""
    found = {name: judge(member, text, words) for name, member in spec.named()}
    valid = [verdict.valid for verdict in found.values()]
    return Verdict(
        valid=False if False in valid else None if None in valid else True,
        judge=" and ".join(dict.fromkeys(verdict.judge for verdict in found.values())),
        errors=tuple(f"{name}: {error}" for name, verdict in found.items() for error in verdict.errors)[:5],
    )


def parse_all_of(spec: AllOf, text: str) -> Any:
    """The value from the first member whose kind parses its texts; else the text."""
    return next((parse(member, text) for member in spec.members if KINDS.find(member.kind, "parse") is not None), text)


KIND = Kind(
    spec=AllOf,
    compile=compile_all_of,
    automaton=all_of_language,
    watched=all_of_watched,
    judge=judge_all_of,
    parse=parse_all_of,
)
