"""What decoding needs from a model, and how a strategy says so. Owned by decoding, implemented by engines.

A strategy does no I/O: it is a generator that yields a `Need` and is sent the logits. A driver carries it out on a
`StepModel`. Order of calls: `new` -> (`extend` | `fork` | `truncate`)* -> `free`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

SequenceId = NewType("SequenceId", int)
Rows: TypeAlias = NDArray[np.float32]  # (n, V)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Append tokens to one sequence. logits: after the `last` token, after `all` of them, or `none`."""

    sequence: SequenceId
    tokens: tuple[int, ...]
    logits: Literal["last", "all", "none"] = "last"


class StepModel(Protocol):
    """A causal model with its cache, many sequences at once. Not thread-safe: one driver at a time."""

    @property
    def width(self) -> int:
        """V, the number of logits."""
        ...

    @property
    def max_positions(self) -> int:
        """How many tokens one sequence can hold."""
        ...

    @property
    def max_sequences(self) -> int:
        """How many sequences can be held at once."""
        ...

    @property
    def capacity(self) -> int:
        """How many tokens all sequences together can hold; what forks have in common counts once."""
        ...

    @property
    def can_truncate(self) -> bool:
        """Whether `truncate` works (False for sliding-window and recurrent caches)."""
        ...

    def new(self) -> SequenceId:
        """An empty sequence. Raises LimitExceeded when no slot is left."""
        ...

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        """Run one forward pass over all of `work` (a sequence occurs at most once; `tokens` not empty).

        Returns, per item in order, `(1, V)`, `(len(tokens), V)` or `(0, V)` float32. The arrays are valid until the
        next call: copy what is kept. Raises LimitExceeded if a sequence would outgrow `max_positions`, or all of them
        `capacity`; then no sequence has changed.
        """
        ...

    def length(self, sequence: SequenceId) -> int:
        """How many tokens a sequence holds."""
        ...

    def fork(self, sequence: SequenceId) -> SequenceId:
        """An independent copy of a sequence. Raises LimitExceeded when no slot is left."""
        ...

    def truncate(self, sequence: SequenceId, length: int) -> None:
        """Forget every token from `length` on. Raises ValueError, or CapabilityError where it cannot be done."""
        ...

    def free(self, sequence: SequenceId) -> None:
        """Give the sequence's memory back; its id must not be used again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One line of a Need. `branch` is the strategy's own number for a sequence (0 is the prompt's)."""

    branch: int
    tokens: tuple[int, ...]
    logits: Literal["last", "all", "none"] = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a strategy wants done next, in this order: frees, forks (from, new), truncations (branch, length), then
    appends, all in one forward pass. The driver sends back `{branch: (n, V) rows}` for the appends.

    A branch that is forked, or made, here is freed after the forks and truncations; every other before them, so that
    its place and its number can be given again at once."""

    append: tuple[Append, ...] = ()
    fork: tuple[tuple[int, int], ...] = ()
    truncate: tuple[tuple[int, int], ...] = ()
    free: tuple[int, ...] = ()

    def frees(self, held: Container[int]) -> tuple[list[int], list[int]]:
        """What to free before the forks, and after the truncations. held: the branches there are."""
        sources = {source for source, _ in self.fork}
        early = [branch for branch in self.free if branch in held and branch not in sources]
        return early, [branch for branch in self.free if branch not in early]


Answer: TypeAlias = dict[int, Rows]


def answered(answer: Answer | None) -> Answer:
    """The answer to a Need. A driver sends None only in reply to what needs no answer."""
    if answer is None:
        raise AssertionError("the driver must answer a Need")
    return answer
