"""Looks at a JSON text before it is parsed: how deep it is nested and how many values it has.

Python's reader makes an object of some 60 bytes for each two bytes of `[],[],…`, and code that walks a value goes as
deep as the value does. Both are counted here in a few passes over the bytes. It does not judge whether a text is JSON.
"""

from __future__ import annotations

import re

from espalier.errors import TooLarge
from espalier.files.limits import FileLimits
from espalier.files.reading import shortened

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SQUARE = bytes.maketrans(b"{}", b"[]")
MAX_KEY_PARTS = 200
_SMALL = 64
"""Texts of so few bytes have no shape worth a look."""


def check_shape(text: str | bytes, reader: FileLimits, source: str) -> None:
    """Raises TooLarge naming the source for a text of more levels or values than the reader takes."""
    if len(text) < _SMALL:
        return
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    bare = _STRINGS.sub(b"", raw)
    if reader.values is not None and (count := count_values(bare)) > reader.values:
        raise TooLarge(
            f"the {reader.noun} {shortened(source)} has {count:,} values, and the limit is {reader.values:,}",
            hint="is it the right file?",
            field=reader.field or reader.noun,
        )
    if reader.depth is not None and is_deeper(bare, reader.depth):
        raise TooLarge(
            f"the {reader.noun} {shortened(source)} is nested too deeply: more than {reader.depth} levels",
            field=reader.field or reader.noun,
        )


def check_toml(text: str, reader: FileLimits, source: str) -> None:
    """As `check_shape`, for TOML, whose brackets are JSON's. Python's reader takes the square of the parts of a dotted
    key in time, so these are counted too. Raises TooLarge."""
    check_shape(text, reader, source)
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_KEY_PARTS and line.partition("=")[0].count(".") > MAX_KEY_PARTS:
            raise TooLarge(
                f"the {reader.noun} {shortened(source)} has a key of more than {MAX_KEY_PARTS} parts at line {number}",
                field=reader.field or reader.noun,
            )


def count_values(bare: bytes) -> int:
    """At most so many values are in this text, whose strings are taken out."""
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{") + 1


def is_deeper(bare: bytes, depth: int) -> bool:
    """Whether brackets are nested deeper. Unfinished and mismatched ones count as far as they are closed: no parser
    goes on after them, and Python's stops at a depth of its own."""
    left = bare.translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(depth):
        less = left.replace(b"[]", b"")
        if len(less) == len(left):
            return False
        left = less
    return b"[]" in left
