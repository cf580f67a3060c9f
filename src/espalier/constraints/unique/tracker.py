"""Follows a JSON text byte by byte and remembers the items of every array whose items must be unique.

It assumes that the text is a valid prefix of a document, which the automaton ensures. Points are immutable values. It
knows no tokens; `spots.py` says which arrays these are, `values.py` which items are equal.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from espalier.constraints.unique.earlier import NO_ITEMS, EarlierItems, differs_from_all, with_item
from espalier.constraints.unique.spots import Spots, is_nested
from espalier.constraints.unique.values import BLANK, added, keys
from espalier.constraints.watching import OpenItem, OpenString, RepeatedItem, Seen

OUTSIDE, KEY, STRING = range(3)
"""The mode of a point: outside strings, in a member's name, in another string."""
QUOTE, COMMA, COLON, ESCAPE = b'",:\\'
OPENS = b"[{"
STRUCTURE = re.compile(rb'["\[\]{},:]')
MARK = re.compile(rb'["\\]')
IN_NUMBER = b"-+.0123456789eE"
Chunks: TypeAlias = "tuple[Chunks, bytes] | None"
"""The parts of a text as a linked list, the last part first."""


class ItemFrame(NamedTuple):
    """An open container. spot: the index of its spot. unique: its items are remembered. named: its names are. watched:
    its own are, or those of a container around it. place: the number of items before, up to the last that the spot
    tells apart. begin: where the item begins in the recorded text. done: the item is remembered already. seen: the keys
    of its items so far, or its names. items: how many they are."""

    parent: ItemFrame | None
    spot: int
    is_array: bool
    unique: bool
    watched: bool
    place: int = 0
    begin: int = 0
    done: bool = False
    seen: Seen = ()
    items: int = 0
    named: bool = False
    #: Its remembered items by their parts.
    earlier: EarlierItems = NO_ITEMS
    #: Of what is directly inside, as of an `OpenItem`.
    levels: tuple[int, ...] = ()
    #: How many items are remembered in the containers around.
    around: int = 0


class ItemPosition(NamedTuple):
    """A position in a text. value: the spot of the next member's value. in_value: after a member's colon. escaped:
    after a backslash. text: what is recorded, from where the outermost watched array opens, or the open name outside of
    one; size: its bytes. string: where the open string begins in it. strings: all strings in it, without quotes."""

    frame: ItemFrame | None = None
    mode: int = OUTSIDE
    value: int = 0
    in_value: bool = False
    escaped: bool = False
    text: Chunks = None
    size: int = 0
    string: int = 0
    strings: tuple[frozenset[bytes], ...] = ()
    closed: bool = False


