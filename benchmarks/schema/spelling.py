"""Writes one JSON value in many ways: in the order that its schema declares, and in other spellings of the same value.

A constraint may fix the order of properties, the spelling of numbers, whitespace and escapes; it refuses a value only
if it refuses all of these texts. This module does not know the engine that enforces the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import islice, permutations, product
from typing import Any

from benchmarks.schema.cases import Number
from espalier.schema.pointers import DanglingPointer, follow, is_pointer, split_reference

MAX_ORDERS = 120  # orders of properties that are tried for one value
MAX_DEPTH = 40  # of schemas that lead to one another


def compact(data: Any) -> str:
    """As `json.dumps`, without spaces and with required escapes only; numbers keep their spelling."""
    return _written(data, str, ",", ":", ascii_only=False)


def canonical(data: Any) -> str:
    """The same with numbers in their shortest plain spelling: 1.0 is `1`, 1e3 is `1000`."""
    return _written(data, plain_number, ",", ":", ascii_only=False)


def plain_number(spelled: str) -> str:
    """A number without exponent and trailing zeros, `-0` as `0`; unchanged if that takes more than 400 characters."""
    value = Decimal(spelled)
    if abs(value.adjusted()) > 400:
        return spelled
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def spellings(data: Any, schema: Any) -> Iterator[str]:
    """Other texts of the value than `compact(in_order(data, schema))`, although the first one may be equal to it:
    usual spellings of numbers, spaces after `,` and `:`, escapes, other orders."""
    ordered = in_order(data, schema)
    for value in (ordered, data):
        yield compact(value)
        yield canonical(value)
        yield _written(value, str, ", ", ": ", ascii_only=False)
        yield _written(value, str, ",", ":", ascii_only=True)
        yield _written(value, _with_fraction, ",", ":", ascii_only=False)
    for other in islice(_orders(data), MAX_ORDERS):
        yield canonical(other)


def _with_fraction(spelled: str) -> str:
    text = plain_number(spelled)
    return text if "." in text or "e" in text.lower() else f"{text}.0"


def _written(data: Any, number: Callable[[str], str], comma: str, colon: str, *, ascii_only: bool) -> str:
    if isinstance(data, Number):
        return number(data)
    inner = [
        _written(v, number, comma, colon, ascii_only=ascii_only)
        for v in (data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ())
    ]
    if isinstance(data, Mapping):
        names = [json.dumps(name, ensure_ascii=ascii_only) for name in data]
        return "{" + comma.join(f"{name}{colon}{value}" for name, value in zip(names, inner, strict=True)) + "}"
    if isinstance(data, list):
        return "[" + comma.join(inner) + "]"
    return json.dumps(data, ensure_ascii=ascii_only)


def _orders(data: Any) -> Iterator[Any]:
    """The value with the properties of its objects in every order, up to MAX_ORDERS."""
    if isinstance(data, Mapping):
        inner = [list(islice(_orders(value), 24)) for value in data.values()]
        for names in permutations(range(len(data))):
            keys = [list(data)[i] for i in names]
            for values in product(*(inner[i] for i in names)):
                yield dict(zip(keys, values, strict=True))
    elif isinstance(data, list) and any(isinstance(v, Mapping | list) for v in data):
        for values in product(*(list(islice(_orders(value), 24)) for value in data)):
            yield list(values)
    else:
        yield data


def in_order(data: Any, schema: Any) -> Any:
    """The value with its properties in the order in which the schema first names them, and others after them. Which
    branch of the schema applies is not judged."""
    return _ordered(data, (schema,), schema)


def _ordered(data: Any, schemas: tuple[Any, ...], whole: Any) -> Any:
    nodes = list(_applicable(schemas, whole))
    if isinstance(data, Mapping):
        named = {name: None for node in nodes for name in _names(node)}
        names = [*(n for n in named if n in data), *(n for n in data if n not in named)]
        return {n: _ordered(data[n], tuple(_of_name(nodes, n)), whole) for n in names}
    if isinstance(data, list):
        return [_ordered(v, tuple(_of_item(nodes, i)), whole) for i, v in enumerate(data)]
    return data


def _names(node: Mapping[str, Any]) -> Iterator[str]:
    for key in ("properties", "required", "dependentSchemas", "dependentRequired", "dependencies"):
        value = node.get(key)
        if isinstance(value, Mapping | list):
            yield from (name for name in value if isinstance(name, str))


def _of_name(nodes: list[Mapping[str, Any]], name: str) -> Iterator[Any]:
    for node in nodes:
        declared = node.get("properties")
        if isinstance(declared, Mapping) and name in declared:
            yield declared[name]
            continue
        patterns = node.get("patternProperties")
        yield from patterns.values() if isinstance(patterns, Mapping) else ()
        yield from (node[key] for key in ("additionalProperties", "unevaluatedProperties") if key in node)


def _of_item(nodes: list[Mapping[str, Any]], place: int) -> Iterator[Any]:
    for node in nodes:
        items = node.get("items")
        prefix = node.get("prefixItems", items if isinstance(items, list) else [])
        if isinstance(prefix, list) and place < len(prefix):
            yield prefix[place]
        elif not isinstance(items, list):
            yield from (node[key] for key in ("items", "unevaluatedItems", "contains") if key in node)
        else:
            yield node.get("additionalItems")


def _applicable(schemas: tuple[Any, ...], whole: Any) -> Iterator[Mapping[str, Any]]:
    """The schemas and all schemas that they apply to the same value, each once, in the order of the text."""
    seen: set[int] = set()
    stack = [(schema, 0) for schema in reversed(schemas)]
    while stack:
        node, depth = stack.pop()
        if not isinstance(node, Mapping) or id(node) in seen or depth > MAX_DEPTH:
            continue
        seen.add(id(node))
        yield node
        below: list[Any] = []
        for key, value in node.items():
            if key in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
                below += value
            elif key in ("if", "then", "else"):
                below.append(value)
            elif key in ("dependentSchemas", "dependencies") and isinstance(value, Mapping):
                below += value.values()
            elif key in ("$ref", "$dynamicRef") and isinstance(value, str):
                below.append(_target(value, whole))
        stack += [(child, depth + 1) for child in reversed(below)]


def _target(reference: str, whole: Any) -> Any:
    """The target of a pointer or an anchor within the document; None for any other reference."""
    address, fragment = split_reference(reference)
    if not is_pointer(fragment):
        return next((n for n in _all(whole) if fragment in (n.get("$anchor"), n.get("$dynamicAnchor"))), None)
    if address and not fragment:
        return next((n for n in _all(whole) if str(n.get("$id", "")).endswith(address)), None)
    try:
        return follow(whole, fragment)
    except DanglingPointer:
        return None


def _all(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        yield node
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _all(child)
