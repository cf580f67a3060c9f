"""Grammars as flat programs of symbols, as llama.cpp expands them: groups and repetitions become rules of their own.

    root ::= "ab"* [0-9]     0: ref S  1: [0-9]  2: end      S: 3: a  4: b  5: ref S  6: end | 7: end

It knows neither tokens nor stacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from espalier.errors import GrammarError
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    fold,
)
from espalier.grammar.ranges import Ranges
from espalier.time_limit import check

UNBOUNDED = 2000
"""llama.cpp takes a higher maximum of a repetition for none."""
MOST_SYMBOLS = 500_000


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point inside the ranges, or outside if negated. ranges: None for any."""

    ranges: Ranges | None
    is_negated: bool = False

    def matches(self, char: int) -> bool:
        if self.ranges is None:
            return True
        return any(low <= char <= high for low, high in self.ranges) != self.is_negated

    def matches_part(self, value: int, missing: int) -> bool:
        """Whether a character of which `missing` bytes are still to come may match. llama.cpp refuses the part if a
        negated class lists any character that it may become."""
        if missing < 0 or (missing == 1 and value < 2):
            return False
        low = value << (6 * missing)
        high = low | ((1 << (6 * missing)) - 1)
        if low == 0:
            low = {2: 1 << 11, 3: 1 << 16}[missing]  # the first one that is not spelled with fewer bytes
        if self.ranges is None:
            return True
        return any(first <= high and low <= last for first, last in self.ranges) != self.is_negated


@dataclass(frozen=True, slots=True)
class TokenSymbol:
    """One token; if negated, any other."""

    id: int
    is_negated: bool = False

    def matches(self, token: int) -> bool:
        return (token == self.id) != self.is_negated


@dataclass(frozen=True, slots=True)
class Ref:
    """The alternatives of another rule."""

    rule: int


Symbol: TypeAlias = Chars | TokenSymbol | Ref | None
"""None ends an alternative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarProgram:
    """symbols: all alternatives, one after the other, each with its end. rules: for each rule, where its alternatives
    begin; rule 0 is the root. names: for each position, the rule of the grammar that it is from."""

    symbols: tuple[Symbol, ...]
    rules: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]


def compile_program(grammar: Grammar, *, special: dict[str, int]) -> GrammarProgram:
    """special: ids of special tokens by their spelling. Raises GrammarError for a token that there is not, a rule that
    is not defined, and a grammar that is too large; LimitExceeded."""
    return _Compiler(grammar, special).program()


class _Compiler:
    def __init__(self, grammar: Grammar, special: dict[str, int]) -> None:
        self._grammar, self._special = grammar, special
        self._numbers = {name: place for place, name in enumerate([grammar.root, *grammar.rules])}
        self._numbers |= {name: place for place, name in enumerate(grammar.rules, start=1)}
        self._rules: list[list[list[Symbol]]] = [[] for _ in range(len(grammar.rules) + 1)]
        self._owners = [grammar.root, *grammar.rules]
        self._owner = grammar.root
        self._size = 0

    def program(self) -> GrammarProgram:
        self._rules[0] = [[Ref(self._number(self._grammar.root))]]
        for name, rule in self._grammar.rules.items():
            self._owner = name
            body = rule.body
            options = body.options if isinstance(body, Alternative) else (body,)
            self._rules[self._numbers[name]] = [fold(option, self._symbols) for option in options]
        symbols: list[Symbol] = []
        names: list[str] = []
        rules: list[tuple[int, ...]] = []
        for owner, alternatives in zip(self._owners, self._rules, strict=True):
            starts = []
            for alternative in alternatives:
                starts.append(len(symbols))
                symbols += [*alternative, None]
                names += [owner] * (len(alternative) + 1)
            rules.append(tuple(starts))
        return GrammarProgram(symbols=tuple(symbols), rules=tuple(rules), names=tuple(names))

    def _symbols(self, node: Node, parts: list[list[Symbol]]) -> list[Symbol]:
        check()
        symbols: list[Symbol]
        match node:
            case Literal():
                symbols = [Chars(((ord(char), ord(char)),)) for char in node.text]
            case CharClass():
                symbols = [Chars(node.ranges, node.negated)]
            case AnyChar():
                symbols = [Chars(None)]
            case TokenRef():
                symbols = [TokenSymbol(self._token(node), node.negated)]
            case RuleRef():
                symbols = [Ref(self._number(node.name))]
            case Sequence():
                symbols = [symbol for part in parts for symbol in part]
            case Alternative():
                symbols = [self._rule(parts)]
            case Repeat():
                symbols = self._compile_repeat(parts[0], node)
        self._size += len(symbols)
        if self._size > MOST_SYMBOLS:
            raise GrammarError("the grammar is too large to be followed")
        return symbols

    def _compile_repeat(self, item: list[Symbol], node: Repeat) -> list[Symbol]:
        repeated = item if len(item) == 1 else [self._rule([item])]
        first = repeated * node.min
        if node.max is None or node.max > UNBOUNDED:
            number = self._new([])
            self._rules[number] = [[*repeated, Ref(number)], []]
            return [*first, Ref(number)]
        rest: list[Symbol] = []
        for _ in range(node.max - node.min):
            rest = [self._rule([[*repeated, *rest], []])]
        return [*first, *rest]

    def _rule(self, alternatives: list[list[Symbol]]) -> Ref:
        return Ref(self._new(alternatives))

    def _new(self, alternatives: list[list[Symbol]]) -> int:
        self._rules.append(alternatives)
        self._owners.append(self._owner)
        self._size += 1 + sum(len(alternative) for alternative in alternatives)
        return len(self._rules) - 1

    def _number(self, name: str) -> int:
        if name not in self._grammar.rules:
            raise GrammarError(f"rule {name!r} is used and never defined")
        return self._numbers[name]

    def _token(self, node: TokenRef) -> int:
        if node.id is not None:
            return node.id
        token = self._special.get(node.text or "")
        if token is None:
            raise GrammarError(f"{node.text} is no special token of this model")
        return token
