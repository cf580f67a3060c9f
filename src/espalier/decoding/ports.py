"""The model interface of decoding, `StepModel`, and the requests of strategies to it, `Need`. Engines implement it.

A strategy does no I/O: it is a generator that yields a `Need` and receives the logits. A driver carries the `Need` out
on a `StepModel`. Order of calls: `new` -> (`extend` | `fork` | `truncate`)* -> `free`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Literal, NamedTuple, NewType, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

SequenceId = NewType("SequenceId", int)
Rows: TypeAlias = NDArray[np.float32]  # (n, V)


class Extend(NamedTuple):
    """Append tokens to one sequence. logits: return them for the `last` token, for `all` tokens, or for `none`."""

    sequence: SequenceId
    tokens: tuple[int, ...]
    logits: Literal["last", "all", "none"] = "last"


class StepModel(Protocol):
    """A causal model with a KV cache of many sequences. Not thread-safe: one driver at a time."""

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
        """How many tokens all sequences together can hold; tokens that forks share count once."""
        ...

    @property
    def can_truncate(self) -> bool:
        """Whether `truncate` works (False for sliding-window and recurrent caches)."""
        ...

    def new(self) -> SequenceId:
        """An empty sequence. Raises LimitExceeded when no slot is left."""
        ...

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        """Run one forward pass over all of `work` (each sequence at most once; `tokens` not empty).

        Returns `(1, V)`, `(len(tokens), V)` or `(0, V)` float32 for each item, in order. The arrays are valid until the
        next call: copy them to keep them. Raises LimitExceeded if a sequence would outgrow `max_positions`, or all
        sequences together `capacity`; then no sequence has changed.
        """
        ...

    def length(self, sequence: SequenceId) -> int:
        """How many tokens a sequence holds."""
        ...

    def fork(self, sequence: SequenceId) -> SequenceId:
        """Copy a sequence. Raises LimitExceeded when no slot is left."""
        ...

    def truncate(self, sequence: SequenceId, length: int) -> None:
        """Drop every token from position `length` on. Raises ValueError for a longer length, CapabilityError where
        `can_truncate` is False."""
        ...

    def free(self, sequence: SequenceId) -> None:
        """Free the sequence. Its id must not be used again."""
        ...


Watch: TypeAlias = Any
"""Gets the hidden states of one run's sequences: a `CaptureTree` of `activations/capture/`. Drivers only pass it on."""


@runtime_checkable
class WatchedModel(StepModel, Protocol):
    """A StepModel that can hand out its hidden states. A fork of a watched sequence is watched too; what is truncated
    is taken back from the watch."""

    @property
    def watched_layers(self) -> int:
        """The number of layers; 0 where they cannot be watched."""
        ...

    @property
    def watched_sites(self) -> tuple[str, ...]:
        """The sites that can be watched."""
        ...

    def watch(self, sequence: SequenceId, watch: Watch | None) -> None:
        """Watch an empty sequence; with None, watch a sequence no longer."""
        ...


def opened(model: StepModel, watch: Watch | None) -> SequenceId:
    """A new sequence, watched where `watch` is given. Raises LimitExceeded."""
    sequence = model.new()
    if watch is not None:
        if not isinstance(model, WatchedModel):
            raise AssertionError("a run is watched on a model that cannot be")
        model.watch(sequence, watch)
    return sequence


class Append(NamedTuple):
    """Tokens to append to one branch. `branch` is the strategy's own number of a sequence; 0 holds the prompt.

    optional: how many of the last tokens a driver may leave out where a pass has no room for them; their rows are then
    missing."""

    branch: int
    tokens: tuple[int, ...]
    logits: Literal["last", "all", "none"] = "last"
    optional: int = 0


class Need(NamedTuple):
    """The next request of a strategy. Order: frees, forks (from, new), truncations (branch, length), then all appends
    in one forward pass. The driver sends back `{branch: (n, V) rows}` for the appends.

    A branch that is forked or made by this Need is freed after the forks and truncations. Every other branch is freed
    before them, so that its slot and its number can be reused at once."""

    append: tuple[Append, ...] = ()
    fork: tuple[tuple[int, int], ...] = ()
    truncate: tuple[tuple[int, int], ...] = ()
    free: tuple[int, ...] = ()

    def frees(self, held: Container[int]) -> tuple[list[int], list[int]]:
        """The branches to free before the forks, and those to free after the truncations. held: the existing ones."""
        sources = {source for source, _ in self.fork}
        early = [branch for branch in self.free if branch in held and branch not in sources]
        return early, [branch for branch in self.free if branch not in early]


Answer: TypeAlias = dict[int, Rows]
