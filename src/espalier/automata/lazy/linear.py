"""Automata whose edges are expressions, explored on demand.

    0 -"["-> 2, 2 -item-> 3, 3 -("," item)-> 3, 3 -"]"-> 1      "[" item ("," item)* "]"

Objects and arrays are described by such automata once, for the matcher, which explores what its text reaches, and for
the GBNF exporter, which explores everything. It does not know schemas or characters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias

from espalier.grammar.ast import Node
from espalier.time_limit import check as check_time

ENDLESS = 1 << 200
"""The cost of what cannot be finished. Sums of it stay above it; compare with `>=`."""
MOST = 1 << 60
"""The cost of a rule whose shortest text is longer than that: far too long to be written, but not without end."""

ANY_BYTE = 256
"""See `KeyedLinear`."""

State: TypeAlias = Hashable
Edges: TypeAlias = Sequence[tuple[Node, State]]
Cost: TypeAlias = Callable[[Node], int]
"""The least number of bytes that an expression reads, 0 for EMPTY, at least ENDLESS for one that matches nothing."""


class Linear(Protocol):
    """An automaton that is explored as it is walked: an exporter explores all of it, a matcher only what its text
    reaches. An expression may match the empty text, but not all those of a cycle."""

    @property
    def start(self) -> State: ...

    def edges(self, state: State) -> Edges:
        """The expressions that can be read in a state, each with the next state. The same answer each time."""
        ...

    def final(self, state: State) -> bool:
        """Whether a text may end here."""
        ...

    def least(self, cost: Cost) -> Callable[[State], int]:
        """The least number of bytes from a state to the end, at least ENDLESS where there is no way. It is exact, and
        found without exploring what is large."""
        ...


def nearest(automaton: Linear, cost: Cost) -> Callable[[State], int]:
    """`least` for an automaton that is small enough to be explored as a whole."""
    before: dict[State, list[tuple[Node, State]]] = {automaton.start: []}
    order = [automaton.start]
    for state in order:  # grows as states are met
        check_time()
        for label, target in automaton.edges(state):
            if target not in before:
                before[target] = []
                order.append(target)
            before[target].append((label, state))
    place = {state: i for i, state in enumerate(order)}
    distances: dict[State, int] = {}
    heap = [(0, place[state]) for state in order if automaton.final(state)]
    while heap:
        check_time()
        far, at = heappop(heap)
        state = order[at]
        if state in distances:
            continue
        distances[state] = far
        for label, other in before[state]:
            if other not in distances and (total := far + cost(label)) < ENDLESS:
                heappush(heap, (total, place[other]))
    return lambda state: distances.get(state, ENDLESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChoice:
    """One of many keys, read byte by byte instead of as one expression each. before: what comes before the key. keys:
    the numbers of those that can be written, ascending. place: what the rest depends on, besides the key."""

    before: Node
    keys: tuple[int, ...]
    place: Hashable


class KeyedLinear(Linear, Protocol):
    """A `Linear` with a choice of keys. texts: the keys without their last byte, sorted, all different and none empty.
    last: the byte that ends each key, with which begins what follows it; a text may be the beginning of another one.
    ANY_BYTE where the texts are whole, and anything or nothing follows them."""

    @property
    def texts(self) -> Sequence[bytes]: ...

    @property
    def last(self) -> int: ...

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        """Instead of `edges`: the expressions that can be read, and the keys."""
        ...

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        """What follows a key's text, its last byte included, and the next state."""
        ...

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        """The least number of bytes of a key and all that follows it, given its number and the place."""
        ...


def as_keyed(automaton: Linear) -> KeyedLinear | None:
    """The automaton, if it has a choice of keys."""
    return automaton if hasattr(automaton, "explore") else None  # type: ignore[return-value]  # cheaper than isinstance


class LinearCosts:
    """A `Linear` automaton with the costs that are known of it. packed: its keys as whoever makes masks lays them out,
    None before that."""

    __slots__ = ("_costs", "_key_costs", "keyed", "least", "linear", "packed")

    def __init__(self, linear: Linear, cost: Cost) -> None:
        self.linear = linear
        self.keyed = as_keyed(linear)
        self.least: Callable[[State], int] = linear.least(cost)
        self._key_costs = None if self.keyed is None else self.keyed.key_costs(cost)
        self._costs: dict[Hashable, list[int]] = {}
        self.packed: Any = None

    def costs(self, place: Hashable) -> list[int]:
        """For each key the least number of bytes of it and all that follows it."""
        costs = self._costs.get(place)
        if costs is None:
            assert self.keyed is not None
            assert self._key_costs is not None
            costs = self._costs[place] = [self._key_costs(key, place) for key in range(len(self.keyed.texts))]
        return costs

    def forget(self) -> None:
        """Drop the costs of keys, which are worked out again when they are asked for."""
        self._costs = {}
