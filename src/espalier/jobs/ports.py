"""What the worker asks of a queue and of an executor. The queue blocks; the executor runs on the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from espalier.jobs.values import InputFault, ItemAnswer, ItemEnd, Lease, WorkItem


class Queue(Protocol):
    """Items of all batches, shared by any number of workers. Every method is one transaction, so that a worker that
    dies between two has lost nothing but its leases. Raises OutputError and Unavailable."""

    def claim(self, worker: str, limit: int, *, alone: bool) -> Sequence[WorkItem]:
        """Take up to `limit` items under new leases, the highest priority and the oldest batch first. Items with which
        workers have died are given out only to a worker that has nothing else (alone), one at a time."""
        ...

    def renew(self, worker: str, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Renew the leases of this worker, and return those that it must drop: lost, paused, cancelled, expired."""
        ...

    def record(self, worker: str, ended: Sequence[ItemEnd]) -> Sequence[Lease]:
        """Append the results, and mark their items in the same transaction. Returns the leases that held; a stale one
        changes nothing."""
        ...

    def release(self, worker: str, leases: Sequence[Lease]) -> None:
        """Give items back untried. A stale lease changes nothing."""
        ...

    def lose(self, worker: str, leases: Sequence[Lease]) -> None:
        """Give back items whose process has died, as if their leases had ended. A stale lease changes nothing."""
        ...

    def tend(self, worker: str) -> bool:
        """Move on what time moves: leases that ended, windows that ended, batches without open items. Returns whether
        any batch is open."""
        ...

    def validate(self, worker: str, executor: Checker) -> bool:
        """Read and check the input of one new batch, if there is one that no other worker reads."""
        ...


class Checker(Protocol):
    def check(self, endpoint: str, body: Mapping[str, Any], options: Mapping[str, Any], kind: str) -> ItemAnswer | None:
        """The error that this body would be answered with before anything is generated; None for none. From any
        thread."""
        ...

    def check_job(self, endpoint: str, options: Mapping[str, Any], kind: str) -> InputFault | None:
        """What is wrong with a batch whatever its lines say."""
        ...


class Executor(Checker, Protocol):
    async def execute(self, item: WorkItem) -> ItemAnswer:
        """Run one item; what is wrong with it is in the answer. Cancelling it stops within a step. Raises
        Overloaded and Unavailable where it could not begin, ReplicaLost where the process died that ran it."""
        ...
