"""Caches of bounded size: the newest values by their bytes, and what a function answers. Thread-safe. They do not know
what they hold."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRY_BYTES = 200
"""The bytes of an entry beside its value: the key's slot, the order, the tuple."""


class ByteCache(Generic[Key, Value]):
    """Values by key, at most `limit` bytes by the sizes given to `put`. The newest value is always kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            entry = self._values.get(key)
            if entry is None:
                return None
            self._values.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        size += ENTRY_BYTES
        with self._lock:
            old = self._values.pop(key, None)
            self._size += size - (old[1] if old else 0)
            self._values[key] = (value, size)
            while self._size > self.limit and len(self._values) > 1:
                _, (_, gone) = self._values.popitem(last=False)
                self._size -= gone

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._size = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """Bytes held, by the sizes given to `put`."""
        return self._size


class AnswerCache(Generic[Key, Value]):
    """What a function answers for each key. A lookup takes no lock and keeps no order: all answers are forgotten at
    once where they come to weigh more than `limit`. weigh: of a key and its answer; 1 where it is left out."""

    def __init__(
        self, answer: Callable[[Key], Value], limit: int, weigh: Callable[[Key, Value], int] = lambda key, value: 1
    ) -> None:
        self._answer, self._limit, self._weigh = answer, limit, weigh
        self._answers: dict[Key, Value] = {}
        self._weight = 0

    def __call__(self, key: Key) -> Value:
        try:
            return self._answers[key]
        except KeyError:
            value = self._answer(key)
        weight = self._weigh(key, value)
        self._weight += weight
        if self._weight > self._limit:
            self._answers, self._weight = {}, weight
        self._answers[key] = value
        return value
