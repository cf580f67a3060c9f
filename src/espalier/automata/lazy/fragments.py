"""Fragments as items: the states of a finished automaton over bytes, whose symbols are expressions.

Free text with markers in it is such a fragment; what follows a marker is explored on demand. It knows no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.nfa import ByteSet, Symbol
from espalier.automata.lazy.items import Items, LazyItem
from espalier.automata.lazy.linear import ENDLESS
from espalier.grammar.ast import Node


class FragmentRule:
    """A fragment that is a whole rule. symbols: the expression of each symbol in it. cost: the least bytes of an
    expression. Raises nothing; what cannot be finished costs ENDLESS."""

    def __init__(self, fragment: Fragment, symbols: Mapping[Symbol, Node], cost: Callable[[Node], int]) -> None:
        self.fragment = fragment
        self.symbols = symbols
        self.least = _least(fragment, {symbol: cost(node) for symbol, node in symbols.items()})

    def start(self, items: Items) -> LazyItem:
        """The item of its first state."""
        return self.state(items, 0)

    def state(self, items: Items, number: int) -> LazyItem:
        """The item of a state."""
        return items.kept((self, number), lambda: _FragmentState(self, number))

    def reader(self, items: Items, number: int) -> LazyItem:
        """The item of what a state reads itself."""
        return items.kept((self, number, "bytes"), lambda: _Bytes(self, number))


class _FragmentState(LazyItem):
    """A state of a fragment."""

    __slots__ = ("laid", "number")
    reads = False
    stays = False

    def __init__(self, laid: FragmentRule, number: int) -> None:
        super().__init__(laid.least[number])
        self.laid, self.number = laid, number

    def ways(self, items: Items) -> Iterable[LazyItem]:
        laid, number = self.laid, self.number
        if laid.fragment.final[number]:
            yield items.end
        if laid.fragment.edges[number]:
            yield laid.reader(items, number)
        for symbol, targets in laid.fragment.symbols[number]:
            for target in targets:
                if laid.least[target] < ENDLESS:
                    yield items.at(laid.symbols[symbol], laid.state(items, target))


class _Bytes(LazyItem):
    """What a state of a fragment reads itself."""

    __slots__ = ("laid", "number")

    def __init__(self, laid: FragmentRule, number: int) -> None:
        fragment = laid.fragment
        super().__init__(1 + min(laid.least[target] for _, targets in fragment.edges[number] for target in targets))
        self.laid, self.number = laid, number

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        for members, targets in self.laid.fragment.edges[self.number]:
            for target in targets:
                yield members, self.laid.state(items, target)


def _least(fragment: Fragment, costs: Mapping[Symbol, int]) -> list[int]:
    """The least number of bytes from each state to the end."""
    least_of = [0 if final else ENDLESS for final in fragment.final]
    changed = True
    while changed:
        changed = False
        for state, (edges, symbols) in enumerate(zip(fragment.edges, fragment.symbols, strict=True)):
            steps = [(1, targets) for _, targets in edges] + [(costs[symbol], targets) for symbol, targets in symbols]
            least = min([least_of[state], *(far + least_of[target] for far, targets in steps for target in targets)])
            if least < least_of[state]:
                least_of[state], changed = least, True
    return least_of
