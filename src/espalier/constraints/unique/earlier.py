"""Whether a begun item is already known to differ from the items before it.

An object differs from another once a declared member does, and a list once an item does: what follows cannot change
that. `{"name": "b", "help": "` differs from `{"name": "a", "help": ""}`, since its name is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Hashable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from espalier.constraints.unique.values import read_value, value_keys
from espalier.schema.lowering.rulebook import escaped

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|"')
BLANK = b" \t\r\n"

KINDS = dict(zip(b'"{[tfn', ("string", "object", "array", "boolean", "boolean", "null"), strict=True))

ItemKeys: TypeAlias = "str | tuple[frozenset[Hashable], ...] | dict[str, frozenset[Hashable]]"
"""An item by the keys of its own items or members, see `values.py`; any other value by its type."""


def differs_from_all(begun: bytes, earlier: bytes, declared: Container[bytes]) -> bool:
    """Whether an item differs from all before it, whatever follows; False where that is not known.

    begun: what is written of the item. earlier: the items before, with a comma after each. declared: the names, as
    written, of members that occur once at most.
    """
    begun = begun.strip(BLANK)
    if not begun:
        return False
    items = read_items(earlier)
    kind = _kind_of(begun[0])
    if kind not in ("object", "array"):
        return all(item != kind for item in items)
    whole = _whole_part(begun)
    if kind == "array":
        first = _item_keys(read_value(whole + b"]"))
        return not any(isinstance(item, tuple) and _begins_alike(item, first) for item in items)
    own = {
        name: keys for name, keys in _item_keys(read_value(whole + b"}")).items() if escaped(name).encode() in declared
    }
    return not any(isinstance(item, dict) and _holds(item, own) for item in items)


@lru_cache(maxsize=256)
def read_items(earlier: bytes) -> tuple[ItemKeys, ...]:
    """The items of a text with a comma after each."""
    return tuple(map(_item_keys, read_value(b"[" + earlier.rstrip(BLANK + b",") + b"]")))


def _item_keys(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(frozenset(value_keys(inner)) for inner in value)
    if isinstance(value, dict):
        return {name: frozenset(value_keys(inner)) for name, inner in value.items()}
    return "number" if isinstance(value, Fraction) else _kind_of(json.dumps(value).encode()[0])


def _kind_of(first: int) -> str:
    """The type of a value by its first byte; numbers are told by digits and signs."""
    return KINDS.get(first, "number")


def _whole_part(begun: bytes) -> bytes:
    """The beginning of an object or a list up to its last whole member or item, without its end."""
    depth, end = 0, 1
    for token in TOKEN.finditer(begun):
        match token[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b"," if depth == 1:
                end = token.start()
            case b'"':  # the rest is the open string
                break
    return begun[:end]


def _begins_alike(item: tuple[frozenset[Hashable], ...], first: tuple[frozenset[Hashable], ...]) -> bool:
    return len(item) >= len(first) and all(map(frozenset.intersection, item, first))


def _holds(item: dict[str, frozenset[Hashable]], members: dict[str, frozenset[Hashable]]) -> bool:
    return all(name in item and item[name] & keys for name, keys in members.items())
