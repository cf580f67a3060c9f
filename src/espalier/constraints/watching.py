"""What follows a text beside its automaton where that is not enough: arrays whose items must differ.

`unique/` has the trackers; this module says what they answer, and which automata and machines need one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.masks.machine import Machine

Seen: TypeAlias = tuple[frozenset[Hashable], ...]
"""A persistent set in parts of falling size: adding to it merges only the small parts, and old versions stay valid."""


class RepeatedItem(NamedTuple):
    """A repeated item. item: as written. offset: in the data, of the byte that ends it. pointer: the array's. is_name:
    it is a repeated name of an object instead. items: how many are remembered in all that is open."""

    item: bytes
    offset: int
    pointer: str
    is_name: bool = False
    items: int = 0


class OpenString(NamedTuple):
    """The open string of a watched item: `begun` is written of it. rivals: the earlier strings that start with it."""

    begun: bytes
    rivals: frozenset[bytes]


class OpenItem(NamedTuple):
    """The item of the innermost open array with unique items."""

    #: Where it begins in the text: tells it from the items before and after.
    begin: int
    #: How many of its own brackets are open; 0 where it has none, or has not begun. Then the same of the items of the
    #: arrays with unique items around.
    levels: tuple[int, ...]
    in_string: bool
    #: After a backslash in a string.
    is_escaped: bool


class ItemsTracker(Protocol):
    """Follows texts as far as a search for completions that repeat nothing asks. Points are opaque, immutable
    values."""

    def feed(self, point: Hashable, data: bytes) -> Hashable | RepeatedItem:
        """The point after more text, or the first repeated item."""
        ...

    def in_string(self, point: Hashable) -> bool:
        """Whether a JSON string is open."""
        ...

    def is_idle(self, point: Hashable) -> bool:
        """Whether no choice of the next bytes matters to any item, up to the end of what is open."""
        ...

    def count(self, point: Hashable) -> int:
        """How many items are remembered."""
        ...

    def is_fresh(self, point: Hashable) -> bool:
        """Whether an item of an array with unique items is about to begin, and what is open can be completed whatever
        the items before are."""
        ...

    def listed(self, point: Hashable) -> Sequence[bytes]:
        """Texts that may be the item of an array with unique items that is about to begin, where they are few."""
        ...


class Tracker(ItemsTracker, Protocol):
    """Follows the texts of one constraint."""

    @property
    def is_nested(self) -> bool:
        """Whether an array with unique items may be inside an item of another."""
        ...

    @property
    def start(self) -> Hashable: ...

    def is_watching(self, point: Hashable) -> bool:
        """Whether an array with unique items is open."""
        ...

    def open_string(self, point: Hashable) -> OpenString | None:
        """What is known of the open string of a watched item; None where none is open."""
        ...

    def open_item(self, point: Hashable) -> OpenItem | None:
        """The item that is open or about to begin; None outside of arrays with unique items, and where names of objects
        must differ as well."""
        ...

    def begun_item(self, point: Hashable, level: int) -> tuple[bytes, Seen]:
        """The open item at a level of `open_item`, as far as it is written, nothing if it has ended; and the keys of
        those before it in its array, see `unique/values.py`."""
        ...

    def differs(self, point: Hashable) -> bool:
        """Whether each open item is known to differ from those before it, whatever follows."""
        ...

    def open_number(self, point: Hashable) -> bytes:
        """What is written of the open number of an open item; empty if none is open."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLanguage:
    """An automaton of texts, and the tracker without which some texts would repeat items of arrays with unique
    items."""

    automaton: Dfa | Network
    #: None where the automaton is enough.
    tracker: Tracker | None = None
    #: See `unique.matcher.CompiledUniqueItems`.
    is_easy: bool = False
    #: Every text is one JSON object or array, so its last bracket ends it.
    is_document: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMachine:
    """The same as a machine for one vocabulary."""

    machine: Machine
    tracker: Tracker | None = None
    is_easy: bool = False
