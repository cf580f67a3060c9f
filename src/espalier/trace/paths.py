"""Which part of a JSON document each token writes: the JSON pointer at its first byte.

The bytes of a value belong to its pointer; keys, commas and brackets to the object or array that they are in. It reads
text and knows no constraint: what is not JSON gets no path from where it ceases to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from espalier.schema.pointers import below

JSON_KINDS = ("json_schema", "json_object")
OPEN, CLOSE = b"{[", b"}]"
SPACE = b" \t\r\n"


def document_start(constraint: Mapping[str, Any] | None, text: str) -> int | None:
    """Where in the text, in bytes, the JSON document of a constraint (as its `to_json` says) begins; None if it makes
    none, or none has begun."""
    if constraint is None:
        return None
    kind = constraint.get("kind")
    if kind in JSON_KINDS:
        return 0
    if kind == "all_of":
        starts = (document_start(member, text) for member in constraint["members"])
        return next((start for start in starts if start is not None), None)
    if kind == "after":
        before, marker, rest = text.partition(constraint["marker"])
        inner = document_start(constraint["spec"], rest) if marker else None
        return None if inner is None else len((before + marker).encode()) + inner
    return None


def json_paths(pieces: Iterable[bytes], start: int = 0) -> list[str | None]:
    """For each piece of a text the pointer at its first byte (its first byte of the document, where it begins before
    `start`); None before the document, after it, and for a piece without bytes."""
    found: list[str | None] = []
    reader = _Reader()
    at = 0
    for piece in pieces:
        skipped = min(max(start - at, 0), len(piece))
        inside = piece[skipped:]
        found.append(reader.path_before(inside[0]) if inside else None)
        for byte in inside:
            reader.read(byte)
        at += len(piece)
    return found


class _Reader:
    """A JSON document, a byte at a time. A frame is [is an object, the key or index of the member at hand]."""

    def __init__(self) -> None:
        self._frames: list[list[Any]] = []
        self._steps: list[str] = []  # the pointer of the innermost container, a step each
        self._key: bytearray | None = None  # a key that is being read
        self._in_string = False
        self._escaped = False
        self._in_value = False  # a scalar is being written
        self._wants_value = True
        self._done = False

    def path_before(self, byte: int) -> str | None:
        """The path that the next byte belongs to."""
        if self._done:
            return None
        container = "".join(self._steps)
        if self._key is not None or not self._frames:
            return container
        opens_value = self._wants_value and byte not in SPACE and byte not in CLOSE
        if self._in_string or opens_value or (self._in_value and byte not in b",}]" + SPACE):
            return container + _step(self._frames[-1][1])
        return container

    def read(self, byte: int) -> None:
        if self._done:
            return
        if self._in_string:
            self._string(byte)
        elif byte == 0x22:
            self._in_string = True
            if self._frames and self._frames[-1][0] and not self._wants_value:
                self._key = bytearray()
            else:
                self._in_value, self._wants_value = True, False
        elif byte in OPEN:
            if self._frames:
                self._steps.append(_step(self._frames[-1][1]))
            self._frames.append([byte == 0x7B, None if byte == 0x7B else 0])
            self._wants_value, self._in_value = byte != 0x7B, False
        elif byte in CLOSE and self._frames:
            self._frames.pop()
            if self._steps:
                self._steps.pop()
            self._wants_value = self._in_value = False
            self._done = not self._frames
        elif byte == 0x2C and self._frames:
            is_object, key = self._frames[-1]
            self._frames[-1][1] = None if is_object else key + 1
            self._wants_value, self._in_value = not is_object, False
        elif byte == 0x3A:
            self._wants_value = True
        elif byte in SPACE:
            self._in_value = False
        elif self._wants_value:
            self._wants_value, self._in_value = False, True

    def _string(self, byte: int) -> None:
        if self._escaped:
            self._escaped = False
        elif byte == 0x5C:
            self._escaped = True
        elif byte == 0x22:
            self._in_string = self._in_value = False
            if self._key is not None:
                self._frames[-1][1] = self._key.decode("utf-8", "replace")
                self._key = None
            return
        if self._key is not None:
            self._key.append(byte)


def _step(key: str | int | None) -> str:
    """One step of a JSON pointer (RFC 6901); escapes in a key are shown as they are written."""
    return "" if key is None else below("", key)
