"""Writes a closed schema (`closing.py`) out for other programs: `additionalProperties: false` where a schema
declares all names of a value.

    {"properties": {"a": A}}      {"properties": {"a": A}, "additionalProperties": false}

Schemas that apply to one value together get it once, with the names of all of them. What stands in `not`, `if` and
`contains`, a definition that is used both alone and together with others, and an option of `oneOf` that a value may
satisfy beside another option, stays as it is: there the text may have more names than a closed schema allows, and the
verdict on it says so. (A closed option refuses more, so a value that `oneOf` refused for satisfying two would satisfy
one.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from espalier.schema.normal.closing import is_closable, says_others
from espalier.schema.read.documents import SchemaStore, Subschema
from espalier.schema.read.unknown import ANNOTATIONS
from espalier.time_limit import check as check_time

MAX_OPTIONS = 200
"""Options of one `oneOf` that are compared in pairs; more stay as they are."""
TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
TOGETHER = ("allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose schemas apply to the same value."""
OPTIONS = ("anyOf", "oneOf", "allOf")
"""Those that a schema may consist of: each option of it is then a schema of its own."""
ASIDE = ("not", "if", "contains", "propertyNames")
"""Keywords whose schemas are no part of what a value is made of."""


def closed_document(schema: Any, documents: Mapping[str, Any] | None = None) -> Any:
    """The schema, as a new JSON value. Raises as `SchemaStore` does."""
    if not isinstance(schema, dict):
        return schema
    copied = json.loads(json.dumps(schema))
    store = SchemaStore(copied, documents)
    closing = _Closing(store)
    closed = {subschema: names for subschema in closing.whole if (names := closing.names(subschema)) is not None}
    for subschema, names in closed.items():
        subschema.value["properties"] = dict.fromkeys(names, True) | subschema.value.get("properties", {})
        subschema.value["additionalProperties"] = False
    return copied


@dataclass(frozen=True, slots=True)
class _Facts:
    """What all values of a schema have in common."""

    #: The types that they have.
    types: set[str]
    #: The names that objects among them have.
    required: set[str]
    #: By name, the scalars that can be its value in such an object, each with whether it is a boolean.
    values: dict[str, set[tuple[bool, Any]]]

    def add(self, schema: Mapping[str, Any], keywords: frozenset[str]) -> None:
        """Take in what a schema says itself."""
        if "type" in schema:
            names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            self.types.intersection_update({*names, *(("integer",) if "number" in names else ())})
        if isinstance(schema.get("required"), list):
            self.required.update(schema["required"])
        for name, inner in schema.get("properties", {}).items():
            if isinstance(inner, dict) and "$ref" not in inner:
                listed = [inner["const"]] if "const" in inner and "const" in keywords else inner.get("enum")
                if isinstance(listed, list) and not any(isinstance(value, dict | list) for value in listed):
                    scalars = {(isinstance(value, bool), value) for value in listed}
                    self.values[name] = self.values.get(name, scalars) & scalars


