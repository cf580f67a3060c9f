"""`AllOf`: the texts that every one of several constraints accepts.

The members' automata are intersected, and what leads nowhere is taken away, so members that each could go on never
meet in a dead end. It knows no kind: a member is whatever has an automaton (`LANGUAGES` in `compile.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

from espalier.automata.dfa import Dfa, intersect
from espalier.automata.network import Network
from espalier.automata.product import intersect_network
from espalier.constraints.all_of_matcher import AllOfCompiled
from espalier.constraints.automaton_matcher import compile_automaton
from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.members import Joined
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import PARSERS, Verdict, judge, parse
from espalier.constraints.word_files import WordFiles
from espalier.errors import GrammarError, LimitExceeded, SpecError, UnsupportedError


@dataclass(frozen=True, slots=True, init=False)
class AllOf(Joined):
    """Texts that all members accept: any number of regular ones and at most one that is not, such as a grammar.

    The members are given one by one or as one sequence. An AllOf among them counts as its members; of equal members
    one is kept. Their order is the order of blame: a token is refused by the first member that refuses it.
    Raises SpecError.
    """

    kind: ClassVar[str] = "all_of"


def compile_all_of(spec: AllOf, compiler: Compiler) -> Compiled:
    """A single member compiles as itself. Raises what the members' own compilers raise; SpecError, naming them, for
    members that contradict one another; UnsupportedError for two that are not regular; LimitExceeded."""
    if len(spec.members) == 1:
        return compiler.compile(spec.members[0])
    whole = compile_automaton(all_of_language(spec, compiler), spec, compiler.vocab, compiler.trie)
    return AllOfCompiled(whole, spec.names(), lambda: [compiler.compile(member) for member in spec.members])


def all_of_language(spec: AllOf, compiler: Compiler) -> Dfa | Network:
    """As `compile_all_of`."""
    names = spec.names()
    found: dict[str, Dfa | Network] = {}
    for name, member in zip(names, spec.members, strict=True):
        try:
            found[name] = compiler.language(member, wanted_by="AllOf")
        except LimitExceeded as error:
            raise LimitExceeded(f"{name}: {error.message}", hint=error.hint) from error
    stacked = [name for name, part in found.items() if isinstance(part, Network)]
    if len(stacked) > 1:
        raise UnsupportedError(
            f"{' and '.join(stacked)} are not regular, and two such members could lead into a dead end",
            hint="keep one of them; the others must be regular: expressions, choices, word lists, bans",
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
    """Raises GrammarError if nothing is left, LimitExceeded, UnsupportedError for a grammar that names tokens."""
    regular = sorted((part for part in parts if isinstance(part, Dfa)), key=len)
    both = intersect(*regular) if regular else None
    for part in parts:
        if isinstance(part, Network):
            return part if both is None else intersect_network(part, both)
    if both is None:
        raise AssertionError("there is no intersection of nothing")
    return both


def _contradiction(found: dict[str, Dfa | Network]) -> tuple[str, ...]:
    """The first two members that no text satisfies, `()` if any two have one."""
    for pair in combinations(found, 2):
        try:
            _intersection([found[name] for name in pair])
        except GrammarError:
            return pair
        except (LimitExceeded, UnsupportedError):
            continue  # this pair is not known to contradict itself
    return ()


def judge_all_of(spec: Spec, text: str, words: WordFiles) -> Verdict:
    """What the judge of each member says."""
    assert isinstance(spec, AllOf)
    found = {name: judge(member, text, words) for name, member in zip(spec.names(), spec.members, strict=True)}
    said = [verdict.valid for verdict in found.values()]
    return Verdict(
        valid=False if False in said else None if None in said else True,
        judge=" and ".join(dict.fromkeys(verdict.judge for verdict in found.values())),
        errors=tuple(f"{name}: {error}" for name, verdict in found.items() for error in verdict.errors)[:5],
    )


def parse_all_of(spec: Spec, text: str) -> Any:
    """As the first member whose texts are more than text."""
    assert isinstance(spec, AllOf)
    return next((parse(member, text) for member in spec.members if member.kind in PARSERS.names()), text)
