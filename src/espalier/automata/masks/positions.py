"""What stacks and machines ask of a network: the positions of its rules, and what can be read and called at each.

`languages/network.py` knows every position from the start; `lazy/network.py` meets one when a walk first needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import Targets
from espalier.automata.languages.nfa import ByteSet
from espalier.grammar.ast import TokenRef


class PositionNetwork(Protocol):
    """A pushdown automaton as the positions of its rules. Bytes that no position tells apart are one letter.

    The lists have an entry for each position; those of one that was not met are empty until `meet`, `follow_calls` or
    `edges` asks for them. No method raises, but for LimitExceeded where a network grows past its bound.
    """

    @property
    def classes(self) -> NDArray[np.uint8]:
        """The letter of each byte, `(256,) uint8`."""
        ...

    @property
    def refs(self) -> tuple[TokenRef, ...]:
        """The token references that `tokens` counts."""
        ...

    @property
    def start(self) -> int:
        """The first position of the start rule."""
        ...

    @property
    def calls(self) -> list[tuple[tuple[int, int], ...]]:
        """By position: (first position of the called rule, position to return to)."""
        ...

    @property
    def tokens(self) -> list[tuple[tuple[int, Targets], ...]]:
        """By position: (number of a token reference, positions after it)."""
        ...

    @property
    def moves(self) -> list[tuple[Targets, ...]]:
        """The sets of positions that a letter leads to."""
        ...

    @property
    def final(self) -> list[bool]:
        """The rule may end here."""
        ...

    @property
    def pure(self) -> list[bool]:
        """The rule ends here and nothing can be read, so a call need not return here."""
        ...

    @property
    def least(self) -> list[int]:
        """The least number of bytes and tokens that finish the rule."""
        ...

    @property
    def live(self) -> list[bool]:
        """A byte or a token is read at this very position."""
        ...

    @property
    def plain(self) -> list[bool]:
        """Something is read here, no rule is called, and the rule cannot end."""
        ...

    @property
    def letters(self) -> int:
        """The number of letters."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether `forget` is due."""
        ...

    def edges(self, position: int) -> Iterable[tuple[ByteSet, Targets]]:
        """The disjoint sets of letters that can be read, each with the positions after them."""
        ...

    def move(self, position: int, letter: int) -> Targets:
        """The positions after a letter, () where it cannot be read."""
        ...

    def read(self, position: int, data: bytes, at: int) -> list[tuple[Targets, int]]:
        """The positions after bytes of `data` from `at` on, and where in `data` they stand: not past a position at
        which the rule may end or others are called. Empty where the bytes cannot be read."""
        ...

    def reads(self, position: int) -> ByteSet:
        """The bytes that can be read."""
        ...

    def needed_bytes(self) -> bytes:
        """Every byte that some position may read."""
        ...

    def meet(self, position: int) -> None:
        """Make the entries of a position true, and those of all that its calls lead to."""
        ...

    def follow_calls(self, position: int) -> None:
        """The same for a position that is pushed on a stack, if it calls anything."""
        ...

    def forget(self, used: set[int]) -> None:
        """Drop all positions but these. Not while someone walks."""
        ...
