"""Small JSON values around a schema of one kind: all up to a size, over its names and values and some near them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice, permutations, product
from typing import Any

from tests.fuzz.schema_grid.keywords import FORMATS, Kind

NAMES = ("a", "b", "c")
MORE_NAMES = ("é", "", "\n", "aa", "d", "-")
ITEMS: tuple[Any, ...] = (1, 2, "x")
CHARS = ("a", "b", "1", "é", "\n", " ")
TEXTS = (
    "aba",
    "aab",
    "a\nb",
    "\na",
    "éa",
    "\u0663",
    "\u2028",
    "😀",
    "😀a",
    "a_",
    "a-",
    "\u00a0",
    "abab",
    "\ufeff",
    "aa\n",
)
WHOLE = (-2, -1, 0, 1, 2, 3, 4, 6, 10, 100, 10**9, 10**10, 12345678901, 3 * 10**10, 10**12 + 1, -(10**11))
BROKEN = (-1.5, -0.5, 0.1, 0.25, 0.3, 0.5, 0.75, 1.1, 1.25, 1.5, 2.5, 3.5, 4.5, 10.5, 0.001, 1234567.5, 12345678901.5)
OTHERS: tuple[Any, ...] = (None, True, 1, 0.5, "a", "", [], [1], {}, {"a": 1})
MAX_ORDERS = 120


def values(kind: Kind, part: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values to try on a schema of a kind, those of the kind first."""
    if kind == "string" and "format" in part:
        return (*FORMATS[part["format"]], *_of_kind(kind))
    return _of_kind(kind)


@cache
def _of_kind(kind: Kind) -> tuple[Any, ...]:
    makers = {"object": _objects, "array": _arrays, "string": _strings, "number": lambda: iter((*WHOLE, *BROKEN))}
    others = [value for value in OTHERS if not isinstance(value, TYPES[kind]) or value is True]
    return (*makers[kind](), *others)


TYPES: dict[Kind, Any] = {"object": dict, "array": list, "string": str, "number": (int, float)}


def _objects() -> Iterator[Any]:
    for held in product((None, 1, "x"), repeat=len(NAMES)):
        yield {name: value for name, value in zip(NAMES, held, strict=True) if value is not None}
    for name in MORE_NAMES:
        yield from ({name: 1}, {name: "x"}, {"a": 1, name: "x"}, {name: 1, "b": 1})
    yield from ({"a": None}, {"a": 1.5}, {"a": [1]}, {"c": 1, "b": 1, "a": 1}, {"a": 1, "b": 1, "c": 1, "d": 1})
    yield from ({"b": 1, "a": 1}, {"d": 1, "-": 1}, {"a": 1, "d": 1, "-": 1})


def _arrays() -> Iterator[Any]:
    for size in range(4):
        yield from (list(held) for held in product(ITEMS, repeat=size))
    yield from ([1, 1, 1, 1], [2, "x", 1, 3], [None], [1.5], [[1]], [{}, {}], ["x", "x", 1, 1], [1, None], [True])


def _strings() -> Iterator[Any]:
    for size in range(3):
        yield from ("".join(held) for held in product(CHARS, repeat=size))
    yield from TEXTS


def orders(value: Any) -> Iterator[Any]:
    """The value with the names of its objects in other orders, up to a number of them."""
    yield from islice(_orders(value), 1, MAX_ORDERS)


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        inner = {name: list(islice(_orders(held), MAX_ORDERS)) for name, held in value.items()}
        for names in permutations(value):
            for held in product(*(inner[name] for name in names)):
                yield dict(zip(names, held, strict=True))
    elif isinstance(value, list):
        inner_items = [list(islice(_orders(item), MAX_ORDERS)) for item in value]
        for turn in range(max(map(len, inner_items), default=1)):
            yield [items[turn % len(items)] for items in inner_items]
    else:
        yield value


def spellings(value: Any) -> Iterator[str]:
    """Other texts of a value than the usual one: escapes, forms of numbers."""
    plain = json.dumps(value)
    if '"' in plain and "a" in plain and "\\" not in plain:
        yield plain.replace("a", "\\u0061")
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (f"{value}.0", f"{value}e0", f"{value * 10}E-1")
        if value == 0:
            yield "-0"
    elif isinstance(value, float):
        yield from (f"{plain}0", f"{plain}e0")
