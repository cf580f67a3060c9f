"""Rewrites a plain schema for llguidance: a schema that uses only keywords that llguidance is known to read correctly.

Annotations are dropped, references are collected in `$defs`, and lists of `items` become `prefixItems`. Anything else,
malformed schemas included, makes the whole schema not plain; our own automaton then enforces it or explains the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from espalier.constraints.json_schema.safe_patterns import narrow, needs_no_escape
from espalier.schema.order import DEFAULT, Order
from espalier.schema.pointers import DanglingPointer, local_pointer, trail
from espalier.schema.read.drafts import DRAFT2020, DRAFTS, Draft, misshapen
from espalier.time_limit import check as check_time

Pending: TypeAlias = "list[tuple[Any, dict[Any, Any] | list[Any], Any]]"
"""Sub-schemas still to be rewritten: (sub-schema, container, key in the container)."""

MAX_VALUES = 2_000
"""The most values of an `enum`; more are faster as an automaton of their spellings."""
MAX_NODES = 20_000
"""The most sub-schemas."""
SPELLED = {*map(chr, range(0x20)), "\x7f"} - set("\b\t\n\f\r")
"""Characters that llguidance drops from constants if `\\u` escapes are not allowed."""
EXACT = 1 << 53
"""llguidance keeps numbers in constants as doubles: larger integers would come out changed."""
TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def _is_kept(value: object) -> bool:
    """Whether llguidance writes a scalar constant, other than a string, unchanged."""
    if isinstance(value, int) and abs(value) > EXACT:
        return False
    return isinstance(value, int | float | bool | None) and not (value == 0 and str(value).startswith("-"))


class NotPlain(Exception):
    """The schema uses something that llguidance is not known to read correctly."""


def plain(schema: Any, *, order: Order = DEFAULT) -> Any | None:
    """The schema rewritten for llguidance, None if it is not plain. order: the order of properties, as in
    `schema.expand`; llguidance has no objects in any order."""
    if order == "any":
        return None
    stated = schema.get("$schema") if isinstance(schema, Mapping) else None
    draft = DRAFT2020 if stated is None else DRAFTS.get(str(stated).rstrip("#"))
    if draft is None:
        return None
    try:
        return _Writer(schema, draft, order).run()
    except NotPlain:
        return None


class _Writer:
    def __init__(self, schema: Any, draft: Draft, order: Order) -> None:
        self._root = schema
        self._draft = draft
        self._order = order
        self._names: dict[str, str] = {}  # by reference: the name in $defs
        self._defs: dict[str, Any] = {}
        self._pending: Pending = []
        self._count = 0

    def run(self) -> Any:
        if not isinstance(self._root, Mapping):
            raise NotPlain
        out: dict[str, Any] = {}
        self._pending.append((self._root, out, "root"))
        while self._pending:
            check_time()
            node, target, key = self._pending.pop()
            target[key] = self._node(node, is_root=node is self._root)
        root: dict[str, Any] = out["root"]
        return root | {"$defs": self._defs} if self._defs else root

    def _node(self, node: Any, *, is_root: bool) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise NotPlain
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            raise NotPlain
        draft = self._draft
        if draft.id_keyword in node and not (is_root and isinstance(node[draft.id_keyword], str)):
            raise NotPlain
        if draft.ref_alone and "$ref" in node:
            node = {"$ref": node["$ref"]}
        made: dict[str, Any] = {}
        for keyword, value in node.items():
            if keyword not in draft.keywords:
                continue
            if misshapen(draft, keyword, value) is not None:
                raise NotPlain  # the normal form raises an error with the pointer
            if keyword in SILENT:
                continue
            write = WRITERS.get(keyword)
            if write is None:
                raise NotPlain
            write(self, keyword, value, node, made)
        if ("enum" in made or "const" in made) and not made.keys() <= {"enum", "const", "type"}:
            raise NotPlain
        if "enum" in made and "const" in made:
            raise NotPlain
        if made.get("minProperties", 0) > 1 and (
            made.get("additionalProperties", True) is not False or "patternProperties" in made
        ):
            raise NotPlain  # llguidance would count an undeclared key that occurs twice as two
        return made

    # One method for each group of keywords. Each raises NotPlain for a value of an unexpected shape.

    def pattern(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        """A pattern that matches the same, or less, in ECMA-262, Python and Rust."""
        found = narrow(value) if isinstance(value, str) else None
        if found is None or not needs_no_escape(found):
            raise NotPlain
        made[keyword] = found

    def number(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NotPlain
        made[keyword] = value

    def factor(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        """`multipleOf`, for integers only: llguidance's arithmetic is not known to be exact for other numbers."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise NotPlain
        made[keyword] = value

    def count(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise NotPlain
        made[keyword] = value

    def types(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or any(n not in TYPES for n in names if isinstance(n, str)):
            raise NotPlain
        if any(not isinstance(name, str) for name in names):
            raise NotPlain
        made[keyword] = value

    def names(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
            raise NotPlain
        made[keyword] = list(dict.fromkeys(value))

    def values(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        listed = [value] if keyword == "const" else value
        if not isinstance(listed, list) or not 0 < len(listed) <= MAX_VALUES:
            raise NotPlain
        todo = list(listed)
        while todo:
            check_time()
            one = todo.pop()
            if isinstance(one, str):
                if not SPELLED.isdisjoint(one):
                    raise NotPlain
            elif isinstance(one, list):
                todo += one
            elif isinstance(one, dict):
                todo += [*one, *one.values()]
            elif not _is_kept(one):
                raise NotPlain
        made[keyword] = value

    def child(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        made[keyword] = None  # keeps the key's place in the order
        self._pending.append((value, made, keyword))

    def items(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        """`items`, which may be a list in older drafts; `additionalItems` is then for the items after it."""
        if not isinstance(value, list):
            if self._draft.item_lists and "prefixItems" in made:
                raise NotPlain
            self.child("items", value, node, made)
            return
        if not self._draft.item_lists or not value:
            raise NotPlain
        self.children("prefixItems", value, node, made)
        if "additionalItems" in node:
            self.child("items", node["additionalItems"], node, made)

    def children(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if not isinstance(value, list) or not value:
            raise NotPlain
        listed: list[Any] = [None] * len(value)
        made[keyword] = listed
        self._pending += [(one, listed, i) for i, one in enumerate(value)]

    def properties(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if not isinstance(value, Mapping) or any(not isinstance(name, str) for name in value):
            raise NotPlain
        if keyword == "patternProperties":
            value = _narrowed(value, node)
            if not all(needs_no_escape(pattern) for pattern in value):
                raise NotPlain
        listed: dict[str, Any] = dict.fromkeys(self._sorted(value, node) if keyword == "properties" else value)
        made[keyword] = listed
        self._pending += [(value[name], listed, name) for name in listed]

    def _sorted(self, properties: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
        """The property names in the requested order."""
        if self._order == "schema":
            return list(properties)
        wanted = {name: i for i, name in enumerate(self._order)} if isinstance(self._order, tuple) else {}
        required = node.get("required")
        needed = set(required) if isinstance(required, list) and self._order == "required-first" else set(properties)
        return sorted(properties, key=lambda name: (wanted.get(name, len(wanted)), name not in needed))

    def reference(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        if not isinstance(value, str):
            raise NotPlain
        if value not in self._names:
            self._names[value] = str(len(self._names))
            self._pending.append((self._target(value), self._defs, self._names[value]))
        made["$ref"] = f"#/$defs/{self._names[value]}"

    def _target(self, reference: str) -> Any:
        pointer = local_pointer(reference)
        if pointer is None:
            raise NotPlain
        if not pointer:
            return dict(self._root)  # a copy is not treated as the root, whose `$id` it repeats
        try:
            on_the_way = [value for _, value in trail(self._root, pointer)]
        except DanglingPointer:
            raise NotPlain from None
        if any(isinstance(value, Mapping) and self._draft.id_keyword in value for value in on_the_way):
            raise NotPlain  # the part is inside a resource with another address
        return on_the_way[-1]

    def condition(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        """`if` without `then` or `else`, which asserts nothing."""
        if "then" in node or "else" in node:
            raise NotPlain

    def false_only(self, keyword: str, value: Any, node: Mapping[str, Any], made: dict[str, Any]) -> None:
        """`uniqueItems: false`, which asserts nothing."""
        if value is not False:
            raise NotPlain


def _narrowed(patterns: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """`patternProperties` with patterns that match the same in all dialects, because a name that one misses would fall
    to another sub-schema. A single pattern may match less if no other names are allowed."""
    if all("$" not in pattern and narrow(pattern) == pattern for pattern in patterns):
        return patterns
    declared = node.get("properties")
    names = declared if isinstance(declared, Mapping) else {}
    is_closed = node.get("additionalProperties") is False and all(n.isascii() and n.isprintable() for n in names)
    if len(patterns) != 1 or not is_closed:
        raise NotPlain
    ((pattern, inner),) = patterns.items()
    found = narrow(pattern)
    if found is None:
        raise NotPlain
    return {found: inner}


SILENT = {"format", "minContains", "maxContains", "then", "else", "additionalItems"}
"""Keywords that assert nothing by themselves; the keywords that they depend on are not plain. (A schema whose `format`
is to be asserted does not come here.)"""

Write: TypeAlias = Callable[[_Writer, str, Any, Mapping[str, Any], dict[str, Any]], None]
# `exclusiveMinimum` and `exclusiveMaximum` are not here: llguidance 1.9.1 accepts 0 for `{"exclusiveMinimum": 0,
# "maximum": 0.5}`.
WRITERS: dict[str, Write] = {
    "$ref": _Writer.reference,
    "type": _Writer.types,
    "enum": _Writer.values,
    "const": _Writer.values,
    "properties": _Writer.properties,
    "patternProperties": _Writer.properties,
    "additionalProperties": _Writer.child,
    "required": _Writer.names,
    "items": _Writer.items,
    "prefixItems": _Writer.children,
    "allOf": _Writer.children,
    "anyOf": _Writer.children,
    "oneOf": _Writer.children,
    "minimum": _Writer.number,
    "maximum": _Writer.number,
    "multipleOf": _Writer.factor,
    "minLength": _Writer.count,
    "maxLength": _Writer.count,
    "minItems": _Writer.count,
    "maxItems": _Writer.count,
    "minProperties": _Writer.count,
    "maxProperties": _Writer.count,
    "pattern": _Writer.pattern,
    "uniqueItems": _Writer.false_only,
    "if": _Writer.condition,
}
