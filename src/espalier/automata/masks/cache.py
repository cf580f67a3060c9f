"""An LRU cache bounded by bytes. Thread-safe. It does not know what it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
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
