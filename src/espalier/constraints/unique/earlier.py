"""Whether a begun item is already known to differ from the items before it.

An object differs from another once a declared member does, and a list once an item does: what follows cannot change
that. `{"name": "b", "help": "` differs from `{"name": "a", "help": ""}`, since its name is whole.
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from espalier.constraints.unique.values import BLANK, added, read_value, value_keys
from espalier.constraints.watching import Seen
from espalier.schema.lowering.rulebook import escaped

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]|"')

KINDS = dict(zip(b'"{[tfn', ("string", "object", "array", "boolean", "boolean", "null"), strict=True))
CONTAINERS = {"object": b"}", "array": b"]"}
"""The kinds of values that have parts, and what ends them."""

ItemParts: TypeAlias = Mapping[Hashable, frozenset[Hashable]]
"""An object by the keys of its members, see `values.py`, or a list by those of its items; nothing for other values."""


class EarlierItems(NamedTuple):
    """The items before, as a linked list with the last one first, and what their kinds and parts are."""

    before: EarlierItems | None = None
    kind: str = ""
    item: ItemParts = MappingProxyType({})
    #: The kinds of all.
    kinds: frozenset[str] = frozenset()
    #: A name, or the number of an item, with each of its keys.
    parts: Seen = ()


NO_ITEMS = EarlierItems()


def with_item(earlier: EarlierItems, item: bytes) -> EarlierItems:
    """The items with one more, as it is written. Raises ValueError for what is no JSON value."""
    kind = _kind_of(item[0])
    parts = _parts(read_value(item)) if kind in CONTAINERS else {}
    pairs = frozenset([(name, key) for name, keys in parts.items() for key in keys])
    every = added(earlier.parts, pairs) if pairs else earlier.parts
    return EarlierItems(earlier, kind, parts, earlier.kinds | {kind}, every)


def differs_from_all(begun: bytes, earlier: EarlierItems, declared: Container[bytes]) -> bool:
    """Whether an item differs from all before it, whatever follows; False where that is not known.

    begun: what is written of the item. declared: the names, as written, of members that occur once at most.
    """
    begun = begun.strip(BLANK)
    if not begun:
        return False
    kind = _kind_of(begun[0])
    if kind not in earlier.kinds:
        return True
    if kind not in CONTAINERS:
        return False
    parts = _parts(read_value(_whole_part(begun) + CONTAINERS[kind]))
    if kind == "object":
        parts = {name: keys for name, keys in parts.items() if escaped(str(name)).encode() in declared}
    for name, keys in parts.items():
        if not any((name, key) in some for key in keys for some in earlier.parts):
            return True  # no item before has this part
    return not any(_holds(item, parts) for item in _items(earlier, kind))


def _items(earlier: EarlierItems | None, kind: str) -> Iterator[ItemParts]:
    while earlier is not None:
        if earlier.kind == kind:
            yield earlier.item
        earlier = earlier.before


def _parts(value: Any) -> ItemParts:
    members = enumerate(value) if isinstance(value, list) else value.items()
    return {name: frozenset(value_keys(inner)) for name, inner in members}


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


def _holds(item: ItemParts, parts: ItemParts) -> bool:
    return all(name in item and item[name] & keys for name, keys in parts.items())
