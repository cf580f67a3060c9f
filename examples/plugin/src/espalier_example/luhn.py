"""The constraint `luhn`: so many digits, of which the last is the check digit of Luhn's formula, as on bank cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler, ConstraintKind
from espalier.constraints.matching.automaton import automaton_of, compile_grammar
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Verdict
from espalier.errors import SpecError
from espalier.grammar.ast import Grammar
from espalier.grammar.parser import parse
from espalier.lexicon.files import WordFiles

LONGEST = 64


@dataclass(frozen=True, slots=True)
class Luhn(Spec):
    """length: how many digits, the check digit included."""

    kind: ClassVar[str] = "luhn"
    length: int = 16

    def __post_init__(self) -> None:
        if type(self.length) is not int or not 2 <= self.length <= LONGEST:
            raise SpecError(f"length must be a whole number from 2 to {LONGEST}", field="length")


def worth(digit: int, place: int) -> int:
    """What a digit adds to the sum. place: counted from the right, 1 for the check digit; every second one is doubled,
    and the digits of the product added."""
    return sum(divmod(2 * digit, 10)) if place % 2 == 0 else digit


def luhn_grammar(spec: Luhn) -> Grammar:
    """Rule `s-PLACE-REST`: the digits from this place on, whose worth is REST modulo 10."""
    rules = [f"root ::= s-{spec.length}-0"]
    for place in range(spec.length, 1, -1):
        for rest in range(10):
            ways = (f'"{d}" s-{place - 1}-{(rest - worth(d, place)) % 10}' for d in range(10))
            rules.append(f"s-{place}-{rest} ::= {' | '.join(ways)}")
    rules += [f's-1-{rest} ::= "{rest}"' for rest in range(10)]
    return parse("\n".join(rules))


class LuhnKind(ConstraintKind[Luhn]):
    """What can be done with such a spec. Only `spec` and `compile` are needed."""

    @property
    def spec(self) -> type[Luhn]:
        return Luhn

    def compile(self, spec: Luhn, compiler: Compiler) -> Compiled:
        return compile_grammar(luhn_grammar(spec), spec, compiler.vocab, compiler.trie)

    def automaton(self, spec: Luhn, compiler: Compiler) -> Dfa | Network:
        return automaton_of(luhn_grammar(spec))

    def judge(self, spec: Luhn, text: str, words: WordFiles) -> Verdict:
        """By arithmetic, without the automaton."""
        if len(text) != spec.length or not (text.isascii() and text.isdigit()):
            return Verdict(valid=False, judge="luhn", errors=(f"not {spec.length} digits",))
        total = sum(worth(int(digit), place) for place, digit in enumerate(reversed(text), 1))
        return Verdict(valid=total % 10 == 0, judge="luhn", errors=() if total % 10 == 0 else ("wrong check digit",))

    def to_gbnf(self, spec: Luhn, compiler: Compiler, before: str) -> Grammar:
        return luhn_grammar(spec)


LUHN = LuhnKind()
