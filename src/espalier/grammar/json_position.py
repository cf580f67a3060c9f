"""JsonPosition: the position in a JSON text after any bytes, tracked byte by byte as an immutable value.

`fits` is strict: None as soon as a byte is not JSON here. `feed` is lenient: it skips bytes that do not fit. Tokens,
vocabularies, biases and pointers are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

SPACE = b" \t\n\r"
QUOTE, COLON, COMMA = b'":,'
CLOSERS = {ord("{"): ord("}"), ord("["): ord("]")}
"""The byte that opens a container -> the byte that closes it."""
NUMBER_STARTS = b"-0123456789"
LITERALS = {word[0]: word for word in (b"true", b"false", b"null")}

_OBJECT = ord("{")
_ESCAPED = b'"\\/bfnrt'
_HEX = b"0123456789abcdefABCDEF"
_PROSE = b"prose"
_SCALAR = b"scalar"


class JsonState(StrEnum):
    """The parser state. Keys and values are told apart; after a comma the innermost container says what may follow."""

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
"""The open containers by their first byte, innermost first; linked, so that positions share their common part."""


def _number_table() -> dict[tuple[bytes, int], bytes]:
    """The automaton of a number: (part, byte) -> next part. A number cannot end after `-`, `.` or `e`."""
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
class JsonPosition:
    """One position in a text; immutable.

    stack, depth: the open containers. detail: in a string the unfinished escape, in a number its part, in a literal the
    bytes still to come; at START whether prose came before, at DONE whether the document is a scalar. back: the state
    before a literal.
    """

    state: JsonState = JsonState.START
    stack: Stack = None
    depth: int = 0
    detail: bytes = b""
    back: JsonState = JsonState.START

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a whole document. A number alone counts as soon as it may end."""
        if self.state is JsonState.IN_NUMBER:
            return self.depth == 0 and self.detail in _NUMBER_ENDS
        return self.state is JsonState.DONE

    @property
    def closer(self) -> int | None:
        """The byte that closes the innermost container; None outside all containers."""
        return None if self.stack is None else CLOSERS[self.stack[0]]

    @property
    def is_in_object(self) -> bool:
        """Whether the innermost container is an object."""
        return self.stack is not None and self.stack[0] == _OBJECT

    def containers(self, count: int) -> bytes:
        """The first bytes of the innermost `count` containers, innermost first; fewer where fewer are open."""
        path, stack = bytearray(), self.stack
        while stack is not None and len(path) < count:
            path.append(stack[0])
            stack = stack[1]
        return bytes(path)

    def fits(self, data: bytes) -> JsonPosition | None:
        """The position after these bytes; None if one of them is not JSON here."""
        position: JsonPosition | None = self
        for byte in data:
            if position is None:
                return None
            position = _FITS[position.state](position, byte)
        return position

    def feed(self, data: bytes) -> JsonPosition:
        """The position after any bytes.

        Prose before the document is skipped up to the first `{` or `[`; a scalar is the document only if it is the
        first thing after whitespace and only whitespace follows. A closing bracket after a comma closes; one that does
        not match the open container is skipped. A word that only begins like a literal is skipped. Any other byte that
        does not fit leaves the position as it is.
        """
        position = self
        for byte in data:
            position = _FITS[position.state](position, byte) or _skip(position, byte)
        return position

    def _to(self, state: JsonState, detail: bytes = b"") -> JsonPosition:
        return JsonPosition(state, self.stack, self.depth, detail, self.state)

    def _after_value(self) -> JsonPosition:
        return self._to(JsonState.AFTER_VALUE) if self.depth else self._to(JsonState.DONE, _SCALAR)

    def _open(self, byte: int) -> JsonPosition:
        inside = JsonState.OBJECT_START if byte == _OBJECT else JsonState.ARRAY_START
        return JsonPosition(inside, (byte, self.stack), self.depth + 1)

    def _close(self) -> JsonPosition:
        rest = None if self.stack is None else self.stack[1]
        return JsonPosition(JsonState.DONE if rest is None else JsonState.AFTER_VALUE, rest, self.depth - 1)


