"""Items as keys that are equal where the values are: 1 and 1.0, objects in any order of names.

Numbers are compared twice: as the decimals that are written, and as the floats that most parsers make of them. Two
items that are equal in either way count as equal, so no validator finds a repeated item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from espalier.schema.read.values import key

_DECODER = json.JSONDecoder(parse_float=Fraction)
PLAIN_NUMBER = re.compile(rb"(-?[0-9]{1,7})(?:\.([0-9]{1,7}))?")
"""Numbers of so few digits are equal as decimals where they are as floats."""
SCALARS: dict[bytes, Hashable] = {b"true": ("b", True), b"false": ("b", False), b"null": None}


def keys(text: bytes) -> tuple[Hashable, ...]:
    """The keys of a JSON value as it is written: one, or two where there are numbers in it. Raises ValueError for what
    is no JSON value."""
    if text[:1] == b'"' and b"\\" not in text:
        return (text[1:-1].decode(),)
    if text in SCALARS:
        return (SCALARS[text],)
    if plain := PLAIN_NUMBER.fullmatch(text):
        whole, decimals = plain.groups(b"")
        return (Fraction(int(whole + decimals), 10 ** len(decimals)) if decimals else int(whole),)
    return value_keys(read_value(text))


def read_value(text: bytes) -> Any:
    """A JSON value with exact numbers. Raises ValueError."""
    return _DECODER.decode(text.decode())


def value_keys(value: Any) -> tuple[Hashable, ...]:
    """The keys of a value with exact numbers. Values are equal if one of their keys is."""
    exact, rounded = key(value), key(_round(value))
    return (exact,) if exact == rounded else (exact, rounded)


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(item) for item in value]
    if isinstance(value, dict):
        return {name: _round(inner) for name, inner in value.items()}
    return float(value) if isinstance(value, Fraction) else value
