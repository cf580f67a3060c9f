"""Checks a schema document as far as reading it goes: keyword values of the wrong shape, and references to nothing.

It follows only what is applied: a reference in a definition that nothing uses is no fault. What a schema means, whether
any document satisfies it, and what can be enforced is found out when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.schema.read.documents import DEFINITIONS, SchemaStore, Subschema


def check_document(schema: Any, documents: Mapping[str, Any] | None = None) -> None:
    """documents: other schemas by address. Raises SchemaError with a pointer, UnsupportedError for a draft that is not
    known, or a document that is not among `documents`."""
    store = SchemaStore(schema, documents)
    seen: set[int] = set()
    todo = [store.main.root]
    while todo:
        one = todo.pop()
        if id(one) in seen or not isinstance(one.value, dict):
            continue
        seen.add(id(one))
        if "$ref" in one.value:
            todo.append(store.resolve(one, one.value["$ref"], "$ref")[0])
            if one.resource.draft.ref_alone:
                continue
        for keyword, kid in one.kids.items():
            if keyword not in DEFINITIONS:
                todo += [kid] if isinstance(kid, Subschema) else kid.values()
