"""Lists every subschema of a schema document with its JSON pointer, in the order of the text.

    subschemas({"items": {"type": "null"}})      ("", {"items": …}), ("/items", {"type": "null"})

Unlike `documents.py` it skips what is malformed, follows no reference and knows neither drafts nor `$id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from espalier.schema.pointers import below
from espalier.schema.read.drafts import LISTS, MAPS, ONE
from espalier.time_limit import check as check_time

Node: TypeAlias = "Mapping[str, Any] | bool"


def subschemas(schema: Node) -> Iterator[tuple[str, Node]]:
    """Every schema in the document and its JSON pointer, the whole first."""
    stack: list[tuple[str, Node]] = [("", schema)]
    while stack:
        check_time()
        pointer, node = stack.pop()
        yield pointer, node
        if isinstance(node, Mapping):
            stack.extend(reversed(list(_children(pointer, node))))


SAYING = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames")
"""Keywords that say what undeclared names are."""


def has_closed_objects(schema: Node, *, closed: bool = False) -> bool:
    """Whether no object with declared properties may have others too. closed: objects whose schema says nothing of
    other names take none."""
    objects = (node for _, node in subschemas(schema) if isinstance(node, Mapping) and node.get("properties"))
    return all(
        node.get("unevaluatedProperties", node.get("additionalProperties")) is False
        or (closed and not any(name in node for name in SAYING))
        for node in objects
    )


def has_closable_objects(schema: Node) -> bool:
    """Whether an object declares properties, and says nothing of other names."""
    nodes = (node for _, node in subschemas(schema) if isinstance(node, Mapping))
    return any("properties" in node and not any(name in node for name in SAYING) for node in nodes)


def _children(pointer: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    for key, value in node.items():
        if key in ONE and isinstance(value, Mapping | bool):
            yield below(pointer, key), value
        if (key in LISTS or key == "items") and isinstance(value, list):
            yield from ((below(pointer, key, i), v) for i, v in enumerate(value) if isinstance(v, Mapping | bool))
        if key in MAPS and isinstance(value, Mapping):
            yield from ((below(pointer, key, name), v) for name, v in value.items() if isinstance(v, Mapping | bool))
