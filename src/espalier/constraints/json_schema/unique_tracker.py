"""Follows a JSON text byte by byte and knows the strings of every array that may hold none twice.

It trusts that the text is a document's beginning, which is the grammar's affair. Points are values and never change.
It knows no tokens; which arrays these are is `unique_arrays.py`'s.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from espalier.constraints.json_schema.unique_arrays import Spots

OUTSIDE, KEY, STRING, ITEM = range(4)
"""Where the text is: in no string, in a member's name, in a string that does not matter, in one that does."""
QUOTE, COMMA, COLON, ESCAPE = b'",:\\'
OPENS = b"[{"
STRUCTURE = re.compile(rb'["\[\]{},:]')
MARK = re.compile(rb'["\\]')
LETTERS = bytes([*range(97, 123), *range(65, 91), *range(48, 58), 32, *b"!#$%&'()*+,-./:;<=>?@^_`{|}~"])
"""Characters that any free string may hold, the plainest first."""

Texts: TypeAlias = tuple[frozenset[bytes], ...]
"""A set in parts, each more than twice as large as the next: adding to it copies little, and old ones stay."""
Chunks: TypeAlias = "tuple[Chunks, bytes] | None"
"""The parts of a string, the last one first."""


class Frame(NamedTuple):
    """An open container. spot: what it may be. place: how many items are before, as far as it counts. seen: its
    strings, as they are written."""

    parent: Frame | None
    spot: int
    is_array: bool
    unique: bool
    place: int = 0
    seen: Texts = ()


class Point(NamedTuple):
    """A place in a text. value: what a member's value may be. in_value: the name and the colon are written. escaped:
    after a backslash. text: the string so far. rivals: strings of the same array that it could still become, of which
    `offset` bytes are written; None until `settle` finds them."""

    frame: Frame | None = None
    mode: int = OUTSIDE
    value: int = 0
    in_value: bool = False
    escaped: bool = False
    text: Chunks = None
    rivals: tuple[bytes, ...] | None = None
    offset: int = 0


class Clash(NamedTuple):
    """The string that would come twice, as it is written; where its closing quote is; the array that forbids it."""

    item: bytes
    offset: int
    pointer: str


class UniqueTracker:
    def __init__(self, spots: Spots) -> None:
        self.spots = spots
        self.start = Point()

    def feed(self, point: Point, data: bytes) -> Point | Clash:
        """The point after more text, or the first string that comes twice."""
        spots = self.spots
        frame, mode, value, in_value, escaped, text, rivals, offset = point
        grown = b""
        at, end = 0, len(data)
        while at < end:
            if mode == OUTSIDE:
                found = STRUCTURE.search(data, at)
                if found is None:
                    break
                byte = data[found.start()]
                at = found.end()
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
                    frame = Frame(frame, value, is_array, is_array and spots[value].unique)
                    in_value = False
                elif frame is not None:
                    frame = frame.parent
                continue
            begin = at
            found = MARK.search(data, min(at + escaped, end))
            at = end if found is None else found.end()
            escaped = found is not None and data[found.start()] == ESCAPE
            if found is None or escaped:
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
                    return Clash(item, at - 1, spots[frame.spot].pointer)
                frame = frame._replace(seen=_with(frame.seen, item))
            mode, text, rivals = OUTSIDE, None, None
        if mode == ITEM and rivals:
            rivals = tuple(one for one in rivals if one.startswith(grown, offset))
            offset += len(grown)
        return Point(frame, mode, value, in_value, escaped, text, rivals, offset)

    def settle(self, point: Point) -> Point:
        """The same point, its rivals known."""
        if point.mode != ITEM or point.rivals is not None or point.frame is None:
            return point
        begun = joined(point.text, b"")
        rivals = tuple(one for some in point.frame.seen for one in some if one.startswith(begun))
        return point._replace(rivals=rivals, offset=len(begun))

    def mended(self, point: Point, data: bytes, letters: bytes) -> bytes:
        """Text that goes on from a point, with letters put into strings that would come twice."""
        found = bytearray()
        for byte in data:
            one = bytes((byte,))
            while isinstance(after := self.feed(point, one), Clash):
                point = self.settle(point)
                taken = [rival[point.offset] for rival in point.rivals or () if len(rival) > point.offset]
                letter = min(letters, key=taken.count)  # the first of those that fewest go on with
                found.append(letter)
                longer = self.feed(point, bytes((letter,)))
                assert isinstance(longer, Point)
                point = longer
            found.append(byte)
            point = self.settle(after)
        return bytes(found)


def joined(text: Chunks, last: bytes) -> bytes:
    if text is None:
        return last
    parts = [last]
    while text is not None:
        text, part = text
        parts.append(part)
    return b"".join(reversed(parts))


def _with(texts: Texts, text: bytes) -> Texts:
    new = frozenset((text,))
    while texts and len(texts[-1]) <= len(new):
        new |= texts[-1]
        texts = texts[:-1]
    return (*texts, new)