class DocumentTracker:
    """Follows one JSON document. spots: see `spots.py`."""

    def __init__(self, spots: Spots) -> None:
        self.spots = spots
        self.start = ItemPosition()
        self.is_nested = is_nested(spots)
        self._names_differ = any(spot.names_differ for spot in spots)

    def feed(self, point: Hashable, data: bytes) -> ItemPosition | RepeatedItem:
        assert isinstance(point, ItemPosition)
        after, _ = self.scan(point, data, 0)
        return after

    def is_watching(self, point: Hashable) -> bool:
        assert isinstance(point, ItemPosition)
        return point.frame is not None and point.frame.watched

    def in_string(self, point: Hashable) -> bool:
        assert isinstance(point, ItemPosition)
        return point.mode != OUTSIDE

    def is_idle(self, point: Hashable) -> bool:
        assert isinstance(point, ItemPosition)
        return point.mode == STRING and (point.frame is None or not point.frame.watched)

    def open_string(self, point: Hashable) -> OpenString | None:
        assert isinstance(point, ItemPosition)
        if point.mode == OUTSIDE or point.frame is None or not point.frame.watched:
            return None
        begun = cut(point.text, point.size, point.string)
        rivals = [text for some in point.strings for text in some if text.startswith(begun)]
        return OpenString(begun, frozenset(rivals))

    def open_item(self, point: Hashable) -> OpenItem | None:
        assert isinstance(point, ItemPosition)
        frame = point.frame
        if frame is None or not frame.levels or self._names_differ:
            return None
        levels = frame.levels
        while frame.parent is not None and not frame.unique:
            frame = frame.parent
        return OpenItem(frame.begin, levels, point.mode != OUTSIDE, point.escaped)

    def begun_item(self, point: Hashable, level: int) -> tuple[bytes, Seen]:
        assert isinstance(point, ItemPosition)
        frame = point.frame
        while frame is not None and (level or not frame.unique):
            level -= frame.unique
            frame = frame.parent
        assert frame is not None, "`open_item` has no such level"
        return b"" if frame.done else cut(point.text, point.size, frame.begin).lstrip(BLANK), frame.seen

    def differs(self, point: Hashable) -> bool:
        assert isinstance(point, ItemPosition)
        frame = point.frame
        while frame is not None:
            if frame.unique and frame.items and not frame.done:
                begun = cut(point.text, point.size, frame.begin)
                declared = self.spots[self.spots[frame.spot].items[frame.place]].names
                if not differs_from_all(begun, frame.earlier, declared):
                    return False
            frame = frame.parent
        return True

    def open_number(self, point: Hashable) -> bytes:
        assert isinstance(point, ItemPosition)
        number, text = b"", point.text if point.mode == OUTSIDE else None
        while text is not None:
            text, part = text
            digits = trailing_number(part)
            number = digits + number
            if len(digits) < len(part):
                break
        return number

    def count(self, point: Hashable) -> int:
        assert isinstance(point, ItemPosition)
        return _count(point.frame)

    def is_fresh(self, point: Hashable) -> bool:
        assert isinstance(point, ItemPosition)
        frame = begun_array(point)
        fresh = () if frame is None else self.spots[frame.spot].fresh
        return frame is not None and bool(fresh) and fresh[frame.place]

    def listed(self, point: Hashable) -> Sequence[bytes]:
        assert isinstance(point, ItemPosition)
        frame = begun_array(point)
        listed = () if frame is None else self.spots[frame.spot].listed
        return listed[frame.place] if frame is not None and listed else ()

    def scan(self, point: ItemPosition, data: bytes, at: int) -> tuple[ItemPosition | RepeatedItem, int]:
        """The point after the data from offset `at` on, and the offset where it stopped: behind the bracket that closes
        the document, or the end. A repeated item instead of a point."""
        spots = self.spots
        frame, mode, value, in_value, escaped, text, size, string, strings, _ = point
        records = (frame is not None and frame.watched) or mode == KEY
        since, end = at, len(data)  # what is recorded of the data begins at `since`
        closed = False
        if not escaped and (STRUCTURE if mode == OUTSIDE else MARK).search(data, at) is None:  # as most tokens
            if records and at < end:
                text, size = (text, data[at:]), size + end - at
            return ItemPosition(frame, mode, value, in_value, False, text, size, string, strings, closed), end

        def recorded(begin: int, stop: int) -> bytes:
            """The recorded text from one of its offsets up to an offset of the data."""
            if begin >= size:
                return data[since + begin - size : stop]
            return cut(text, size, begin) + data[since:stop]

        def remember(item: bytes, offset: int) -> RepeatedItem | None:
            """Remember an item of the frame, unless it is there already."""
            nonlocal frame
            assert frame is not None
            item_keys = keys(item)
            if any(key in some for key in item_keys for some in frame.seen):
                return RepeatedItem(item, offset, spots[frame.spot].pointer, items=_count(frame))
            seen = added(frame.seen, frozenset(item_keys))
            frame = frame._replace(seen=seen, done=True, items=frame.items + 1, earlier=with_item(frame.earlier, item))
            return None

        while at < end and not closed:
            if mode != OUTSIDE:
                end_mark = MARK.search(data, min(at + escaped, end))
                at = end if end_mark is None else end_mark.end()
                escaped = end_mark is not None and data[end_mark.start()] == ESCAPE
                if end_mark is None or escaped:
                    continue
                if mode == KEY:
                    assert frame is not None
                    spot = spots[frame.spot]
                    name = recorded(string, at - 1)
                    value = spot.names.get(name, spot.other)
                    if frame.named:
                        if any(name in some for some in frame.seen):
                            return RepeatedItem(name, at - 1, spot.pointer, is_name=True, items=_count(frame)), at
                        frame = frame._replace(seen=added(frame.seen, frozenset((name,))), items=frame.items + 1)
                if frame is not None and frame.watched:
                    strings = added(strings, frozenset((recorded(string, at - 1),)))
                    if frame.unique and (clash := remember(recorded(frame.begin, at).strip(BLANK), at - 1)):
                        return clash, at
                elif mode == KEY:
                    text, size, records = None, 0, False
                mode = OUTSIDE
                continue
            mark = STRUCTURE.search(data, at)
            if mark is None:
                at = end
                break
            byte, at = data[mark.start()], mark.end()
            if byte == QUOTE:
                mode = STRING if frame is None or frame.is_array or in_value else KEY
                if not records and mode == KEY:
                    text, size, since, records = None, 0, at, True
                string = size + at - since
            elif byte == COMMA:
                in_value = False
                if frame is not None and frame.is_array:
                    if frame.unique:
                        if not frame.done and (clash := remember(recorded(frame.begin, at - 1).strip(BLANK), at - 1)):
                            return clash, at
                        frame = frame._replace(begin=size + at - since, done=False)
                    if frame.place < len(spots[frame.spot].items) - 1:
                        frame = frame._replace(place=frame.place + 1)
            elif byte == COLON:
                in_value = True
            elif byte in OPENS:
                is_array = byte == OPENS[0]
                if frame is not None and frame.is_array:
                    value = spots[frame.spot].items[frame.place]
                unique = is_array and spots[value].unique
                named = not is_array and spots[value].names_differ
                watched = unique or named or (frame is not None and frame.watched)
                if watched and not records:
                    text, size, since, records = None, 0, at - 1, True
                levels = () if frame is None else tuple([depth + 1 for depth in frame.levels])
                frame = ItemFrame(
                    frame,
                    value,
                    is_array,
                    unique,
                    watched,
                    begin=size + at - since,
                    named=named,
                    levels=(0, *levels) if unique else levels,
                    around=_count(frame),
                )
                in_value = False
            elif frame is not None:
                last = recorded(frame.begin, at - 1).strip(BLANK) if frame.unique and not frame.done else b""
                if last and (clash := remember(last, at - 1)):
                    return clash, at
                was_watched, frame = frame.watched, frame.parent
                if frame is None:
                    closed = True
                elif frame.unique and (clash := remember(recorded(frame.begin, at).strip(BLANK), at - 1)):
                    return clash, at
                if was_watched and (frame is None or not frame.watched):
                    text, size, strings, records = None, 0, (), False
        if records and at > since:
            text, size = (text, data[since:at]), size + at - since
        return ItemPosition(frame, mode, value, in_value, escaped, text, size, string, strings, closed), at


