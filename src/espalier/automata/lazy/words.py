"""One of many texts, such as those of an `enum`, read byte by byte instead of as one expression each.

    ["red", "rose", …]    "\\"r" --e--> what follows "\\"re", --o--> what follows "\\"ro"

It knows neither schemas nor vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from espalier.automata.lazy.linear import ANY_BYTE, Cost, Edges, KeyChoice, Linear, State
from espalier.grammar.ast import EMPTY, Literal, Node, alt

FEW = 4
"""Texts that are cheaper as one expression each."""
_START, _END = 0, 1


def one_of_texts(texts: Sequence[str], others: Iterable[Node] = ()) -> list[Node | Linear]:
    """One of these texts, which differ, or of these expressions."""
    if len(texts) <= FEW:
        return [alt(*[Literal(text) if text else EMPTY for text in texts], *others)]
    apart = [*([EMPTY] if "" in texts else ()), *others]
    return [TextKeys(text for text in texts if text), *([alt(*apart)] if apart else ())]


class TextKeys:
    """A `KeyedLinear` of texts, none of them empty, after which nothing comes."""

    last = ANY_BYTE

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted(text.encode() for text in texts)
        self._choice = KeyChoice(before=EMPTY, keys=tuple(range(len(self.texts))), place=None)

    @property
    def start(self) -> State:
        return _START

    def edges(self, state: State) -> Edges:
        return [(Literal(text.decode()), _END) for text in self.texts] if state == _START else []

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        return (), self._choice if state == _START else None

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        return EMPTY, _END

    def final(self, state: State) -> bool:
        return state == _END

    def least(self, cost: Cost) -> Callable[[State], int]:
        shortest = min(map(len, self.texts))
        return lambda state: shortest if state == _START else 0

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        return lambda key, place: len(self.texts[key])
