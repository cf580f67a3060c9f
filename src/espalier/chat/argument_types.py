"""Which types of JSON value an argument may have, by the tool's schema: formats that write strings as raw text are read
by it.

Parsers and constraints use this one function, so they agree. It may name more types than the schema allows, and never
fewer; it resolves no references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Types = frozenset[str]
ArgumentTypes = Mapping[str, Types]
"""By argument; one that is not named may have any type."""
ALL: Types = frozenset(("null", "boolean", "number", "string", "array", "object"))
STRING: Types = frozenset(("string",))
OLD = ("draft-00", "draft-01", "draft-02", "draft-03", "draft-04")
"""Drafts in which `const` has no meaning, or `anyOf` has none."""
MAX_DEPTH = 20


def argument_types(schema: Any) -> dict[str, Types]:
    """By declared argument of a tool: the types it may have."""
    if not isinstance(schema, Mapping) or "$ref" in schema:
        return {}
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    is_old = any(draft in str(schema.get("$schema", "")) for draft in OLD)
    return {name: _types(inner, is_old, MAX_DEPTH) for name, inner in properties.items()}


def type_of(value: Any) -> str:
    """The type of a JSON value."""
    if value is None:
        return "null"
    for kinds, name in ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kinds):
            return name
    return "number"


def _types(schema: Any, is_old: bool, depth: int) -> Types:
    if not isinstance(schema, Mapping) or "$ref" in schema or not depth:
        return ALL
    types = _read_type_names(schema.get("type", list(ALL)))
    if isinstance(schema.get("enum"), list):
        types &= {type_of(value) for value in schema["enum"]}
    if is_old:
        return types
    if "const" in schema:
        types &= {type_of(schema["const"])}
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            types &= frozenset[str]().union(*(_types(option, is_old, depth - 1) for option in options))
    return types


def _read_type_names(declared: Any) -> Types:
    names = [declared] if isinstance(declared, str) else declared
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ALL
    types = {"number" if name == "integer" else name for name in names}
    return frozenset(types) if types <= ALL else ALL
