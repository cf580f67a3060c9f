"""The compiled specs of one vocabulary, kept for the owner they were compiled for alone, and a ceiling on their bytes.

How long a compilation takes tells no owner what another one has asked for, and no owner's specs displace another's.
Under a ceiling, half of it is for what is kept: past that the owner with the most bytes loses those used longest ago.
What was dropped counts as garbage until it is free. While both together are above the ceiling, the owner who holds the
most may have nothing new compiled, and the others may. It does not know how specs are compiled.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from espalier.errors import TooManyRequests

if TYPE_CHECKING:
    from espalier.constraints.base import Compiled

CACHE_LIMIT = 16  # compiled specs kept for each owner and vocabulary, least recently used dropped
CACHE_LIMIT_OF_ALL = 64  # of all owners together; whoever has the most loses one
OBJECTS_EACH_TIME = 50_000
"""Objects of one spec that are looked at when it is measured again; one of so many times more has its turn that much
more seldom."""
MOST_OBJECTS = 4_000_000
"""Objects that are looked at for the size of one spec, hundreds of megabytes; a larger one counts as what was seen."""
RETRY_SECONDS = 5.0
"""After which garbage has been collected, while the server looks for it every few seconds."""
OUTSIDE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, type(lru_cache(int)))
"""What leads to the whole program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintBytes:
    """kept: of compiled specs that are found again. garbage: of those that were dropped and are not yet free, since a
    text still goes on or since it takes a collection."""

    kept: int = 0
    garbage: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.garbage


@dataclass(slots=True, eq=False)
class _Entry:
    """bytes: when they were counted last; masks that are made since are counted at a later `measure`. turns: how many
    of these pass it over first."""

    compiled: Compiled
    bytes: int
    turns: int = 0
    is_measured: bool = True


@dataclass(slots=True, eq=False)
class _OwnerEntries:
    entries: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries.values())


class _Leftover(NamedTuple):
    """compiled: returns it until it is free."""

    owner: str
    bytes: int
    compiled: Callable[[], object | None]


def _reference(compiled: Compiled) -> Callable[[], object | None]:
    """Returns the object until it is free; one that takes no weak references counts as there until all garbage was
    collected."""
    try:
        return weakref.ref(compiled)
    except TypeError:
        return object


