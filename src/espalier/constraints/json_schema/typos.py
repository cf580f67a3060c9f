"""Tells of unknown keywords in the schemas of a request, and refuses them where a request asks for strictness.

`schema/read/unknown.py` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from espalier.chat.tools import Tool
from espalier.constraints.spec import JsonSchema, Spec
from espalier.errors import SchemaError
from espalier.schema.read.unknown import unknown_keywords

SHOWN = 8
"""Keywords that the notes of one schema name at most."""


def typo_notes(constraint: Spec | None, tools: Sequence[Tool] = ()) -> tuple[str, ...]:
    """A note for each unknown keyword in the schemas of a constraint and of tools."""
    notes: list[str] = []
    for name, schema in _schemas(constraint, tools):
        unknown = unknown_keywords(schema)
        notes += [f"{name}: {typo}" for typo in unknown[:SHOWN]]
        if (more := len(unknown) - SHOWN) > 0:
            notes.append(f"{name}: and {more} more unknown keyword{'s' * (more > 1)}")
    return tuple(dict.fromkeys(notes))


def refuse_unknown(constraint: Spec | None, tools: Sequence[Tool], why: str) -> None:
    """Raises SchemaError for the first unknown keyword in the schemas of a constraint and of tools."""
    for _, schema in _schemas(constraint, tools):
        refuse_typos(schema, why)


def refuse_typos(schema: Any, why: str) -> None:
    """Raises SchemaError for the first unknown keyword. why: what asks for strictness."""
    for typo in unknown_keywords(schema):
        message = f"`{typo.keyword}` is no keyword of JSON Schema, and {why}"
        raise SchemaError(message, pointer=typo.pointer, hint=typo.hint)


def _schemas(constraint: Spec | None, tools: Sequence[Tool]) -> Iterator[tuple[str, Any]]:
    for part in () if constraint is None else constraint.walk():
        if isinstance(part, JsonSchema):
            yield "schema", part.schema
    for tool in tools:
        yield f"tool {tool.name}", json.loads(tool.parameters)
