"""Says one setting in the words of the place where it is read: a flag, an argument of Python, a field of a request,
an argument of a tool of agents. Errors are written once, with Python's arguments in their hints (`num_beams=4`).

It knows names of arguments, flags and fields, and no error's cause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

Edge = Literal["cli", "python", "http", "tool"]

OWN = frozenset(
    ("activations", "allow", "closed", "drafts", "max_calls", "max_reasoning", "max_rewinds", "on_budget",
     "particles", "preset", "reasoning", "safety", "sampler", "schema_in_prompt", "schema_order", "soft", "strategy",
     "target", "tool_format", "trace")
)  # fmt: skip
"""Settings that stand in the `espalier` of a request body; all others stand in the body itself."""
FLAGS: Mapping[str, str] = {
    "JsonSchema": "--schema SCHEMA", "Regex": "--regex PATTERN", "Choice": "--choice TEXT", "Gbnf": "--grammar FILE",
    "JsonObject": "--json-object", "Ban": "--ban TEXT",
}  # fmt: skip
"""Constraint -> its flag."""
FIELDS: Mapping[str, str] = {
    "JsonSchema": '"structured_outputs": {"json": ...}', "Regex": '"structured_outputs": {"regex": ...}',
    "Choice": '"structured_outputs": {"choice": [...]}', "Gbnf": '"structured_outputs": {"grammar": ...}',
    "JsonObject": '"structured_outputs": {"json_object": true}',
}  # fmt: skip
"""Constraint -> its field of a request body; others are an `espalier.constraint`."""
HTTP_ALONE: Mapping[str, str] = {
    "raw=True": "/v1/completions, whose prompt is used as it stands",
    'JsonSchema(schema, allow="checked")': '"espalier": {"allow": "checked"}',
}
"""Hints that are no argument and its value."""
CALL = r"[A-Z]\w*\([^()]*\)"
ARGUMENT = re.compile(rf"""\b([a-z][a-z_]*)=("[^"\s]*"|'[^'\s]*'|True|False|-?[0-9.]*[0-9]|{CALL}|[A-Z]\w*)""")
"""An argument and its value, as hints write them."""


def replaced(hint: str, say: Callable[[str, str], str | None]) -> str:
    """A hint with each argument in other words. say: from name and value; None leaves them as they are."""
    return ARGUMENT.sub(lambda match: say(match[1], match[2]) or match[0], hint)


def in_fields(hint: str) -> str:
    """A hint with fields of a request body in place of arguments of Python."""
    for written, said in HTTP_ALONE.items():
        hint = hint.replace(written, said)
    return replaced(hint, _as_field)


def setting(name: str, value: Any, edge: Edge, *, flag: str) -> str:
    """How to say `name=value` at an edge. flag: how the command line says it."""
    if edge == "cli":
        return flag
    if edge == "python":
        return f"{name}={value!r}".replace("'", '"')
    value_json = json.dumps({name: value})
    return f'"espalier": {value_json}' if edge == "http" and name in OWN else value_json[1:-1]


def _as_field(name: str, written: str) -> str | None:
    if name in ("constraint", "json_schema"):
        kind = written.partition("(")[0]
        return FIELDS.get(kind, '"espalier": {"constraint": {"kind": ...}}')
    try:
        value = json.loads({"True": "true", "False": "false"}.get(written, written.replace("'", '"')))
    except ValueError:
        return None
    return setting(name, value, "http", flag="")