class ConstraintCache:
    """Compiled specs by owner and key. shared: objects that are no spec's own, such as the vocabulary; what leads to
    them alone is not counted. Thread-safe."""

    def __init__(self, shared: tuple[Any, ...] = ()) -> None:
        self._shared = {id(part) for part in shared}
        self._owners: dict[str, _OwnerEntries] = {}
        self._pinned: dict[str, Compiled] = {}
        self._dropped: list[_Leftover] = []
        self._lock = threading.Lock()
        self.most_of_owner, self.most_of_all = CACHE_LIMIT, CACHE_LIMIT_OF_ALL
        self.ceiling: int | None = None
        """Bytes of what is kept and of garbage together; None measures nothing and refuses nobody."""

    def share(self, part: object) -> None:
        """The part is no spec's own."""
        self._shared.add(id(part))

    def get(self, owner: str, key: str) -> Compiled | None:
        """The compiled spec, which is then the one used last."""
        with self._lock:
            if (pinned := self._pinned.get(key)) is not None:
                return pinned
            owned = self._owners.get(owner)
            entry = None if owned is None else owned.entries.get(key)
            if owned is None or entry is None:
                return None
            owned.entries.move_to_end(key)
            entry.is_measured = False
            return entry.compiled

    def has(self, owner: str, key: str) -> bool:
        """Whether `get` finds it now. It waits for no lock."""
        owned = self._owners.get(owner)
        return key in self._pinned or (owned is not None and key in owned.entries)

    def pin(self, key: str, compiled: Compiled) -> None:
        """Keep it for all owners, for good."""
        with self._lock:
            self._pinned[key] = compiled
            for owned in self._owners.values():
                owned.entries.pop(key, None)

    def put(self, owner: str, key: str, compiled: Compiled) -> None:
        """Keep it as the one used last, and drop what is over a limit."""
        size, objects = (0, 0) if self.ceiling is None else self._size(compiled)
        with self._lock:
            if key in self._pinned:
                return
            owned = self._owners.setdefault(owner, _OwnerEntries())
            owned.entries[key] = _Entry(compiled, size, objects // OBJECTS_EACH_TIME)
            owned.entries.move_to_end(key)
            if len(owned.entries) > self.most_of_owner:
                self._drop(owner)
            if sum(len(each.entries) for each in self._owners.values()) > self.most_of_all:
                self._drop(max(self._owners, key=lambda name: len(self._owners[name].entries)))
            self._lower()

    def check(self, owner: str) -> None:
        """Whether something new may be compiled for an owner. Raises TooManyRequests while what is held is above the
        ceiling, for the owner who holds the most of it."""
        if self.ceiling is None:
            return
        with self._lock:
            held = self._held()
            if held.total <= self.ceiling:
                return
            by_owner = self._by_owner()
            if by_owner[owner] < max(by_owner.values()):
                return
        raise TooManyRequests(
            f"the compiled constraints of this key hold {by_owner[owner] / 1e6:.0f} MB, the most of all keys, and all "
            f"of them {held.total / 1e6:.0f} MB, where {self.ceiling / 1e6:.0f} MB may be held",
            retry_after=RETRY_SECONDS,
            hint="send the same constraints again, or fewer different ones",
        )

    def measure(self) -> None:
        """Count the bytes of what was used since they were counted last, and drop what is over the ceiling."""
        if self.ceiling is None:
            return
        with self._lock:
            used = [
                entry for owned in self._owners.values() for entry in owned.entries.values() if not entry.is_measured
            ]
        for entry in used:  # not under the lock: it takes a millisecond each, of a large one a hundred
            if entry.turns:
                entry.turns -= 1
                continue
            entry.is_measured = True
            entry.bytes, objects = self._size(entry.compiled)
            entry.turns = objects // OBJECTS_EACH_TIME
        with self._lock:
            self._lower()

    @property
    def has_much_garbage(self) -> bool:
        """Whether garbage is over a quarter of the ceiling."""
        if self.ceiling is None:
            return False
        with self._lock:
            return self._garbage().total() > self.ceiling // 4

    def collected(self) -> None:
        """All garbage of the process was collected just now."""
        with self._lock:
            self._dropped.clear()

    def held(self) -> ConstraintBytes:
        """Bytes as they were counted last, 0 without a ceiling."""
        with self._lock:
            return self._held()

    def __len__(self) -> int:
        """How many specs are kept, those that are pinned too."""
        return len(self._pinned) + sum(len(owned.entries) for owned in self._owners.values())

    def _held(self) -> ConstraintBytes:
        kept = sum(owned.bytes for owned in self._owners.values())
        return ConstraintBytes(kept=kept, garbage=self._garbage().total())

    def _by_owner(self) -> Counter[str]:
        return self._garbage() + Counter({name: owned.bytes for name, owned in self._owners.items()})

    def _garbage(self) -> Counter[str]:
        """Bytes of what was dropped and is still there, by owner."""
        self._dropped = [each for each in self._dropped if each.compiled() is not None]
        garbage: Counter[str] = Counter()
        for each in self._dropped:
            garbage[each.owner] += each.bytes
        return garbage

    def _lower(self) -> None:
        """Drop what is over half of the ceiling, but the one used last of each owner."""
        if self.ceiling is None:
            return
        while self._held().kept > self.ceiling // 2:
            several: Mapping[str, _OwnerEntries] = {
                name: owned for name, owned in self._owners.items() if len(owned.entries) > 1
            }
            if not several:
                return
            self._drop(max(several, key=lambda name: several[name].bytes))

    def _drop(self, owner: str) -> None:
        entries = self._owners[owner].entries
        _, entry = entries.popitem(last=False)
        if self.ceiling is not None:
            self._dropped.append(_Leftover(owner, entry.bytes, _reference(entry.compiled)))
        if not entries:
            del self._owners[owner]

    def _size(self, compiled: Compiled) -> tuple[int, int]:
        """Bytes of the objects and arrays that belong to one spec, and how many these are. What says `is_shared`
        belongs to none."""
        seen, todo, size = set(self._shared), deque[Any]([compiled]), 0
        while todo and len(seen) < MOST_OBJECTS:
            thing = todo.popleft()
            if id(thing) in seen or isinstance(thing, OUTSIDE) or getattr(thing, "is_shared", False) is True:
                continue
            seen.add(id(thing))
            size += sys.getsizeof(thing)
            todo.extend(gc.get_referents(thing))
        return size, len(seen) - len(self._shared)
