"""JsonTracker: where in a JSON text a sequence of bytes has come to, also when it is not quite JSON.

It follows bytes and refuses none; what does not fit is passed over. `fits` is the strict half, which says whether a
byte is JSON here. It knows nothing of tokens, vocabularies or biases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

SPACE = b" \t\n\r"
QUOTE, COLON, COMMA = b'":,'
CLOSERS = {ord("{"): ord("}"), ord("["): ord("]")}
"""By what opened a container, what closes it."""
NUMBER_STARTS = b"-0123456789"
LITERALS = {word[0]: word for word in (b"true", b"false", b"null")}

_OBJECT = ord("{")
_ESCAPED = b'"\\/bfnrt'
_HEX = b"0123456789abcdefABCDEF"
_PROSE = b"prose"
_SCALAR = b"scalar"


class JsonState(StrEnum):
    """The place in the text. Keys and values, and what follows a comma, are told apart."""

    START = "Start"
    OBJECT_START = "ObjectStart"
    IN_KEY = "InKey"
    AFTER_KEY = "AfterKey"
    AFTER_COLON = "AfterColon"
    AFTER_VALUE = "AfterValue"
    AFTER_COMMA = "AfterComma"
    IN_STRING = "InString"
    IN_NUMBER = "InNumber"
    IN_LITERAL = "InLiteral"
    ARRAY_START = "ArrayStart"
    DONE = "Done"


Stack: TypeAlias = "tuple[int, Stack] | None"
"""The open containers by their first byte, innermost first. Linked, so that trackers share what they have in common."""


def _number_table() -> dict[tuple[bytes, int], bytes]:
    """Parts of a number: by the part and a byte, the part that follows. `-` and `.` and `e` cannot end one."""
    digits = b"0123456789"
    table = {(b"-", b): b"int" for b in digits[1:]} | {(b"-", ord("0")): b"0"}
    for part, after in ((b"int", b"int"), (b".", b"frac"), (b"frac", b"frac"), (b"e", b"exp"), (b"e+", b"exp")):
        table |= {(part, b): after for b in digits}
    table |= {(b"exp", b): b"exp" for b in digits}
    table |= {(part, ord(".")): b"." for part in (b"0", b"int")}
    table |= {(part, b): b"e" for part in (b"0", b"int", b"frac") for b in b"eE"}
    return table | {(b"e", b): b"e+" for b in b"+-"}


_NUMBER = _number_table()
_NUMBER_ENDS = (b"0", b"int", b"frac", b"exp")


@dataclass(frozen=True, slots=True, eq=False)
class JsonTracker:
    """One place in a text; a value that never changes.

    stack, depth: the open containers. detail: inside a string what is left open of an escape, inside a number its
    part, inside a literal the bytes to come; at Start whether prose went before. back: where a literal began.
    """

    state: JsonState = JsonState.START
    stack: Stack = None
    depth: int = 0
    detail: bytes = b""
    back: JsonState = JsonState.START

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a whole document. A number alone is one as soon as it may end."""
        if self.state is JsonState.IN_NUMBER:
            return self.depth == 0 and self.detail in _NUMBER_ENDS
        return self.state is JsonState.DONE

    @property
    def closer(self) -> int | None:
        """The byte that closes the innermost container; None outside of all."""
        return None if self.stack is None else CLOSERS[self.stack[0]]

    @property
    def is_in_object(self) -> bool:
        """Whether the innermost container is an object."""
        return self.stack is not None and self.stack[0] == _OBJECT

    def containers(self, count: int) -> bytes:
        """The first bytes of the innermost `count` containers, innermost first; fewer where fewer are open."""
        found, stack = bytearray(), self.stack
        while stack is not None and len(found) < count:
            found.append(stack[0])
            stack = stack[1]
        return bytes(found)

    def fits(self, data: bytes) -> JsonTracker | None:
        """The place after bytes that are JSON here, all of them; None if one is not."""
        place: JsonTracker | None = self
        for byte in data:
            if place is None:
                return None
            place = _FITS[place.state](place, byte)
        return place

    def feed(self, data: bytes) -> JsonTracker:
        """The place after any bytes.

        Prose before the document is passed over up to the first `{` or `[`; a scalar is the document only if it is
        the first thing after whitespace and nothing but whitespace follows it. A closer that does not fit the open
        container is passed over, one after a comma closes, a word that only begins like a literal is none, and other
        bytes that do not fit leave the place as it is.
        """
        place = self
        for byte in data:
            place = _FITS[place.state](place, byte) or _pass_over(place, byte)
        return place

    def _at(self, state: JsonState, detail: bytes = b"") -> JsonTracker:
        return JsonTracker(state, self.stack, self.depth, detail, self.state)

    def _after_value(self) -> JsonTracker:
        return self._at(JsonState.AFTER_VALUE) if self.depth else self._at(JsonState.DONE, _SCALAR)

    def _open(self, byte: int) -> JsonTracker:
        inside = JsonState.OBJECT_START if byte == _OBJECT else JsonState.ARRAY_START
        return JsonTracker(inside, (byte, self.stack), self.depth + 1)

    def _close(self) -> JsonTracker:
        rest = None if self.stack is None else self.stack[1]
        return JsonTracker(JsonState.DONE if rest is None else JsonState.AFTER_VALUE, rest, self.depth - 1)


