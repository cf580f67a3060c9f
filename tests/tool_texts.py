"""Tools, random calls of them, and calls written in a format: what tests of tool calls share.

It knows no constraint.
"""

from __future__ import annotations

import json
import random
from typing import Any

from espalier.chat.wire.formats import WIRE_FORMATS, WireFormat, wire_format

FORMATS = [name for name in WIRE_FORMATS if not wire_format(name).in_channels]
"""Formats with free text around the calls. Turns in channels have tests of their own (`test_channels.py`)."""
ALONE = ("args", "tool_args", "openai", "llama3", "pythonic")
"""Formats without a marker."""
TOOLS: dict[str, Any] = {
    "read": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer", "minimum": 1, "maximum": 500}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 12},
            "mode": {"enum": ["fast", "exact", None]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "inside": {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}},
                "required": ["deep"],
                "additionalProperties": False,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
Call = tuple[str, dict[str, Any]]


def random_call(rng: random.Random) -> Call:
    """A call that is valid."""
    name = rng.choice(list(TOOLS))
    values = {
        "path": lambda: _text(rng, 0, 12),
        "lines": lambda: rng.randint(1, 500),
        "query": lambda: _text(rng, 1, 12),
        "mode": lambda: rng.choice(["fast", "exact", None]),
        "tags": lambda: [_text(rng, 0, 5) for _ in range(rng.randint(0, 3))],
        "inside": lambda: {"deep": rng.random() < 0.5},
    }
    schema = TOOLS[name]
    asked = [key for key in schema["properties"] if key in schema.get("required", ()) or rng.random() < 0.5]
    return name, {key: values[key]() for key in asked}


def _text(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choice('ab /.é"\\\n\x01日{}[]<>') for _ in range(rng.randint(low, high)))


def written(wire: WireFormat, *calls: Call) -> str:
    """The calls exactly as the format says."""
    shapes = {"json": _json, "named": _named, "python": _python, "tagged": tagged, "bare": bare}
    inner = wire.separator.join(f"{wire.head}{shapes[wire.shape](wire, *call)}{wire.tail}" for call in calls)
    return f"{wire.begin}{wire.open}{inner}{wire.close}{wire.end}"


def _json(wire: WireFormat, name: str, arguments: dict[str, Any]) -> str:
    return json.dumps({wire.name_key: name, wire.args_key: arguments}, ensure_ascii=False)


def _named(wire: WireFormat, name: str, arguments: dict[str, Any]) -> str:
    return f"{name}{with_id(wire)}{wire.middle}{json.dumps(arguments, ensure_ascii=False)}"


def tagged(wire: WireFormat, name: str, arguments: dict[str, Any]) -> str:
    """A call between tags, texts as they are."""
    values = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    inner = "\n".join(f"{wire.key}{key}{wire.assign}{value}{wire.value_close}" for key, value in values.items())
    return f"{wire.name_open}{name}{wire.middle}{inner}"


def bare(wire: WireFormat, name: str, arguments: dict[str, Any]) -> str:
    """A call in Gemma's notation."""

    def value(given: Any) -> str:
        if isinstance(given, dict):
            return "{" + ",".join(f"{key}:{value(inner)}" for key, inner in given.items()) + "}"
        if isinstance(given, list):
            return f"[{','.join(map(value, given))}]"
        return f"{wire.quote}{given}{wire.quote}" if isinstance(given, str) else json.dumps(given)

    return f"{name}{value(arguments)}"


def with_id(wire: WireFormat) -> str:
    """What stands between a name and the middle, in formats with ids."""
    return {"mistral_id": "[CALL_ID]aB3dE6gH9", "kimi": ":12"}.get(wire.name, "")


def _python(wire: WireFormat, name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_literal(value)}' for key, value in arguments.items())})"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
