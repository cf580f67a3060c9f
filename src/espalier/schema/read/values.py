"""JSON values as Python objects: equality as JSON Schema defines it, exact numbers, one bit for each type.

    key(1) == key(1.0)      key(True) != key(1)      exact(0.1) == Fraction(1, 10)      type_of("a") == STRING

It knows no schemas.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from espalier.errors import SchemaError
from espalier.time_limit import check as check_time

MAX_DEPTH = 256
"""Levels of a value in `enum` or `const`."""

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
"""Type bits by the name in `type`; an integer is a number."""
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
    """The type bit of a value."""
    return _OF[type(value)]


def exact(value: Any) -> Fraction:
    """The number as it is written in decimal: 0.1 is one tenth, not the nearest double."""
    return Fraction(repr(value)) if type(value) is float else Fraction(value)


def count(value: Any) -> int:
    """A whole number as an int; it may be spelled 2.0."""
    return int(value)


def key(value: Any) -> Hashable:
    """A hashable key, equal for values that are equal in JSON: 1 and 1.0 are; true and 1 are not, also inside lists."""
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
    """Whether a number is whole; False for other types."""
    return type(value) is int or (type_of(value) == NUMBER and exact(value).denominator == 1)


def is_number(value: Any) -> bool:
    """Whether a Python object is a JSON number: no boolean, no NaN, no infinity."""
    return (type(value) is int) or (type(value) is float and math.isfinite(value)) or isinstance(value, Decimal)


def check_values(value: Any, pointer: str) -> None:
    """Raises SchemaError, with the pointer, for what is not a JSON value, is not finite or is nested too deeply."""
    stack = [(value, 0)]
    while stack:
        check_time()
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise SchemaError(f"a value is nested too deeply: {MAX_DEPTH} levels at most", pointer=pointer)
        if isinstance(node, list):
            stack.extend([(item, depth + 1) for item in node if type(item) is not str])
        elif isinstance(node, dict):
            stack.extend((item, depth + 1) for item in node.values())
        elif not (node is None or isinstance(node, str | bool) or is_number(node)):
            raise SchemaError("this is not a JSON value", pointer=pointer)