class _Closing:
    """whole: the schemas of the main document that say alone what a value is. partial: those that apply together with
    others, or aside."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self.whole: dict[Subschema, None] = {}
        self.partial: set[Subschema] = set()
        self._known: dict[Subschema, _Facts] = {}
        choices: list[list[Subschema]] = []
        todo = [store.main.root]
        met: set[Subschema] = set()
        while todo:
            subschema = todo.pop()
            if subschema in met:
                continue
            met.add(subschema)
            aside = [kid for keyword in ASIDE for kid in _kids(subschema, keyword)]
            for kid in aside:
                self.partial.update(self._below(kid))
            choices += [options for part in self.parts(subschema) if (options := _kids(part, "oneOf"))]
            inner = self._alone(subschema)
            if inner is not None:
                todo += inner
                continue
            self.whole[subschema] = None
            parts = list(self.parts(subschema))
            self.partial.update(parts[1:])
            inner = _apart(parts)
            for kid in (kid for part in parts for kid in _values_in(part) if kid not in inner):
                self.partial.update(self._below(kid))
            todo += inner
        self.whole = {subschema: None for subschema in self.whole if subschema.resource.document is store.main}
        self._open_options(choices)

    def _open_options(self, choices: list[list[Subschema]]) -> None:
        """Leave open what options of `oneOf` that do not exclude one another lead to."""
        opened: set[Subschema] = set()
        count = -1
        while count < len(opened):  # an option that stays open may overlap with more of the others
            count = len(opened)
            for options in choices:
                for option, other in permutations(options, 2):
                    check_time()
                    if other in opened or (len(options) <= MAX_OPTIONS and self._excludes(option, other)):
                        continue
                    opened.add(other)
                    self.partial.update(self._below(other))

    def names(self, subschema: Subschema) -> dict[str, None] | None:
        """The names that a value of a schema can have once it is closed; None for one that stays as it is."""
        if subschema not in self.whole or subschema in self.partial:
            return None
        parts = list(self.parts(subschema))
        if not any(map(is_closable, parts)) or any(map(_says_more, parts)):
            return None
        return dict.fromkeys(name for part in parts for name in _declared_names(part))

    def _excludes(self, option: Subschema, other: Subschema) -> bool:
        """Whether no value that satisfies one option of `oneOf`, closed where it is to be closed, and another one as it
        stands, could be refused by the other once that is closed."""
        facts, others = self._facts(option), self._facts(other)
        common = facts.types & others.types
        if "array" in common and any(_kids(part, keyword) for part in self.parts(other) for keyword in OF_ITEMS):
            return False
        if "object" not in common:
            return True
        names = self.names(self._single(option))
        if names is not None and not others.required <= names.keys():
            return True
        return any(
            not values & others.values[name]
            for name, values in facts.values.items()
            if name in others.values and name in facts.required | others.required
        )

    def _single(self, subschema: Subschema) -> Subschema:
        """The schema that this one stands for: what its only reference leads to."""
        seen = {subschema}
        while (inner := self._alone(subschema)) and len(inner) == 1 and inner[0] not in seen:
            subschema = inner[0]
            seen.add(subschema)
        return subschema

    def _facts(self, subschema: Subschema) -> _Facts:
        """What all values of a schema have in common."""
        if subschema in self._known:
            return self._known[subschema]
        facts = self._known[subschema] = _Facts(set(TYPES), set(), {})
        todo, seen = [subschema], {subschema}
        while todo:
            current = todo.pop()
            schema, keywords = current.value, current.resource.draft.keywords
            if not isinstance(schema, dict):
                continue
            inner = _kids(current, "allOf")
            if isinstance(schema.get("$ref"), str):
                inner = [*inner, self._store.resolve(current, schema["$ref"], "$ref")[0]]
            if not ("$ref" in schema and current.resource.draft.ref_alone):
                facts.add(schema, keywords)
            todo += [kid for kid in inner if kid not in seen]
            seen.update(inner)
        return facts

    def _alone(self, subschema: Subschema) -> list[Subschema] | None:
        """The schemas of which each alone says what the value is, where this one says nothing itself; else None."""
        if not isinstance(subschema.value, dict):
            return []
        said = [name for name in subschema.value if name not in ANNOTATIONS and name not in ("$defs", "definitions")]
        said = [name for name in said if name in subschema.resource.draft.keywords]
        if "$ref" in said and (subschema.resource.draft.ref_alone or len(said) == 1):
            return [self._store.resolve(subschema, subschema.value["$ref"], "$ref")[0]]
        if len(said) == 1 and said[0] in OPTIONS:
            options = _kids(subschema, said[0])
            return options if said[0] != "allOf" or len(options) == 1 else None
        return None

    def parts(self, subschema: Subschema) -> Iterator[Subschema]:
        """The schema, and all that apply to the same value with it."""
        todo, seen = [subschema], {subschema}
        while todo:
            current = todo.pop()
            yield current
            inner = [kid for keyword in TOGETHER for kid in _kids(current, keyword)]
            if isinstance(current.value, dict) and isinstance(current.value.get("$ref"), str):
                inner.append(self._store.resolve(current, current.value["$ref"], "$ref")[0])
            for kid in inner:
                if kid not in seen:
                    seen.add(kid)
                    todo.append(kid)

    def _below(self, subschema: Subschema) -> Iterator[Subschema]:
        """Every schema that one leads to."""
        todo, seen = [subschema], {subschema}
        while todo:
            current = todo.pop()
            yield current
            for part in self.parts(current):
                for kid in (part, *_values_in(part), *(kid for keyword in ASIDE for kid in _kids(part, keyword))):
                    if kid not in seen:
                        seen.add(kid)
                        todo.append(kid)


def _says_more(subschema: Subschema) -> bool:
    """Whether a schema says what undeclared names are, or lists its values."""
    if not isinstance(subschema.value, dict):
        return False
    return (
        says_others(subschema.value, subschema.resource.draft.keywords)
        or "enum" in subschema.value
        or "const" in subschema.value
    )


def _apart(parts: list[Subschema]) -> list[Subschema]:
    """The schemas of the values inside a value, where each alone says what its value is."""
    if len(parts) == 1 and not _kids(parts[0], "patternProperties"):
        return _values_in(parts[0])
    if any(_kids(part, keyword) for part in parts for keyword in VALUES[1:]):
        return []
    named = [name for part in parts for name in (part.kids.get("properties") or ())]
    return [
        kid for part in parts for name, kid in (part.kids.get("properties") or {}).items() if named.count(name) == 1
    ]


def _kids(subschema: Subschema, keyword: str) -> list[Subschema]:
    kid = subschema.kids.get(keyword)
    if kid is None or keyword not in subschema.resource.draft.keywords:
        return []
    return list(kid.values()) if isinstance(kid, dict) else [kid]


OF_ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems")
VALUES = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", *OF_ITEMS)


def _values_in(subschema: Subschema) -> list[Subschema]:
    """The schemas of the values inside the value of one."""
    return [kid for keyword in VALUES for kid in _kids(subschema, keyword)]


def _declared_names(subschema: Subschema) -> Iterator[str]:
    schema = subschema.value
    if not isinstance(schema, dict):
        return
    yield from schema.get("properties", ())
    yield from schema.get("required", ())
    for keyword in ("dependentRequired", "dependencies"):
        for others in schema.get(keyword, {}).values():
            yield from others if isinstance(others, list) else ()
