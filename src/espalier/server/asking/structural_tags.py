"""Reads structural tags, as vLLM and SGLang take them: free text in which a trigger opens a region under a schema.

The old form is translated where that is exact, the newer one of xgrammar is refused with the construct named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from espalier.constraints.free import Free, Region
from espalier.constraints.spec import Spec
from espalier.server.http.errors import BadRequest, UnsupportedParameter

SHAPE = '{"structures": [{"begin": "<a>", "schema": {...}, "end": "</a>"}], "triggers": ["<a>"]}'
INSTEAD = "use `tools`, or `espalier.constraint` with kind `free`"


def structural_tag(given: Any, path: str, read_schema: Callable[[Any], Spec]) -> Spec:
    """The constraint. given: the object or its JSON text; a `type` beside it is read too. read_schema: from a schema to
    its constraint. Raises BadRequest for another shape, UnsupportedParameter naming the construct, SpecError."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the structural tag is not JSON: {str(error)[:200]}", field=path) from error
    if not isinstance(given, Mapping):
        raise BadRequest("a structural tag is an object", hint=SHAPE, field=path)
    if "format" in given:
        inner = given["format"]
        kind = inner.get("type") if isinstance(inner, Mapping) else None
        raise UnsupportedParameter(
            f"structural tags with `format` are not supported here: {str(kind)[:40]!r}", hint=INSTEAD,
            field=f"{path}.format",
        )  # fmt: skip
    structures, triggers = given.get("structures"), given.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures:
        raise BadRequest("a structural tag has structures and triggers", hint=SHAPE, field=path)
    regions: dict[str, Region] = {}
    for place, one in enumerate(structures):
        where = f"{path}.structures[{place}]"
        if not isinstance(one, Mapping) or not all(isinstance(one.get(name), str) for name in ("begin", "end")):
            raise BadRequest("a structure has begin, schema and end", hint=SHAPE, field=where)
        begin = one["begin"]
        if begin not in triggers:
            raise UnsupportedParameter(
                f"the trigger of {begin[:40]!r} is only its beginning, which is not supported here",
                hint=f"make {begin[:40]!r} itself a trigger, or {INSTEAD}", field=f"{where}.begin",
            )  # fmt: skip
        if begin in regions:
            raise UnsupportedParameter(
                f"two structures begin with {begin[:40]!r}", hint=INSTEAD, field=f"{where}.begin"
            )
        schema = one.get("schema")
        if not isinstance(schema, Mapping | bool):
            raise BadRequest("a structure has a schema", hint=SHAPE, field=f"{where}.schema")
        regions[begin] = Region(read_schema(schema), end=one["end"])
    unused = [str(one)[:40] for one in triggers if one not in regions]
    if unused:
        raise BadRequest(f"no structure begins with the trigger {unused[0]!r}", field=f"{path}.triggers")
    return Free(regions)
