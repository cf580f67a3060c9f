"""Who goes next, where several owners want the same: waiting requests, and the tokens of a round.

It knows neither models nor plans, and it is not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """What waits. number: ever larger, in order of arrival."""

    @property
    def owner(self) -> str: ...
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Owned)


class FairQueue(Generic[T]):
    """First in, first out within one owner; owners take turns."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def add(self, one: T) -> None:
        self._queues.setdefault(one.owner, deque()).append(one)
        self._count += 1

    def remove(self, one: T) -> None:
        """Raises ValueError where it does not wait."""
        queue = self._queues.get(one.owner)
        if queue is None:
            raise ValueError("this does not wait")
        queue.remove(one)
        self._count -= 1
        if not queue:
            del self._queues[one.owner]

    def next(self, running: Mapping[str, int]) -> T | None:
        """Who goes next: of the owners with the fewest running, the one whose first has waited longest. It stays.

        Nobody waits for ever: an owner whose running ones end has none, and then its first is the oldest in the end.
        """
        heads = (queue[0] for queue in self._queues.values())
        return min(heads, key=lambda one: (running.get(one.owner, 0), one.number), default=None)

    def has_place(self, owner: str, limit: int) -> bool:
        """Whether one more may wait. A full queue still takes an owner that has less than its share of it: who floods
        the queue shuts out nobody but himself."""
        if self._count < limit:
            return True
        mine = len(self._queues.get(owner, ()))
        return mine * (len(self._queues) + (mine == 0)) < limit


def shares(budget: int, wants: Mapping[str, int]) -> dict[str, int]:
    """A budget divided among owners: equally, and what one does not want goes to the others."""
    given: dict[str, int] = {}
    left = budget
    for count, (owner, want) in enumerate(sorted(wants.items(), key=lambda item: item[1])):
        given[owner] = min(want, -(-left // (len(wants) - count)))  # rounded up: somebody always goes on
        left -= given[owner]
    return given
