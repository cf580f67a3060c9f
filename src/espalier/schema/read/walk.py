"""The subschemas of a JSON Schema document with their pointers, as they are written. It resolves no `$id`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from espalier.time_limit import check as check_time

INDEX = re.compile("0|[1-9][0-9]{0,8}")
"""A step of a pointer into a list (RFC 6901)."""
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
                    yield f"{pointer}/{key}/{name.replace('~', '~0').replace('/', '~1')}", inner


def resolved(node: Node, whole: Node) -> Node:
    """What a `$ref` within the document leads to, over several; the node itself where that cannot be told."""
    for _ in range(32):
        if not isinstance(node, Mapping) or not isinstance(node.get("$ref"), str):
            return node
        reference = node["$ref"]
        target: Any = whole if reference.startswith("#") else None
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping):
                target = target.get(name)
            else:
                listed = isinstance(target, list) and INDEX.fullmatch(name) is not None and int(name) < len(target)
                target = target[int(name)] if listed else None
        if not isinstance(target, Mapping | bool) or (not reference.startswith("#/") and reference != "#"):
            return node
        node = target
    return node
