"""One state or frame of the pushdown automaton: a set of stacks, which `stacks.py` makes and moves to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Items: TypeAlias = "tuple[tuple[int, Stacks], ...]"


class Stacks:
    """A set of stacks. items: (top position, set below), by ascending position. accepting: it holds the empty stack.
    least: the least number of bytes and tokens that lead to acceptance.

    closed, steps, moves, groups: caches of the automaton, which can be dropped at any time. frames: by position, the
    interned set of that position on top of this set.
    """

    __slots__ = ("accepting", "closed", "frames", "groups", "items", "least", "moves", "steps")

    def __init__(self, items: Items, accepting: bool, least: int) -> None:
        self.items = items
        self.accepting = accepting
        self.least = least
        self.closed: Stacks | None = None
        self.steps: dict[int, Stacks | None] | None = None
        self.moves: dict[int, Stacks] | None = None
        self.groups: tuple[tuple[Stacks, Stacks], ...] | None = None
        self.frames: dict[int, Stacks] | None = None

    def forget(self) -> None:
        self.closed = self.groups = self.steps = self.moves = self.frames = None


@dataclass(frozen=True, slots=True)
class FrameOutline:
    """The state of the frame of one position, whatever set lies below. items: (top position, positions pushed between
    it and the set below, lowest first). accepting: the state of the set below belongs to it too. holds: such an outline
    exists for the position."""

    items: tuple[tuple[int, tuple[int, ...]], ...]
    accepting: bool
    holds: bool


def pair(stacks: Stacks, other: Stacks) -> tuple[Stacks, Stacks]:
    """Two sets in the one order in which their union is remembered."""
    return (stacks, other) if id(stacks) < id(other) else (other, stacks)
