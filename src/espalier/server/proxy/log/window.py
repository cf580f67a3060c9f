"""The latest events of a rejection log while it is written, and where each task begins and ends in it."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from espalier.trace.foreign.follow import LogFollower, News
from espalier.trace.foreign.tasks import TaskKey, Tasks

MOST_EVENTS = 20_000
"""Events that are remembered for requests that run."""


class EventSpan(NamedTuple):
    """first, last: the places of a task's first and last event, counted from the start of the proxy."""

    first: int
    last: int


class Window:
    """The latest events of a log, by how many came before. Calls may come from several threads."""

    def __init__(self, follower: LogFollower) -> None:
        self.path = follower.path
        self._follower = follower
        self._tasks = Tasks()
        self._events: deque[tuple[TaskKey, Mapping[str, Any]]] = deque(maxlen=MOST_EVENTS)
        self._spans: OrderedDict[TaskKey, EventSpan] = OrderedDict()
        self._count = 0
        self._files = 0
        self._is_begun = self._has_grown = False
        self._news = News()
        self._is_closed = False
        self._lock = threading.Lock()

    def poll(self) -> int:
        """Read what is new, and return how many events there were so far. Raises what `LogFollower.poll` raises."""
        with self._lock:
            if self._is_closed:  # a request that is cancelled as the proxy ends
                return self._count
            self._news = self._follower.poll()
            if self._news.files > self._files:  # a server that was started again counts its tasks from the start
                self._files, self._tasks = self._news.files, Tasks()
                self._spans.clear()
            self._has_grown = self._has_grown or (self._is_begun and bool(self._news.events))
            self._is_begun = True
            for event in self._news.events:
                key = self._tasks.key(event)
                if key is not None:
                    self._events.append((key, event))
                    first = self._spans.get(key, EventSpan(self._count, self._count)).first
                    self._spans[key] = EventSpan(first, self._count)
                    self._spans.move_to_end(key)
                    self._count += 1
            while len(self._spans) > MOST_EVENTS:
                self._spans.popitem(last=False)
            return self._count

    @property
    def count(self) -> int:
        """How many events there were so far."""
        return self._count

    @property
    def has_grown(self) -> bool:
        """Whether an event has come since the first poll: a server writes this log."""
        return self._has_grown

    @property
    def news(self) -> News:
        """What the last poll said."""
        return self._news

    def since(self, count: int) -> tuple[list[tuple[TaskKey, Mapping[str, Any]]], dict[TaskKey, EventSpan], bool]:
        """The events after the first `count`, the tasks that began with one of them, and whether none of the events is
        forgotten."""
        with self._lock:
            first = self._count - len(self._events)
            spans = {key: span for key, span in self._spans.items() if span.first >= count}
            return list(self._events)[max(0, count - first) :], spans, count >= first

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._follower.close()
