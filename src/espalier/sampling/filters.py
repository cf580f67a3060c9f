"""LogitFilter: something that changes logits and remembers the sequence; FilterChain: several, in order.

Filters run on the model's logits before the mask's result is truncated. A finite change is a bias; -inf is a ban,
which shrinks the allowed set and is blamed on the filter. Filters know nothing about grammars.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from espalier.tokens.mask import Logits


class Priority(IntEnum):
    """High runs first; equals keep the order they were added in."""

    HIGH = 3
    NORMAL = 2
    LOW = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterContext:
    """What a filter may look at. step: tokens generated so far. prompt, generated: token ids."""

    step: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]


class LogitFilter(Protocol):
    """One filter of one sequence."""

    @property
    def name(self) -> str: ...

    @property
    def priority(self) -> Priority: ...

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """`(V,) float32` in, `(V,) float32` out; must not change its argument nor its own state."""
        ...

    def on_token(self, token: int) -> None:
        """A token was taken. The only call, with rollback, that changes the filter."""
        ...

    def rollback(self, count: int) -> None:
        """Undo the last `count` tokens."""
        ...

    def fork(self) -> LogitFilter:
        """An independent copy."""
        ...


class FilterChain:
    """Filters by priority, stable among equals. Forks and rolls back as one."""

    def __init__(self, filters: Iterable[LogitFilter] = ()) -> None:
        self._filters = sorted(filters, key=lambda f: -int(f.priority))  # sorted() is stable

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self._filters)

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        for one in self._filters:
            logits = one.apply(logits, context)
        return logits

    def on_token(self, token: int) -> None:
        for one in self._filters:
            one.on_token(token)

    def rollback(self, count: int) -> None:
        for one in self._filters:
            one.rollback(count)

    def fork(self) -> FilterChain:
        return FilterChain(one.fork() for one in self._filters)