def _value(position: JsonPosition, byte: int) -> JsonPosition | None:
    if byte in SPACE:
        return position
    if byte == QUOTE:
        return position._to(JsonState.IN_STRING)
    if byte in CLOSERS:
        return position._open(byte)
    if byte in NUMBER_STARTS:
        return position._to(JsonState.IN_NUMBER, {ord("-"): b"-", ord("0"): b"0"}.get(byte, b"int"))
    if byte in LITERALS:
        return position._to(JsonState.IN_LITERAL, LITERALS[byte][1:])
    return None


def _start(position: JsonPosition, byte: int) -> JsonPosition | None:
    if position.detail == _PROSE and byte not in SPACE and byte not in CLOSERS:
        return None
    return _value(position, byte)


def _object_start(position: JsonPosition, byte: int) -> JsonPosition | None:
    return position._close() if byte == position.closer else _key(position, byte)


def _array_start(position: JsonPosition, byte: int) -> JsonPosition | None:
    return position._close() if byte == position.closer else _value(position, byte)


def _key(position: JsonPosition, byte: int) -> JsonPosition | None:
    if byte in SPACE:
        return position
    return position._to(JsonState.IN_KEY) if byte == QUOTE else None


def _after_comma(position: JsonPosition, byte: int) -> JsonPosition | None:
    return _key(position, byte) if position.is_in_object else _value(position, byte)


def _after_key(position: JsonPosition, byte: int) -> JsonPosition | None:
    if byte in SPACE:
        return position
    return position._to(JsonState.AFTER_COLON) if byte == COLON else None


def _after_value(position: JsonPosition, byte: int) -> JsonPosition | None:
    if byte in SPACE:
        return position
    if byte == COMMA:
        return position._to(JsonState.AFTER_COMMA)
    return position._close() if byte == position.closer else None


def _string(position: JsonPosition, byte: int) -> JsonPosition | None:
    """A byte of 128 or more is part of a character and ends nothing."""
    open_escape = position.detail
    if not open_escape:
        if byte == QUOTE:
            return position._to(JsonState.AFTER_KEY) if position.state is JsonState.IN_KEY else position._after_value()
        if byte == 0x5C:
            return position._to(position.state, b"\\")
        return position if byte >= 0x20 else None
    if open_escape == b"\\":
        if byte == ord("u"):
            return position._to(position.state, b"u")
        return position._to(position.state) if byte in _ESCAPED else None
    if byte not in _HEX:
        return None
    return position._to(position.state, b"" if len(open_escape) == 4 else open_escape + bytes((byte,)))


def _number(position: JsonPosition, byte: int) -> JsonPosition | None:
    part = _NUMBER.get((position.detail, byte))
    if part is not None:
        return position if part == position.detail else position._to(JsonState.IN_NUMBER, part)
    if position.detail not in _NUMBER_ENDS:
        return None
    return position._after_value().fits(bytes((byte,)))


def _literal(position: JsonPosition, byte: int) -> JsonPosition | None:
    if byte != position.detail[0]:
        return None
    rest = position.detail[1:]
    if not rest:
        return position._after_value()
    return JsonPosition(JsonState.IN_LITERAL, position.stack, position.depth, rest, position.back)


def _after_byte(position: JsonPosition, byte: int) -> JsonPosition | None:
    return position if byte in SPACE else None


_FITS: Mapping[JsonState, Callable[[JsonPosition, int], JsonPosition | None]] = {
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
    JsonState.DONE: _after_byte,
}


def _skip(position: JsonPosition, byte: int) -> JsonPosition:
    """The position after a byte that is not JSON there."""
    again = bytes((byte,))
    state = position.state
    in_string = state in (JsonState.IN_KEY, JsonState.IN_STRING)
    if in_string and position.detail:
        return position._to(state).feed(again)  # no escape: the byte is one of the string, or its end
    if state is JsonState.START:
        return position if position.detail == _PROSE else position._to(JsonState.START, _PROSE)
    if position.depth == 0 and not in_string:
        if state is JsonState.DONE and position.detail != _SCALAR:
            return position  # after an object or an array nothing begins anew
        return position._to(JsonState.START, _PROSE).feed(again)  # "12 apples", "true, and": that was prose
    if state is JsonState.IN_NUMBER:
        return position._after_value().feed(again) if byte in b" \t\n\r,}]" else position
    if state is JsonState.IN_LITERAL:
        return position._to(position.back).feed(again)
    if state is JsonState.AFTER_COMMA and byte == position.closer:
        return position._close()
    return position
