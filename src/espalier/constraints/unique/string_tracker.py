"""Follows a JSON text byte by byte and collects the strings of every array whose strings must be unique.

It assumes that the text is a valid prefix of a document, which the automaton ensures. Points are immutable values. It
knows no tokens; `arrays.py` says which arrays these are. It skips from quote to quote, unlike
`grammar/json_position.py`, whose positions know nothing of a schema's members and items.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from espalier.constraints.unique.spots import Spots
from espalier.constraints.watching import RepeatedItem

OUTSIDE, KEY, STRING, ITEM = range(4)
"""The mode of a point: outside strings, in a member's name, in another string, in an item that must be unique."""
QUOTE, COMMA, COLON, ESCAPE = b'",:\\'
OPENS = b"[{"
STRUCTURE = re.compile(rb'["\[\]{},:]')
MARK = re.compile(rb'["\\]')
LETTERS = bytes([*range(97, 123), *range(65, 91), *range(48, 58), 32, *b"!#$%&'()*+,-./:;<=>?@^_`{|}~"])
"""Characters that any unrestricted string may contain, letters first."""

Texts: TypeAlias = tuple[frozenset[bytes], ...]
"""A persistent set in parts of falling size: adding a text merges only the small parts, and old versions stay valid."""
Chunks: TypeAlias = "tuple[Chunks, bytes] | None"
"""The parts of a string as a linked list, the last part first."""


class StringFrame(NamedTuple):
    """An open container. spot: the index of its spot. place: the number of items before, up to the last that the spot
    tells apart. seen: its strings so far, as written."""

    parent: StringFrame | None
    spot: int
    is_array: bool
    unique: bool
    place: int = 0
    seen: Texts = ()


class StringPosition(NamedTuple):
    """A position in a text. value: the spot of the next member's value. in_value: after a member's colon. escaped:
    after a backslash. text: the open string so far. rivals: earlier strings of the same array that start with it, of
    which `offset` bytes are written; None until `settle` finds them."""

    frame: StringFrame | None = None
    mode: int = OUTSIDE
    value: int = 0
    in_value: bool = False
    escaped: bool = False
    text: Chunks = None
    rivals: tuple[bytes, ...] | None = None
    offset: int = 0


class UniqueTracker:
    """Follows the texts of one schema. spots: see `arrays.py`."""

    def __init__(self, spots: Spots) -> None:
        self.spots = spots
        self.start = StringPosition()

    def feed(self, point: Hashable, data: bytes) -> StringPosition | RepeatedItem:
        """The point after more text, or the first repeated item, as it is written between its quotation marks."""
        assert isinstance(point, StringPosition)
        spots = self.spots
        frame, mode, value, in_value, escaped, text, rivals, offset = point
        grown = b""
        at, end = 0, len(data)
        while at < end:
            if mode == OUTSIDE:
                end_mark = STRUCTURE.search(data, at)
                if end_mark is None:
                    break
                byte = data[end_mark.start()]
                at = end_mark.end()
                if byte == QUOTE:
                    text, escaped = None, False
                    if frame is not None and frame.unique:
                        mode, rivals, offset = ITEM, None, 0
                    else:
                        mode = STRING if frame is None or frame.is_array or in_value else KEY
                elif byte == COMMA:
                    in_value = False
                    if frame is not None and frame.is_array and frame.place < len(spots[frame.spot].items) - 1:
                        frame = frame._replace(place=frame.place + 1)
                elif byte == COLON:
                    in_value = True
                elif byte in OPENS:
                    is_array = byte == OPENS[0]
                    if frame is not None and frame.is_array:
                        value = spots[frame.spot].items[frame.place]
                    frame = StringFrame(frame, value, is_array, is_array and spots[value].unique)
                    in_value = False
                elif frame is not None:
                    frame = frame.parent
                continue
            begin = at
            end_mark = MARK.search(data, min(at + escaped, end))
            at = end if end_mark is None else end_mark.end()
            escaped = end_mark is not None and data[end_mark.start()] == ESCAPE
            if end_mark is None or escaped:
                if mode != STRING:
                    text = (text, data[begin:at])
                    grown += data[begin:at]
                continue
            if mode == KEY:
                assert frame is not None
                spot = spots[frame.spot]
                value = spot.names.get(joined(text, data[begin : at - 1]), spot.other)
            elif mode == ITEM:
                assert frame is not None
                item = joined(text, data[begin : at - 1])
                if any(item in some for some in frame.seen):
                    return RepeatedItem(item, at - 1, spots[frame.spot].pointer, items=_count(frame))
                frame = frame._replace(seen=_add(frame.seen, item))
            mode, text, rivals = OUTSIDE, None, None
        if mode == ITEM and rivals:
            rivals = tuple(rival for rival in rivals if rival.startswith(grown, offset))
            offset += len(grown)
        return StringPosition(frame, mode, value, in_value, escaped, text, rivals, offset)

    def in_string(self, point: Hashable) -> bool:
        assert isinstance(point, StringPosition)
        return point.mode != OUTSIDE

    def is_idle(self, point: Hashable) -> bool:
        assert isinstance(point, StringPosition)
        return point.mode == STRING

    def count(self, point: Hashable) -> int:
        assert isinstance(point, StringPosition)
        return _count(point.frame)

    def is_fresh(self, point: Hashable) -> bool:
        return False  # no search asks where to stop

    def listed(self, point: Hashable) -> Sequence[bytes]:
        return ()

    def settle(self, point: StringPosition) -> StringPosition:
        """The same point with its rivals filled in."""
        if point.mode != ITEM or point.rivals is not None or point.frame is None:
            return point
        begun = joined(point.text, b"")
        rivals = tuple(rival for some in point.frame.seen for rival in some if rival.startswith(begun))
        return point._replace(rivals=rivals, offset=len(begun))

    def repair(self, point: StringPosition, data: bytes, letters: bytes) -> bytes:
        """The continuation `data` from a point, with letters added to items that would be repeated."""
        changed = bytearray()
        for byte in data:
            single = bytes((byte,))
            while isinstance(after := self.feed(point, single), RepeatedItem):
                point = self.settle(point)
                taken = [rival[point.offset] for rival in point.rivals or () if len(rival) > point.offset]
                letter = min(letters, key=taken.count)  # the one that continues the fewest rivals
                changed.append(letter)
                longer = self.feed(point, bytes((letter,)))
                assert isinstance(longer, StringPosition)
                point = longer
            changed.append(byte)
            point = self.settle(after)
        return bytes(changed)


def joined(text: Chunks, last: bytes) -> bytes:
    """The whole string: its parts, then `last`."""
    if text is None:
        return last
    parts = [last]
    while text is not None:
        text, part = text
        parts.append(part)
    return b"".join(reversed(parts))


def _add(texts: Texts, text: bytes) -> Texts:
    new = frozenset((text,))
    while texts and len(texts[-1]) <= len(new):
        new |= texts[-1]
        texts = texts[:-1]
    return (*texts, new)


def _count(frame: StringFrame | None) -> int:
    """The strings that are remembered in a container and those around it."""
    count = 0
    while frame is not None:
        count += sum(map(len, frame.seen))
        frame = frame.parent
    return count
