"""Fair queue: owners take turns; each owner's requests keep their order of arrival. Also shares out a round's tokens.

It knows no models and no plans, and it is not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar


class WaitingItem(Protocol):
    """An item that waits. number: increases in order of arrival."""

    @property
    def owner(self) -> str: ...
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=WaitingItem)


class FairQueue(Generic[T]):
    """First in, first out for each owner; owners take turns. count: how many items wait."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def add(self, item: T) -> None:
        self._queues.setdefault(item.owner, deque()).append(item)
        self.count += 1

    def remove(self, item: T) -> None:
        """Raises ValueError if the item is not in the queue."""
        queue = self._queues.get(item.owner)
        if queue is None:
            raise ValueError("this item is not in the queue")
        queue.remove(item)
        self.count -= 1
        if not queue:
            del self._queues[item.owner]

    def next(
        self,
        running: Mapping[str, int],
        may: Callable[[T], bool] | None = None,
        *,
        served: Mapping[str, int] = MappingProxyType({}),
    ) -> T | None:
        """The next item, which stays in the queue: the oldest first item among the owners with the fewest running
        items, and of these among those served least. may: which items may be next; None for all. served: what each
        owner has had so far, in any unit.

        No owner waits forever: once its running items end it has none, and its first item becomes the oldest.
        """
        queues = self._queues.values()
        heads = [item for queue in queues for item in islice(queue if may is None else filter(may, queue), 1)]
        if len(heads) < 2:
            return heads[0] if heads else None
        return min(heads, key=lambda item: (running.get(item.owner, 0), served.get(item.owner, 0), item.number))

    def has_place(self, owner: str, limit: int) -> bool:
        """Whether the owner may add an item. A full queue still accepts an owner that has less than its share, so
        an owner who floods the queue shuts out nobody else."""
        if self.count < limit:
            return True
        mine = len(self._queues.get(owner, ()))
        return mine * len(self._queues) < limit


def shares(budget: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Divide a budget among owners: equal shares, and what an owner does not need goes to the others."""
    portions: dict[str, int] = {}
    left = budget
    for count, (owner, want) in enumerate(sorted(wants.items(), key=lambda item: item[1])):
        portions[owner] = min(want, -(-left // (len(wants) - count)))  # rounded up: at least one owner always gets some
        left -= portions[owner]
    return portions
