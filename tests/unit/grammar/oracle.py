"""A recogniser to judge the real parts by: Earley's algorithm over code points, written for being right.

It takes any grammar tree: ambiguous, left recursive, with nullable loops and dead rules. It shares nothing with the
package but the tree: it does its own lowering, nullability and dead ends, by plain rounds to a fixpoint. A token
reference matches its spelling (`<think>`, `<[5]>`, `!<[5]>`), as `sample` writes it. It knows nothing of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

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
)


@dataclass(frozen=True)
class Chars:
    """One code point in the ranges, or, negated, not in them. Surrogates are never text."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    def matches(self, code_point: int) -> bool:
        if 0xD800 <= code_point <= 0xDFFF:
            return False
        return any(lo <= code_point <= hi for lo, hi in self.ranges) != self.negated

    def is_void(self) -> bool:
        # The least code point of a non-empty set begins a range or follows one.
        edges = {0, 0xE000, *(lo for lo, _ in self.ranges), *(hi + 1 for _, hi in self.ranges)}
        return not any(edge <= 0x10FFFF and self.matches(edge) for edge in edges)


Symbol = Chars | int
"""A terminal, or the number of a nonterminal."""
Production = tuple[Symbol, ...]
Item = tuple[int, int, int]
"""A production by number, how much of it is done, and where it started."""


class Recogniser:
    """Whole texts and beginnings of one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.productions: list[list[Production]] = []
        self.of_rule = {name: self.new() for name in grammar.rules}
        for name, rule in grammar.rules.items():
            self.productions[self.of_rule[name]].append((self.lower(rule.body),))
        self.start = self.new((self.of_rule[grammar.root],))
        self.drop_dead_ends()
        self.nullable = self.fixpoint(lambda _: False)
        self.flat = [(head, body) for head, bodies in enumerate(self.productions) for body in bodies]
        self.numbers: list[list[int]] = [[] for _ in self.productions]
        for number, (head, _) in enumerate(self.flat):
            self.numbers[head].append(number)

    def accepts(self, text: str) -> bool:
        """Is the text a sentence?"""
        items = self.run(text)
        return bool(items) and any(
            self.flat[number][0] == self.start and done == len(self.flat[number][1]) and origin == 0
            for number, done, origin in items
        )

    def viable(self, text: str) -> bool:
        """Is the text the beginning of a sentence, or one?"""
        return bool(self.run(text))

    # Lowering to productions

    def new(self, *productions: Production) -> int:
        self.productions.append(list(productions))
        return len(self.productions) - 1

    def lower(self, node: Node) -> Symbol:
        match node:
            case Literal(text):
                return self.spell(text)
            case TokenRef():
                return self.spell(node.spelling)
            case CharClass(ranges, negated):
                return Chars(ranges, negated)
            case AnyChar():
                return Chars((), negated=True)
            case RuleRef(name):
                return self.of_rule[name] if name in self.of_rule else self.new()
            case Sequence(items):
                return self.new(tuple(self.lower(item) for item in items))
            case Alternative(options):
                return self.new(*((self.lower(option),) for option in options))
            case Repeat(item, low, high):
                inner = self.lower(item)
                if high is None:
                    rest = self.new(())
                    self.productions[rest].append((rest, inner))
                    return self.new((inner,) * low + (rest,))
                rest = self.new(())
                for _ in range(high - low):
                    rest = self.new((), (inner, rest))
                return self.new((inner,) * low + (rest,))
            case _:
                assert_never(node)

    def spell(self, text: str) -> Symbol:
        return self.new(tuple(Chars(((ord(char), ord(char)),)) for char in text))

    # Facts, by rounds

    def fixpoint(self, terminal) -> set[int]:
        """The nonterminals that have a production all of whose symbols hold."""
        found: set[int] = set()
        while True:
            more = {
                head
                for head, productions in enumerate(self.productions)
                if head not in found
                and any(
                    all(s in found if isinstance(s, int) else terminal(s) for s in production)
                    for production in productions
                )
            }
            if not more:
                return found
            found |= more

    def drop_dead_ends(self) -> None:
        alive = self.fixpoint(lambda chars: not chars.is_void())
        for productions in self.productions:
            productions[:] = [
                production
                for production in productions
                if all(s in alive if isinstance(s, int) else not s.is_void() for s in production)
            ]

    # Earley

    def run(self, text: str) -> set[Item]:
        """The items after the whole text; none if no sentence starts with it."""
        waiting: list[dict[int, list[Item]]] = []  # by position and nonterminal: items that want it next
        fresh = [(number, 0, 0) for number in self.numbers[self.start]]
        for here in range(len(text) + 1):
            items: set[Item] = set()
            wanting: dict[int, list[Item]] = {}
            waiting.append(wanting)
            todo, fresh = fresh, []
            while todo:
                item = todo.pop()
                if item in items:
                    continue
                items.add(item)
                number, done, origin = item
                head, body = self.flat[number]
                if done == len(body):
                    if origin < here:  # an empty one is covered by the step over nullables below
                        todo += [(n, d + 1, o) for n, d, o in waiting[origin].get(head, ())]
                elif isinstance(symbol := body[done], int):
                    if symbol not in wanting:
                        wanting[symbol] = []
                        todo += [(n, 0, here) for n in self.numbers[symbol]]
                    wanting[symbol].append(item)
                    if symbol in self.nullable:
                        todo.append((number, done + 1, origin))
                elif here < len(text) and symbol.matches(ord(text[here])):
                    fresh.append((number, done + 1, origin))
            if not fresh:
                return items if here == len(text) else set()
        return items
