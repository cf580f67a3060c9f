"""Checks that every part of a JSON Schema has a finite instance (by least fixpoint), and that references resolve.

llguidance compiles a schema that requires itself; a model that enters such a part can never finish. Keywords that only
restrict values are ignored: in these the check errs towards "finite".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from espalier.errors import SchemaError, UnsupportedError
from espalier.schema.pointers import DanglingPointer, below, follow, is_pointer, split_reference
from espalier.time_limit import check as check_time

SchemaNode: TypeAlias = "Mapping[str, Any] | bool"

LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCALARS = {"string", "number", "integer", "boolean", "null"}


def check_finite(schema: SchemaNode) -> None:
    """Raises SchemaError with the pointer of the first part that a document can enter but never finish, or of a
    reference that leads to nothing; UnsupportedError for a reference to another document."""
    nodes = dict(reachable(schema))
    finite: set[str] = set()
    while True:
        check_time()
        more = {p for p, node in nodes.items() if p not in finite and _is_finite(p, node, finite)}
        if not more:
            break
        finite |= more
    for pointer in nodes:
        if pointer not in finite:
            raise SchemaError(
                "no document can satisfy this part: it requires itself without end",
                pointer=pointer,
                hint="make a property of the cycle optional, or allow another alternative",
            )


def reachable(schema: SchemaNode) -> Iterator[tuple[str, SchemaNode]]:
    """The sub-schemas that a document can enter, with their pointers, the whole first."""
    seen = {""}
    stack: list[tuple[str, SchemaNode]] = [("", schema)]
    while stack:
        check_time()
        pointer, node = stack.pop()
        yield pointer, node
        if isinstance(node, bool):
            continue
        for child, inner in reversed(list(_children(schema, pointer, node))):
            if child not in seen:
                seen.add(child)
                stack.append((child, inner))


def _children(schema: SchemaNode, pointer: str, node: Mapping[str, Any]) -> Iterator[tuple[str, SchemaNode]]:
    if "$ref" in node:
        yield resolve(schema, node["$ref"], f"{pointer}/$ref")
    for key in ("properties", "patternProperties"):
        for name, inner in _mapping(node.get(key)).items():
            yield below(pointer, key, name), inner
    for key in LISTS:
        for i, inner in enumerate(node.get(key) or ()):
            yield f"{pointer}/{key}/{i}", inner
    for key in ("items", "additionalProperties"):
        inner = node.get(key)
        if isinstance(inner, Mapping):
            yield f"{pointer}/{key}", inner


def resolve(schema: SchemaNode, reference: Any, at: str) -> tuple[str, SchemaNode]:
    """A local reference: its pointer and target. Raises SchemaError, UnsupportedError."""
    if not isinstance(reference, str):
        raise SchemaError("a reference is a string", pointer=at)
    base = schema.get("$id", "") if isinstance(schema, Mapping) else ""
    document, pointer = split_reference(reference)
    if document and document != base:
        raise UnsupportedError(f"the reference {reference!r} at {at} leads to another document", hint="put it in $defs")
    if not is_pointer(pointer):
        raise UnsupportedError(f"the anchor {reference!r} at {at} cannot be followed yet", hint="use a JSON pointer")
    try:
        node = follow(schema, pointer)
    except DanglingPointer:
        raise SchemaError(f"the reference {reference!r} leads to nothing", pointer=at) from None
    if not isinstance(node, Mapping | bool):
        raise SchemaError(f"the reference {reference!r} does not lead to a schema", pointer=at)
    return pointer, node


def _is_finite(pointer: str, node: SchemaNode, finite: set[str]) -> bool:
    if isinstance(node, bool):
        return True  # `false` inside is the end of a branch, which llguidance itself leaves out
    if "const" in node or "enum" in node:
        return True
    if "$ref" in node and split_reference(node["$ref"])[1] not in finite:
        return False
    if any(f"{pointer}/allOf/{i}" not in finite for i in range(len(node.get("allOf") or ()))):
        return False
    for key in ("anyOf", "oneOf"):
        options = node.get(key) or ()
        if options and not any(f"{pointer}/{key}/{i}" in finite for i in range(len(options))):
            return False
    kinds = node.get("type")
    names = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else None
    if names is None or names & SCALARS:
        return True
    return ("object" in names and _object(pointer, node, finite)) or (
        "array" in names and _array(pointer, node, finite)
    )


def _object(pointer: str, node: Mapping[str, Any], finite: set[str]) -> bool:
    properties = _mapping(node.get("properties"))
    # A name that is not declared falls to additionalProperties, unless a pattern may cover it: what the pattern leads
    # to is judged where it stands.
    others_end = (
        not isinstance(node.get("additionalProperties"), Mapping)
        or f"{pointer}/additionalProperties" in finite
        or bool(node.get("patternProperties"))
    )
    return all(
        below(pointer, "properties", name) in finite if name in properties else others_end
        for name in node.get("required") or ()
    )


def _array(pointer: str, node: Mapping[str, Any], finite: set[str]) -> bool:
    least = node.get("minItems") or 0
    first = len(node.get("prefixItems") or ())
    if any(f"{pointer}/prefixItems/{i}" not in finite for i in range(int(min(least, first)))):
        return False
    return least <= first or not isinstance(node.get("items"), Mapping) or f"{pointer}/items" in finite


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
