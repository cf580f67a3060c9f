"""The subschemas of a JSON Schema document with their pointers, as they are written. It resolves no `$id`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from espalier.schema.pointers import below
from espalier.time_limit import check as check_time

Node: TypeAlias = "Mapping[str, Any] | bool"

SINGLE = (
    *("items", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("not", "if", "then", "else"),
)
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


def subschemas(schema: Node) -> Iterator[tuple[str, Node]]:
    """Every schema in the document and its JSON pointer, the whole first, in the order in which they are written."""
    stack: list[tuple[str, Node]] = [("", schema)]
    while stack:
        check_time()
        pointer, node = stack.pop()
        yield pointer, node
        if isinstance(node, Mapping):
            stack.extend(reversed(list(_children(pointer, node))))


def _children(pointer: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    for key, value in node.items():
        if key in SINGLE and isinstance(value, Mapping | bool):
            yield f"{pointer}/{key}", value
        if key in LISTS and isinstance(value, list):
            yield from ((f"{pointer}/{key}/{i}", v) for i, v in enumerate(value) if isinstance(v, Mapping | bool))
        if key in MAPS and isinstance(value, Mapping):
            for name, inner in value.items():
                if isinstance(inner, Mapping | bool):
                    yield below(pointer, key, name), inner