class InnerDocuments(ABC):
    """A tracker of texts in which documents stand, one at a time: it follows the open one."""

    @abstractmethod
    def open_document(self, point: Hashable) -> tuple[DocumentTracker, ItemPosition] | None:
        """The tracker of the open document, and the position in it."""

    def is_watching(self, point: Hashable) -> bool:
        inner = self.open_document(point)
        return inner is not None and inner[0].is_watching(inner[1])

    def in_string(self, point: Hashable) -> bool:
        inner = self.open_document(point)
        return inner is not None and inner[0].in_string(inner[1])

    def is_idle(self, point: Hashable) -> bool:
        inner = self.open_document(point)
        return inner is None or inner[0].is_idle(inner[1])

    def open_string(self, point: Hashable) -> OpenString | None:
        inner = self.open_document(point)
        return None if inner is None else inner[0].open_string(inner[1])

    def open_item(self, point: Hashable) -> OpenItem | None:
        inner = self.open_document(point)
        return None if inner is None else inner[0].open_item(inner[1])

    def begun_item(self, point: Hashable, level: int) -> tuple[bytes, Seen]:
        inner = self.open_document(point)
        assert inner is not None, "no item is open"
        return inner[0].begun_item(inner[1], level)

    def differs(self, point: Hashable) -> bool:
        inner = self.open_document(point)
        return inner is None or inner[0].differs(inner[1])

    def open_number(self, point: Hashable) -> bytes:
        inner = self.open_document(point)
        return b"" if inner is None else inner[0].open_number(inner[1])

    def count(self, point: Hashable) -> int:
        inner = self.open_document(point)
        return 0 if inner is None else inner[0].count(inner[1])

    def is_fresh(self, point: Hashable) -> bool:
        inner = self.open_document(point)
        return inner is not None and inner[0].is_fresh(inner[1])

    def listed(self, point: Hashable) -> Sequence[bytes]:
        inner = self.open_document(point)
        return () if inner is None else inner[0].listed(inner[1])


def begun_array(point: ItemPosition) -> ItemFrame | None:
    """The array with unique items of which an item is about to begin."""
    frame = point.frame
    if point.mode != OUTSIDE or frame is None or not frame.unique:
        return None
    return None if cut(point.text, point.size, frame.begin).strip(BLANK) else frame


def trailing_number(data: bytes) -> bytes:
    """What may be of a number at the end of some bytes."""
    return data[len(data.rstrip(IN_NUMBER)) :]


def cut(text: Chunks, size: int, begin: int) -> bytes:
    """The end of a recorded text of `size` bytes, from an offset on."""
    parts: list[bytes] = []
    while text is not None and size > begin:
        text, part = text
        size -= len(part)
        parts.append(part)
    joined = b"".join(reversed(parts))
    return joined[begin - size :] if size < begin else joined


def _count(frame: ItemFrame | None) -> int:
    """The items that are remembered in a container and those around it."""
    return 0 if frame is None else frame.around + frame.items
