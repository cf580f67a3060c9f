"""Checks a schema document as far as reading it goes: keyword values of the wrong shape, and references to nothing.

It follows only what is applied: a reference in a definition that nothing uses is no fault. What a schema means, whether
any document satisfies it, and what can be enforced is found out when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from espalier.errors import UnsupportedError
from espalier.schema.read.documents import DEFINITIONS, SchemaStore, Subschema


def check_document(schema: Any, documents: Mapping[str, Any] | None = None) -> None:
    """documents: other schemas by address; references to none of them are not looked at. Raises SchemaError with a
    pointer, UnsupportedError for a draft that is not known."""
    store = SchemaStore(schema, documents)
    seen: set[int] = set()
    todo = [store.main.root]
    while todo:
        subschema = todo.pop()
        if id(subschema) in seen or not isinstance(subschema.value, dict):
            continue
        seen.add(id(subschema))
        if "$ref" in subschema.value:
            with suppress(UnsupportedError):  # in a document that is not at hand, which a judge may know
                todo.append(store.resolve(subschema, subschema.value["$ref"], "$ref")[0])
            if subschema.resource.draft.ref_alone:
                continue
        for keyword, kid in subschema.kids.items():
            if keyword not in DEFINITIONS:
                todo += [kid] if isinstance(kid, Subschema) else kid.values()
