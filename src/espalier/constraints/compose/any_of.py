"""`AnyOf`: the texts that at least one of several constraints accepts.

The spec, its automaton where all members have one, its grammar, and its judge; `any_of_matcher.py` enforces it over any
compiled constraints. It knows no kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.embed import Assembly
from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.network import Network
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of_matcher import CompiledAnyOf
from espalier.constraints.compose.members import MembersSpec
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Promise, Verdict, judge, parse
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Grammar, alt
from espalier.lexicon.files import WordFiles


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(MembersSpec):
    """Texts that at least one member accepts; members are constraints of any kind.

    They are given one by one or as one sequence. An AnyOf among them is replaced by its members, and equal members are
    kept once. A text may fit several members until a token rules some of them out. Where it matters which member a text
    belongs to, such as for parsing, the first valid one counts. Raises SpecError.
    """

    kind: ClassVar[str] = "any_of"

    def beginnings(self) -> tuple[Spec, ...]:
        return tuple(part for member in self.members for part in member.beginnings())


def compile_any_of(spec: AnyOf, compiler: Compiler) -> Compiled:
    """A single member compiles as itself. Raises what the members' own compilers raise; SpecError where two members
    spell one special token differently."""
    if len(spec.members) == 1:
        return compiler.compile(spec.members[0])
    return CompiledAnyOf(spec, spec.names(), [compiler.compile(member) for member in spec.members], compiler.trie)


def any_of_language(spec: AnyOf, compiler: Compiler) -> Dfa | Network:
    """The union of the members' automata. Raises UnsupportedError for a member without an automaton, LimitExceeded,
    naming the member."""
    assembly = Assembly()
    either = Fragment(edges=[[], []], symbols=[[], []], final=[False, True], leaf=[None, None])
    assembly.rule(either, "")
    for name, member in zip(spec.names(), spec.members, strict=True):
        try:
            part = compiler.language(member, wanted_by="AnyOf")
        except LimitExceeded as error:
            raise LimitExceeded(f"{name}: {error.message}", hint=error.hint) from error
        if len(spec.members) == 1:
            return part
        either.symbols[0].append((assembly.embed(part, name), (1,)))
    return assembly.dfa() or assembly.network()


def any_of_grammar(spec: AnyOf, compiler: Compiler, before: str) -> Grammar:
    """An alternation of the members' grammars, see `to_gbnf.grammar_of`."""
    from espalier.constraints.to_gbnf import GrammarUnion, grammar_of  # noqa: PLC0415  # slow to import

    union = GrammarUnion()
    return union.grammar(alt(*(union.add(grammar_of(member, compiler, before)) for member in spec.members)))


def judge_any_of(spec: AnyOf, text: str, words: WordFiles) -> Verdict:
    """Valid if one member's judge says so; else the errors of the nearest member."""
    return _nearest_verdict(spec, text, words)[1]


def parse_any_of(spec: AnyOf, text: str) -> Any:
    """The value from the first member whose judge says valid, else from the nearest one."""
    return parse(_nearest_verdict(spec, text, None)[0], text)


def _nearest_verdict(spec: AnyOf, text: str, words: WordFiles | None) -> tuple[Spec, Verdict]:
    """The first valid member and its verdict, else the nearest: the first that cannot be judged, else the one with the
    fewest errors."""
    judged: list[tuple[str, Spec, Verdict]] = []
    for name, member in zip(spec.names(), spec.members, strict=True):
        verdict = judge(member, text, words)
        if verdict.valid:
            return member, verdict
        judged.append((name, member, verdict))
    name, member, nearest = min(judged, key=lambda entry: (entry[2].valid is not None, len(entry[2].errors)))
    who = " and ".join(dict.fromkeys(verdict.judge for _, _, verdict in judged))
    errors = tuple(f"{name}: {error}" for error in nearest.errors)
    # A member that may leave keywords to be checked can be the one that the matcher followed.
    is_loose = any(
        getattr(candidate, "allow", None) == "checked" or verdict.breaks == "checked"
        for _, candidate, verdict in judged
    )
    breaks: Promise = "checked" if is_loose else "enforced"
    return member, Verdict(
        valid=nearest.valid, judge=who, errors=errors, breaks=breaks if nearest.valid is False else None
    )
