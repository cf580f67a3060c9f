"""Which part of a JSON document each token writes: the JSON pointer at the token's first byte.

The bytes of a value belong to its pointer; keys, commas and brackets belong to the object or array around them. This
module knows constraints only as the JSON of their specs, and no kind but the two that make JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from espalier.chat.reading.channel_header import CHANNEL, FINAL, MESSAGE
from espalier.grammar.json_position import SPACE, JsonPosition, JsonState
from espalier.schema.pointers import ANY_KEY, below, split

JSON_KINDS = ("json_schema", "json_object")
CLOSES = b"}]"
NUMBER_ENDS = b"," + CLOSES + SPACE
IN_VALUE = (JsonState.IN_STRING, JsonState.IN_LITERAL)
VALUE_BEGINS = (JsonState.AFTER_COLON, JsonState.AFTER_COMMA, JsonState.ARRAY_START)
_INDEX = re.compile("0|[1-9][0-9]*")
WORDS = ("true", "false", "null")
NUMERIC = frozenset("+-.eE0123456789")


def document_start(constraint: Mapping[str, Any] | None, text: str) -> int | None:
    """At which byte of the text the JSON document of a constraint begins; None if there is no document, or not yet.

    constraint: `Spec.to_json()`. The first member that makes JSON here counts. A constraint with a marker (`after`,
    `thinking`) applies to what follows the marker.
    """
    if constraint is None:
        return None
    if constraint.get("kind") in JSON_KINDS:
        return 0 if _looks_like_json(text) else None
    skipped = _answer_start(constraint, text)
    if skipped is None:
        return None
    starts = (document_start(member, text[skipped:]) for member in member_specs(constraint))
    start = next((start for start in starts if start is not None), None)
    return None if start is None else len(text[:skipped].encode()) + start


def member_specs(constraint: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The specs that a spec holds, alone or in a list, whatever the field is called."""
    for value in constraint.values():
        for member in value if isinstance(value, list | tuple) else (value,):
            if isinstance(member, Mapping) and "kind" in member:
                yield member


def _answer_start(constraint: Mapping[str, Any], text: str) -> int | None:
    """Where in the text the members of a constraint apply: after the marker if it has one, in a turn in channels after
    the header of the answer. None: not yet."""
    if constraint.get("kind") == "channels":
        header = text.find(f"{CHANNEL}{FINAL}")
        at = text.find(MESSAGE, header)
        return None if header < 0 or at < 0 else at + len(MESSAGE)
    marker = constraint.get("marker", constraint.get("end"))
    if not isinstance(marker, str) or constraint.get("in_prompt") == "yes":
        return 0
    opening = constraint.get("start")
    if isinstance(opening, str) and not text.lstrip().startswith(opening) and _looks_like_json(text):
        return 0  # an answer at once, without thinking
    at = text.find(marker)
    return None if at < 0 else at + len(marker)


def _looks_like_json(text: str) -> bool:
    """Whether a text may be JSON, by its first character; a number or a literal must be all of the text."""
    head = text.strip()
    return not head or head[0] in '{["' or any(word.startswith(head) for word in WORDS) or NUMERIC.issuperset(head)


@lru_cache(maxsize=4096)  # asked for each step of a trace
def without_indices(path: str) -> str:
    """A JSON pointer with `*` for the index of an item, so that all items of an array have one path."""
    shown = ""
    for step in split(path):
        shown = below(shown, ANY_KEY if _INDEX.fullmatch(step) else step)
    return shown


def json_paths(pieces: Iterable[bytes], start: int = 0) -> list[str | None]:
    """The pointer at the first byte of each piece of a text. A piece that begins before `start` (bytes) counts from
    `start` on. None before the document, after it, and for a piece without bytes."""
    paths: list[str | None] = []
    reader = _PathReader()
    at = 0
    for piece in pieces:
        skipped = min(max(start - at, 0), len(piece))
        inside = piece[skipped:]
        paths.append(reader.path_before(inside[0]) if inside else None)
        for byte in inside:
            reader.read(byte)
        at += len(piece)
    return paths


class _PathReader:
    """Follows a JSON document byte by byte and knows the pointer of each byte."""

    def __init__(self) -> None:
        self._position = JsonPosition()
        self._members: list[str | int | None] = []  # in each open container, the current key or index
        self._steps: list[str] = []  # the pointer of the innermost container, step by step
        self._key = bytearray()  # the key that is being read
        self._is_done = False

    def path_before(self, byte: int) -> str | None:
        """The pointer that the next byte belongs to."""
        if self._is_done:
            return None
        container = "".join(self._steps)
        return container + _step(self._members[-1]) if self._members and self._is_value(byte) else container

    def _is_value(self, byte: int) -> bool:
        """Whether the next byte is part of a member's value."""
        position = self._position
        if position.state is JsonState.IN_NUMBER:
            return byte not in NUMBER_ENDS
        if position.state is JsonState.AFTER_COMMA and position.is_in_object:
            return False
        return position.state in IN_VALUE or (
            position.state in VALUE_BEGINS and byte not in SPACE and byte not in CLOSES
        )

    def read(self, byte: int) -> None:
        if self._is_done:
            return
        before = self._position
        after = self._position = before.feed(bytes((byte,)))
        if after.depth > before.depth:
            if self._members:
                self._steps.append(_step(self._members[-1]))
            self._members.append(None if after.is_in_object else 0)
        elif after.depth < before.depth:
            self._members.pop()
            if self._steps:
                self._steps.pop()
            self._is_done = not self._members
        elif after.state is JsonState.AFTER_COMMA and before.state is not after.state:
            index = self._members[-1]
            self._members[-1] = index + 1 if isinstance(index, int) else None
        elif after.state is JsonState.IN_KEY:
            if before.state is after.state:
                self._key.append(byte)
            else:
                self._key.clear()
        elif before.state is JsonState.IN_KEY:
            self._members[-1] = self._key.decode("utf-8", "replace")


def _step(key: str | int | None) -> str:
    """One step of a JSON pointer (RFC 6901); escapes in a key are shown as they are written."""
    return "" if key is None else below("", key)
