"""Tools and calls of them to measure with.

Each tool has five parameters: an enum, a nested object, an array, a number with a range, a text; two are optional.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

VERBS = ("read", "read_file", "search", "create", "update", "delete", "list", "send", "find_by", "sum")
THINGS = ("user", "order", "invoice", "mail", "ticket", "file", "branch", "event", "order_item", "price")


def tools(count: int) -> dict[str, Any]:
    """So many tools by name, no two of them alike."""
    return {f"{VERBS[i % 10]}_{THINGS[i // 10 % 10]}{i // 100 or ''}": _parameters(i) for i in range(count)}


def _parameters(i: int) -> dict[str, Any]:
    thing = THINGS[i % 10]
    properties: dict[str, Any] = {
        f"{thing}_id": {"type": "string", "minLength": 1, "maxLength": 40},
        "mode": {"enum": ["fast", "exact", f"mode-{i}", None]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100 + i},
        "filter": {
            "type": "object",
            "properties": {"field": {"type": "string"}, "value": {"type": ["string", "number", "boolean"]}},
            "required": ["field"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
    }
    required = [f"{thing}_id", "limit", "filter"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def calls(names: list[str]) -> Iterator[str]:
    """Calls of the first, the middle and the last tool, as the compact style writes them."""
    for name in dict.fromkeys((names[0], names[len(names) // 2], names[-1])):
        i = names.index(name)
        arguments = {
            f"{THINGS[i % 10]}_id": "a-17",
            "mode": f"mode-{i}",
            "limit": 42,
            "filter": {"field": "city", "value": "Zürich"},
            "tags": ["new", "blue"],
        }
        call = {"name": name, "arguments": arguments}
        yield json.dumps(call, ensure_ascii=False, separators=(",", ":"))
