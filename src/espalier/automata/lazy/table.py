"""The plainest of the automata of `linear.py`: all its states are numbers, in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from espalier.automata.lazy.linear import Cost, Edges, State, nearest
from espalier.grammar.ast import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A `Linear` whose states are numbers, all known. rows[s]: (expression to read, next state). ends[s]: whether a
    text may end in s."""

    rows: Sequence[Sequence[tuple[Node, int]]]
    ends: Sequence[bool]
    start: int = 0

    def edges(self, state: State) -> Edges:
        return self.rows[_number(state)]

    def final(self, state: State) -> bool:
        return self.ends[_number(state)]

    def least(self, cost: Cost) -> Callable[[State], int]:
        return nearest(self, cost)


def _number(state: State) -> int:
    if not isinstance(state, int):
        raise TypeError(f"{state!r} is no state of a table")
    return state
