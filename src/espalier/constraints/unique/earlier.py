"""Whether a begun item is already known to differ from the items before it.

An object differs from another once a declared member does, and a list once an item does: what follows cannot change
that. `{"name": "b", "help": "` differs from `{"name": "a", "help": ""}`, since its name is whole.
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterator
from typing import Any, TypeAlias

from espalier.constraints.unique.values import read_value, value_keys
from espalier.schema.lowering.rulebook import escaped

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|"')
BLANK = b" \t\r\n"

KINDS = dict(zip(b'"{[tfn', ("string", "object", "array", "boolean", "boolean", "null"), strict=True))

ItemParts: TypeAlias = "str | tuple[frozenset[Hashable], ...] | dict[str, frozenset[Hashable]]"
"""An item by the keys of its own items or members, see `values.py`; any other value by its type."""
EarlierItems: TypeAlias = "tuple[EarlierItems, ItemParts] | None"
"""The items before, as a linked list, the last one first."""


def differs_from_all(begun: bytes, earlier: EarlierItems, declared: Container[bytes]) -> bool:
    """Whether an item differs from all before it, whatever follows; False where that is not known.

    begun: what is written of the item. declared: the names, as written, of members that occur once at most.
    """
    begun = begun.strip(BLANK)
    if not begun:
        return False
    kind = _kind_of(begun[0])
    if kind not in ("object", "array"):
        return all(item != kind for item in _items(earlier))
    whole = _whole_part(begun)
    if kind == "array":
        first = _parts(read_value(whole + b"]"))
        return not any(isinstance(item, tuple) and _begins_alike(item, first) for item in _items(earlier))
    own = {name: keys for name, keys in _parts(read_value(whole + b"}")).items() if escaped(name).encode() in declared}
    return not any(isinstance(item, dict) and _holds(item, own) for item in _items(earlier))


def parts_of(item: bytes) -> ItemParts:
    """What an item as it is written is remembered by. Raises ValueError for what is no JSON value."""
    kind = _kind_of(item[0])
    return kind if kind not in ("object", "array") else _parts(read_value(item))


def _items(earlier: EarlierItems) -> Iterator[ItemParts]:
    while earlier is not None:
        earlier, item = earlier
        yield item


def _parts(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(frozenset(value_keys(inner)) for inner in value)
    return {name: frozenset(value_keys(inner)) for name, inner in value.items()}


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
