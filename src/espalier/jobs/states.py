"""The states of batches and of their items, and which may follow which: two tables. It changes nothing.

A batch's states are OpenAI's. An item waits (`pending`), is held by one worker (`running`), and ends once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class BatchState(StrEnum):
    VALIDATING = "validating"  #: the lines of the input are read and checked
    FAILED = "failed"  #: the input was refused; nothing has run
    IN_PROGRESS = "in_progress"  #: items run
    FINALIZING = "finalizing"  #: every item has ended; the results are being summed up
    COMPLETED = "completed"  #: the results can be fetched
    EXPIRED = "expired"  #: the window ended first; what was finished can be fetched
    CANCELLING = "cancelling"  #: running items are being stopped
    CANCELLED = "cancelled"  #: what was finished can be fetched


class ItemState(StrEnum):
    PENDING = "pending"  #: waits, or waits again
    RUNNING = "running"  #: a worker has it, until its lease ends
    DONE = "done"  #: it has its one result
    FAILED = "failed"  #: its one result is an error
    POISON = "poison"  #: workers died while they ran it: set aside, with an error as its result
    CANCELLED = "cancelled"  #: it was stopped, or never begun
    EXPIRED = "expired"  #: as cancelled, by the end of the window


BATCH_MOVES: Mapping[BatchState, frozenset[BatchState]] = MappingProxyType(
    {
        BatchState.VALIDATING: frozenset({BatchState.IN_PROGRESS, BatchState.FAILED, BatchState.CANCELLED}),
        BatchState.IN_PROGRESS: frozenset({BatchState.FINALIZING, BatchState.CANCELLING, BatchState.EXPIRED}),
        BatchState.FINALIZING: frozenset({BatchState.COMPLETED}),
        BatchState.CANCELLING: frozenset({BatchState.CANCELLED}),
        BatchState.FAILED: frozenset(),
        BatchState.COMPLETED: frozenset(),
        BatchState.EXPIRED: frozenset(),
        BatchState.CANCELLED: frozenset(),
    }
)
"""An end has no move."""

ITEM_MOVES: Mapping[ItemState, frozenset[ItemState]] = MappingProxyType(
    {
        ItemState.PENDING: frozenset({ItemState.RUNNING, ItemState.CANCELLED, ItemState.EXPIRED}),
        ItemState.RUNNING: frozenset(set(ItemState) - {ItemState.RUNNING}),
        ItemState.DONE: frozenset(),
        ItemState.FAILED: frozenset(),
        ItemState.POISON: frozenset(),
        ItemState.CANCELLED: frozenset(),
        ItemState.EXPIRED: frozenset(),
    }
)

OPEN_BATCHES = frozenset(state for state, following in BATCH_MOVES.items() if following)
OPEN_ITEMS = frozenset(state for state, following in ITEM_MOVES.items() if following)
FAILED_ITEMS = frozenset({ItemState.FAILED, ItemState.POISON})
"""What `request_counts.failed` counts."""
