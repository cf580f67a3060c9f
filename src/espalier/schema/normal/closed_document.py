"""Writes a closed schema (`closing.py`) out for other programs: `additionalProperties: false` where a schema
declares all names of a value.

    {"properties": {"a": A}}      {"properties": {"a": A}, "additionalProperties": false}

Schemas that apply to one value together get it once, with the names of all of them. What stands in `not`, `if` and
`contains`, and a definition that is used both alone and together with others, stays as it is: there the text may have
more names than a closed schema allows, and the verdict on it says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from espalier.schema.normal.closing import is_closable, says_others
from espalier.schema.read.documents import SchemaStore, Subschema
from espalier.schema.read.unknown import ANNOTATIONS

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
    for one in closing.whole:
        parts = list(closing.parts(one))
        if one in closing.partial or not any(map(is_closable, parts)):
            continue
        if any(_says_more(part) for part in parts):
            continue
        names = {name: True for part in parts for name in _declared(part)}
        one.value["properties"] = names | one.value.get("properties", {})
        one.value["additionalProperties"] = False
    return copied


class _Closing:
    """whole: the schemas of the main document that say alone what a value is. partial: those that apply together with
    others, or aside."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self.whole: dict[Subschema, None] = {}
        self.partial: set[Subschema] = set()
        todo = [store.main.root]
        met: set[Subschema] = set()
        while todo:
            one = todo.pop()
            if one in met:
                continue
            met.add(one)
            aside = [kid for keyword in ASIDE for kid in _kids(one, keyword)]
            for kid in aside:
                self.partial.update(self._below(kid))
            inner = self._alone(one)
            if inner is not None:
                todo += inner
                continue
            self.whole[one] = None
            parts = list(self.parts(one))
            self.partial.update(parts[1:])
            inner = _apart(parts)
            for kid in (kid for part in parts for kid in _values_in(part) if kid not in inner):
                self.partial.update(self._below(kid))
            todo += inner
        self.whole = {one: None for one in self.whole if one.resource.document is store.main}

    def _alone(self, one: Subschema) -> list[Subschema] | None:
        """The schemas of which each alone says what the value is, where this one says nothing itself; else None."""
        if not isinstance(one.value, dict):
            return []
        said = [name for name in one.value if name not in ANNOTATIONS and name not in ("$defs", "definitions")]
        said = [name for name in said if name in one.resource.draft.keywords]
        if "$ref" in said and (one.resource.draft.ref_alone or len(said) == 1):
            return [self._store.resolve(one, one.value["$ref"], "$ref")[0]]
        if len(said) == 1 and said[0] in OPTIONS:
            options = _kids(one, said[0])
            return options if said[0] != "allOf" or len(options) == 1 else None
        return None

    def parts(self, one: Subschema) -> Iterator[Subschema]:
        """The schema, and all that apply to the same value with it."""
        todo, seen = [one], {one}
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

    def _below(self, one: Subschema) -> Iterator[Subschema]:
        """Every schema that one leads to."""
        todo, seen = [one], {one}
        while todo:
            current = todo.pop()
            yield current
            for part in self.parts(current):
                for kid in (part, *_values_in(part), *(kid for keyword in ASIDE for kid in _kids(part, keyword))):
                    if kid not in seen:
                        seen.add(kid)
                        todo.append(kid)


def _says_more(one: Subschema) -> bool:
    """Whether a schema says what undeclared names are, or lists its values."""
    if not isinstance(one.value, dict):
        return False
    return says_others(one.value, one.resource.draft.keywords) or "enum" in one.value or "const" in one.value


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


def _kids(one: Subschema, keyword: str) -> list[Subschema]:
    kid = one.kids.get(keyword)
    if kid is None or keyword not in one.resource.draft.keywords:
        return []
    return list(kid.values()) if isinstance(kid, dict) else [kid]


VALUES = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems",
          "additionalItems", "unevaluatedItems")  # fmt: skip


def _values_in(one: Subschema) -> list[Subschema]:
    """The schemas of the values inside the value of one."""
    return [kid for keyword in VALUES for kid in _kids(one, keyword)]


def _declared(one: Subschema) -> Iterator[str]:
    schema = one.value
    if not isinstance(schema, dict):
        return
    yield from schema.get("properties", ())
    yield from schema.get("required", ())
    for keyword in ("dependentRequired", "dependencies"):
        for others in schema.get(keyword, {}).values():
            yield from others if isinstance(others, list) else ()
