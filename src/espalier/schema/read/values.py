"""JSON values as Python has them: equality as JSON Schema means it, exact numbers, the bit of each type."""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Any

NULL, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT = (1 << i for i in range(6))
ANY_TYPE = 63
TYPES = (NULL, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT)
BITS = {
    "null": NULL,
    "boolean": BOOLEAN,
    "number": NUMBER,
    "integer": NUMBER,
    "string": STRING,
    "array": ARRAY,
    "object": OBJECT,
}
"""By the name in `type`."""
_OF = {
    type(None): NULL,
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    Decimal: NUMBER,
    str: STRING,
    list: ARRAY,
    dict: OBJECT,
}


def type_of(value: Any) -> int:
    """The bit of a value's type."""
    return _OF[type(value)]


def exact(value: Any) -> Fraction:
    """The number that the decimal text of a JSON number says."""
    return Fraction(repr(value)) if type(value) is float else Fraction(value)


def count(value: Any) -> int:
    """A whole number, which may be spelled 2.0."""
    return int(value)


def key(value: Any) -> Hashable:
    """Equal for values that are equal in JSON: 1 and 1.0 are, true and 1 are not, nor are lists of those."""
    kind = type(value)
    if kind is str or kind is int or value is None:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return ("b", value)
    if kind is float:
        return int(value) if value.is_integer() else Fraction(repr(value))
    if kind is list:
        return ("a", tuple(map(key, value)))
    if kind is dict:
        return ("o", frozenset((name, key(inner)) for name, inner in value.items()))
    return Fraction(value)


def is_whole(value: Any) -> bool:
    """A number without a fraction; not for booleans."""
    return type(value) is int or (type_of(value) == NUMBER and exact(value).denominator == 1)
