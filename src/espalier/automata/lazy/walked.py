"""An automaton that is being explored, with the costs of its states and keys that are known. It knows no items."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from espalier.automata.lazy.linear import Cost, Linear, State, as_keyed


class Walked:
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
