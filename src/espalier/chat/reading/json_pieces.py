"""Copy and read JSON values from arriving text: values are passed on as written, strings are decoded. Calls are not
known here."""

from __future__ import annotations

import json
import re

from espalier.chat.reading.incoming import Emit, FormatMismatch, IncomingText, Reading
from espalier.chat.reading.json_scan import HEX, JsonScan, NotJson

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')


def copy_value(text: IncomingText, emit: Emit) -> Reading[None]:
    """Pass on one value piece by piece, exactly as written, with whitespace before it. A number ends where something
    else follows.

    Raises FormatMismatch after the fitting part was passed on, IncompleteText if the text ends within.
    """
    scan = JsonScan()
    while not scan.is_done:
        yield from text.need()
        piece, at = text.rest
        try:
            end = scan.feed(piece, at)
        except NotJson as error:
            _emit_up_to(text, error.at, emit)
            raise FormatMismatch(error.message, text.offset) from error
        _emit_up_to(text, end, emit)


def _emit_up_to(text: IncomingText, end: int, emit: Emit) -> None:
    piece, at = text.rest
    text.move(end)
    if end > at:
        emit(piece[at:end])


def read_string(text: IncomingText) -> Reading[str]:
    """Read and decode one string. Raises FormatMismatch if something else is there."""
    if (yield from text.need()) != '"':
        raise FormatMismatch("a string is missing", text.offset)
    parts: list[str] = []
    yield from copy_value(text, parts.append)
    string: str = json.loads("".join(parts))
    return string


def copy_meant(text: IncomingText, emit: Emit) -> Reading[None]:
    """Decode one string and pass it on piece by piece. A NotJson raised by `emit` becomes a FormatMismatch at its
    position.

    Raises FormatMismatch also for half a surrogate pair, which is no text.
    """
    yield from text.expect('"')
    high = ""
    while True:
        at = text.offset
        part = yield from _part(text)
        is_low = "\udc00" <= part[:1] <= "\udfff"
        if is_low != bool(high):
            raise FormatMismatch("half a pair of surrogates is no text", at)
        if high:
            part, high = _pair(high, part), ""
        if "\ud800" <= part < "\udc00":
            high = part
            continue
        if not part:
            return
        try:
            emit(part)
        except NotJson as error:
            raise FormatMismatch(error.message, at + error.at) from error


def _part(text: IncomingText) -> Reading[str]:
    """The available plain part of a string, or the next escape decoded, or half of a pair; "" at the end of the
    string."""
    character = yield from text.need()
    piece, at = text.rest
    match = _PLAIN.match(piece, at)
    if match:
        text.move(match.end())
        return match[0]
    text.move(at + 1)
    if character == '"':
        return ""
    if character < " ":
        raise FormatMismatch("a control character in a string has to be escaped", text.offset - 1)
    return (yield from _read_escape(text)) if character == "\\" else character


def _read_escape(text: IncomingText) -> Reading[str]:
    at = text.offset
    character = yield from text.take()
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character != "u":
        raise FormatMismatch("there is no such escape", at)
    digits = ""
    for _ in range(4):
        at = text.offset
        digits += yield from text.take()
        if digits[-1] not in HEX:
            raise FormatMismatch("a digit of an escape is missing", at)
    return chr(int(digits, 16))


def _pair(high: str, low: str) -> str:
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + ord(low) - 0xDC00)
