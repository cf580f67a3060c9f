"""`AllOf`: the texts that every one of several constraints accepts.

The members' machines are joined as they are walked (`joint.py`), so nothing is built in advance; only where `AllOf` is
a part of another constraint are automata intersected. It knows no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.languages.network import Network
from espalier.automata.languages.product import intersect_network
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of_matcher import CompiledAllOf
from espalier.constraints.compose.joint import JointPart, join, joint_of, part_of
from espalier.constraints.compose.members import MembersSpec
from espalier.constraints.compose.side_by_side import CompiledRewindingAllOf, CompiledSideBySide
from espalier.constraints.compose.spelling import reading
from espalier.constraints.compose.stranding import CompiledStrandingAllOf
from espalier.constraints.matching.parallel import spellings
from espalier.constraints.spec import Spec
from espalier.constraints.unique.places import SeveralTrackers, watched_language
from espalier.constraints.verdict import Verdict, has_parser, judge, parse, promise_of
from espalier.constraints.watching import WatchedLanguage
from espalier.errors import GrammarError, LimitExceeded, SpecError, UnsupportedError
from espalier.lexicon.files import WordFiles
from espalier.wording import OptionText, Setting

DeadEnds: TypeAlias = Literal["auto", "refuse", "rewind"]


@dataclass(frozen=True, slots=True, init=False)
class AllOf(MembersSpec):
    """Texts that all members accept; members are constraints of any kind, any number of them.

    They are given one by one or as one sequence. An AllOf among them is replaced by its members, and equal members are
    kept once. Their order is the order of blame: the first member that refuses a token gets the blame.

    Members are joined as the text is walked. A token is allowed if every member allows it and a text that satisfies all
    of them can still be reached after it, for which a search of bounded size looks. dead_ends: what to do where that
    search is given up, or a member has no automaton to search (`After`, `uniqueItems`, a plugin's matcher). `auto`:
    allow the token; where it proves to lead nowhere, the strategy `mask` takes text back and goes on
    differently (`max_rewinds`), as the trace then tells, and other strategies raise DeadEnd. Text is held back from
    streaming only while no end of it is known. `refuse`: raise LimitExceeded there, and UnsupportedError for such a
    member. `rewind`: as `auto`, only with what can take text back (the strategy `mask` of our own sampler), and the
    whole text may go back until it has ended, so it is streamed only then. The whole rewinds, or else refuses, if an
    AllOf among its members does. A member that rewinds itself,
    such as `Ban(..., mode="rewind")`, does not need `dead_ends`. Raises SpecError.
    """

    kind: ClassVar[str] = "all_of"
    dead_ends: DeadEnds

    def __init__(self, *members: Spec | Sequence[Spec], dead_ends: DeadEnds = "auto") -> None:
        MembersSpec.__init__(self, *members)
        if dead_ends not in get_args(DeadEnds):
            raise SpecError(f"unknown dead_ends {dead_ends!r}", hint=", ".join(get_args(DeadEnds)), field="dead_ends")
        listed: Any = members[0] if len(members) == 1 and isinstance(members[0], Sequence) else members
        inner = {member.dead_ends for member in listed if isinstance(member, AllOf)} | {dead_ends}
        object.__setattr__(
            self, "dead_ends", next(choice for choice in ("rewind", "refuse", "auto") if choice in inner)
        )

    def to_json(self) -> dict[str, Any]:
        """As `Spec.to_json`; dead_ends only if it is not the default."""
        values = MembersSpec.to_json(self)
        return values if self.dead_ends == "auto" else values | {"dead_ends": self.dead_ends}

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> AllOf:
        joined = super(AllOf, cls).from_fields(values)
        return AllOf(joined.members, dead_ends=values.get("dead_ends", "auto"))

    def named(self) -> list[tuple[str, Spec]]:
        """Name and member, in order."""
        return list(zip(self.names(), self.members, strict=True))

    @property
    def rewinds(self) -> bool:
        return self.dead_ends == "rewind" and len(self.members) > 1


def compile_all_of(spec: AllOf, compiler: Compiler) -> Compiled:
    """A single member compiles as itself. Raises what the members' own compilers raise; SpecError, naming them, for
    members that contradict one another; LimitExceeded where no text that satisfies all was found; UnsupportedError for
    a member without an automaton, with `dead_ends="refuse"`."""
    if len(spec.members) == 1:
        return compiler.compile(spec.members[0])
    members = [_Member(name, member, part_of(name, member, compiler)) for name, member in spec.named()]
    if all(member.part is not None for member in members):
        return _join_members(members, spec, compiler)
    return _side_by_side(members, spec, compiler)


class _Member(NamedTuple):
    name: str
    spec: Spec
    part: JointPart | None


def _join_members(members: Sequence[_Member], spec: AllOf, compiler: Compiler) -> Compiled:
    """The members, all of which have a part, as one; only with several members that rewind do they stay apart too."""
    may_strand = spec.dead_ends != "refuse"
    names = [member.name for member in members]
    whole = join(_parts(members), spec, compiler, may_strand=may_strand)
    joint = joint_of(whole)

    def alone() -> list[Compiled]:
        named = frozenset[int]().union(*(part.named for part in _parts(members)))
        spelled = {token: whole.spelled.get(token, b"") for token in named}
        return [
            reading(
                compiler.compile(member.spec),
                {token: data for token, data in spelled.items() if token not in member.part.named},
                compiler.trie,
            )
            for member in members
            if member.part is not None
        ]

    takers = [(member.name, compiler.compile(member.spec)) for member in members if member.spec.rewinds]
    if takers:
        rest = _parts([member for member in members if not member.spec.rewinds])
        others = join(rest, spec, compiler, may_strand=may_strand) if rest else None
        return CompiledRewindingAllOf(
            whole, names, alone, rewinding=takers, rest=others, joint=joint, keeps=spec.rewinds
        )
    if spec.rewinds or (joint is not None and may_strand):
        return CompiledStrandingAllOf(whole, names, alone, joint, keeps=spec.rewinds)
    return CompiledAllOf(whole, names, alone)


def _parts(members: Sequence[_Member]) -> list[JointPart]:
    return [member.part for member in members if member.part is not None]


def _side_by_side(members: Sequence[_Member], spec: AllOf, compiler: Compiler) -> Compiled:
    """Members of which some have no automaton, in parallel; those that have one run as one. With `dead_ends="refuse"`
    only members that rewind may run beside the others."""
    apart = [member for member in members if member.part is None or member.spec.rewinds]
    together = [member for member in members if member not in apart]
    odd = [member.name for member in apart if not member.spec.rewinds]
    if spec.dead_ends == "refuse" and len(odd) + bool(together) > 1:
        raise UnsupportedError(
            f"{' and '.join(odd)} cannot be joined without dead ends: it has no automaton",
            hint=OptionText(
                "leave dead_ends out, or accept by ", REWIND, " that text is taken back where it leads nowhere"
            ),
            field="members",
        )
    readers = [(member.name, compiler.compile(member.spec)) for member in apart]
    if together:
        name = " and ".join(member.name for member in together)
        compiled_member = (
            _join_members(together, spec, compiler) if len(together) > 1 else compiler.compile(together[0].spec)
        )
        readers.insert(0, (name, compiled_member))
    spelled = spellings([name for name, _ in readers], [reader.spelled for _, reader in readers])
    for number, (name, compiled_member) in enumerate(readers):
        foreign = {token: data for token, data in spelled.items() if token not in compiled_member.spelled}
        readers[number] = name, reading(compiled_member, foreign, compiler.trie)
    names, compiled = zip(*readers, strict=True)
    return CompiledSideBySide(
        spec, names, compiled, may_strand=spec.dead_ends != "refuse", keeps=spec.rewinds, order=spec.names()
    )


def all_of_language(spec: AllOf, compiler: Compiler) -> Dfa | Network:
    """The intersection, for constraints that hold an `AllOf`. Raises as `compile_all_of`, and UnsupportedError for
    members without an automaton and for two that are not regular."""
    return _intersect_members(
        spec, lambda member: compiler.language(member, wanted_by="an AllOf inside another constraint")
    )


def all_of_watched(spec: AllOf, compiler: Compiler) -> WatchedLanguage:
    """The intersection, with the trackers of all members. Raises as `all_of_language`."""
    languages: list[WatchedLanguage] = []

    def language(member: Spec) -> Dfa | Network:
        languages.append(watched_language(member, compiler, wanted_by="an AllOf inside another constraint"))
        return languages[-1].automaton

    automaton = _intersect_members(spec, language)
    trackers = [watched.tracker for watched in languages if watched.tracker is not None]
    return WatchedLanguage(
        automaton=automaton,
        tracker=SeveralTrackers(trackers) if len(trackers) > 1 else trackers[0] if trackers else None,
        is_easy=len(languages) == 1 and languages[0].is_easy,
        is_document=any(watched.is_document for watched in languages),
    )


def _intersect_members(spec: AllOf, language: Callable[[Spec], Dfa | Network]) -> Dfa | Network:
    names = spec.names()
    automata: dict[str, Dfa | Network] = {}
    for name, member in zip(names, spec.members, strict=True):
        try:
            automata[name] = language(member)
        except LimitExceeded as error:
            raise LimitExceeded(f"{name}: {error.message}", hint=error.hint) from error
    stacked = [name for name, part in automata.items() if isinstance(part, Network)]
    if len(stacked) > 1:
        raise UnsupportedError(
            f"{' and '.join(stacked)} are not regular, and two such members could lead into a dead end",
            hint=OptionText(
                "keep one of them, the others being regular: expressions, choices, word lists, bans; or accept that "
                "text is taken back where it leads nowhere: ",
                REWIND,
            ),
            field="members",
        )
    try:
        return _intersection(automata.values())
    except LimitExceeded as error:
        raise LimitExceeded(f"{' and '.join(names)} together: {error.message}", hint=error.hint) from error
    except GrammarError as error:
        guilty = _contradiction(automata) or names
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


def _contradiction(automata: dict[str, Dfa | Network]) -> tuple[str, ...]:
    """The first two members that no text satisfies together; `()` if there is no such pair."""
    for pair in combinations(automata, 2):
        try:
            _intersection([automata[name] for name in pair])
        except GrammarError:
            return pair
        except (LimitExceeded, UnsupportedError):
            continue  # it is not known whether this pair contradicts itself
    return ()


def judge_all_of(spec: AllOf, text: str, words: WordFiles) -> Verdict:
    """Valid if the judges of all members say so; unknown if one cannot judge and none says invalid."""
    verdicts = {name: judge(member, text, words) for name, member in spec.named()}
    valid = [verdict.valid for verdict in verdicts.values()]
    return Verdict(
        valid=False if False in valid else None if None in valid else True,
        judge=" and ".join(dict.fromkeys(verdict.judge for verdict in verdicts.values())),
        errors=tuple(f"{name}: {error}" for name, verdict in verdicts.items() for error in verdict.errors)[:5],
        breaks=promise_of(verdict for verdict in verdicts.values() if verdict.valid is False)
        if False in valid
        else None,
    )


def parse_all_of(spec: AllOf, text: str) -> Any:
    """The value from the first member whose kind parses its texts; else the text."""
    return next((parse(member, text) for member in spec.members if has_parser(member)), text)


REWIND = Setting("dead_ends", "rewind")
