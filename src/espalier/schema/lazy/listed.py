"""One of many texts, such as those of an `enum`, read byte by byte instead of as one expression each.

    ["red", "rose", …]    "\\"r" --e--> what follows "\\"re", --o--> what follows "\\"ro"

It knows neither schemas nor JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from espalier.automata.lazy.linear import Cost, Edges, KeyChoice, Linear, State
from espalier.grammar.ast import EMPTY, Literal, Node
from espalier.schema.lowering.linear import choice

FEW = 4
"""Texts that are cheaper as one expression each."""
_START, _END = 0, 1


def one_of_texts(texts: Iterable[str], others: Iterable[Node] = ()) -> list[Node | Linear]:
    """One of these texts, which differ, or of these expressions."""
    by_last: dict[str, list[str]] = {}
    for text in texts:
        by_last.setdefault(text[-1:], []).append(text)
    apart = [*others]
    automata: list[Node | Linear] = []
    for last, group in by_last.items():
        longer = [text for text in group if len(text) > 1] if last.isascii() else []
        if len(longer) <= FEW:
            longer = []
        else:
            automata.append(TextKeys(longer))
        rest = set(group).difference(longer)
        apart += [Literal(text) for text in group if text in rest]
    return [choice(apart), *automata] if apart else automata


class TextKeys:
    """A `KeyedLinear` of texts that end with the same ASCII character, and have others before it."""

    def __init__(self, texts: Iterable[str]) -> None:
        spelled = [text.encode() for text in texts]
        self.texts = sorted(text[:-1] for text in spelled)
        self.last = spelled[0][-1]
        self._last = Literal(chr(self.last))
        self._choice = KeyChoice(before=EMPTY, keys=tuple(range(len(self.texts))), place=None)

    @property
    def start(self) -> State:
        return _START

    def edges(self, state: State) -> Edges:
        return [(Literal(text.decode() + chr(self.last)), _END) for text in self.texts] if state == _START else []

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        return (), self._choice if state == _START else None

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        return self._last, _END

    def final(self, state: State) -> bool:
        return state == _END

    def least(self, cost: Cost) -> Callable[[State], int]:
        shortest = 1 + min(map(len, self.texts))
        return lambda state: shortest if state == _START else 0

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        return lambda key, place: 1 + len(self.texts[key])