def _value(place: JsonTracker, byte: int) -> JsonTracker | None:
    if byte in SPACE:
        return place
    if byte == QUOTE:
        return place._at(JsonState.IN_STRING)
    if byte in CLOSERS:
        return place._open(byte)
    if byte in NUMBER_STARTS:
        return place._at(JsonState.IN_NUMBER, {ord("-"): b"-", ord("0"): b"0"}.get(byte, b"int"))
    if byte in LITERALS:
        return place._at(JsonState.IN_LITERAL, LITERALS[byte][1:])
    return None


def _start(place: JsonTracker, byte: int) -> JsonTracker | None:
    if place.detail == _PROSE and byte not in SPACE and byte not in CLOSERS:
        return None
    return _value(place, byte)


def _object_start(place: JsonTracker, byte: int) -> JsonTracker | None:
    return place._close() if byte == place.closer else _key(place, byte)


def _array_start(place: JsonTracker, byte: int) -> JsonTracker | None:
    return place._close() if byte == place.closer else _value(place, byte)


def _key(place: JsonTracker, byte: int) -> JsonTracker | None:
    if byte in SPACE:
        return place
    return place._at(JsonState.IN_KEY) if byte == QUOTE else None


def _after_comma(place: JsonTracker, byte: int) -> JsonTracker | None:
    return _key(place, byte) if place.is_in_object else _value(place, byte)


def _after_key(place: JsonTracker, byte: int) -> JsonTracker | None:
    if byte in SPACE:
        return place
    return place._at(JsonState.AFTER_COLON) if byte == COLON else None


def _after_value(place: JsonTracker, byte: int) -> JsonTracker | None:
    if byte in SPACE:
        return place
    if byte == COMMA:
        return place._at(JsonState.AFTER_COMMA)
    return place._close() if byte == place.closer else None


def _string(place: JsonTracker, byte: int) -> JsonTracker | None:
    """Strings are bytes: one of 128 or more is part of a character and never ends anything."""
    open_escape = place.detail
    if not open_escape:
        if byte == QUOTE:
            return place._at(JsonState.AFTER_KEY) if place.state is JsonState.IN_KEY else place._after_value()
        if byte == 0x5C:
            return place._at(place.state, b"\\")
        return place if byte >= 0x20 else None
    if open_escape == b"\\":
        if byte == ord("u"):
            return place._at(place.state, b"u")
        return place._at(place.state) if byte in _ESCAPED else None
    if byte not in _HEX:
        return None
    return place._at(place.state, b"" if len(open_escape) == 4 else open_escape + bytes((byte,)))


def _number(place: JsonTracker, byte: int) -> JsonTracker | None:
    part = _NUMBER.get((place.detail, byte))
    if part is not None:
        return place if part == place.detail else place._at(JsonState.IN_NUMBER, part)
    if place.detail not in _NUMBER_ENDS:
        return None
    return place._after_value().fits(bytes((byte,)))


def _literal(place: JsonTracker, byte: int) -> JsonTracker | None:
    if byte != place.detail[0]:
        return None
    rest = place.detail[1:]
    if not rest:
        return place._after_value()
    return JsonTracker(JsonState.IN_LITERAL, place.stack, place.depth, rest, place.back)


def _done(place: JsonTracker, byte: int) -> JsonTracker | None:
    return place if byte in SPACE else None


_FITS: Mapping[JsonState, Callable[[JsonTracker, int], JsonTracker | None]] = {
    JsonState.START: _start,
    JsonState.OBJECT_START: _object_start,
    JsonState.IN_KEY: _string,
    JsonState.AFTER_KEY: _after_key,
    JsonState.AFTER_COLON: _value,
    JsonState.AFTER_VALUE: _after_value,
    JsonState.AFTER_COMMA: _after_comma,
    JsonState.IN_STRING: _string,
    JsonState.IN_NUMBER: _number,
    JsonState.IN_LITERAL: _literal,
    JsonState.ARRAY_START: _array_start,
    JsonState.DONE: _done,
}


def _pass_over(place: JsonTracker, byte: int) -> JsonTracker:
    """The place after a byte that is not JSON there."""
    again = bytes((byte,))
    state = place.state
    in_string = state in (JsonState.IN_KEY, JsonState.IN_STRING)
    if in_string and place.detail:
        return place._at(state).feed(again)  # no escape: the byte is one of the string, or its end
    if state is JsonState.START:
        return place if place.detail == _PROSE else place._at(JsonState.START, _PROSE)
    if place.depth == 0 and not in_string:
        if state is JsonState.DONE and place.detail != _SCALAR:
            return place  # after an object or an array nothing begins anew
        return place._at(JsonState.START, _PROSE).feed(again)  # "12 apples", "true, and": that was prose
    if state is JsonState.IN_NUMBER:
        return place._after_value().feed(again) if byte in b" \t\n\r,}]" else place
    if state is JsonState.IN_LITERAL:
        return place._at(place.back).feed(again)
    if state is JsonState.AFTER_COMMA and byte == place.closer:
        return place._close()
    return place
