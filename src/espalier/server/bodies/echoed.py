"""Messages as SDKs send them back: what a reply contained comes back without harm, and old function calls and calls of
custom tools become those of tools.

It checks no types; the body's class does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from espalier.server.bodies.fields import MOST_UNKNOWN, unknown
from espalier.server.http.errors import UnknownParameter, UnsupportedParameter

MESSAGE = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "function_call"}
)
"""Fields of a message that do something."""
CALL = frozenset({"id", "type", "function"})
FUNCTION = frozenset({"name", "arguments"})
ECHOED = frozenset(
    {
        "parsed",
        "parsed_arguments",
        "refusal",
        "annotations",
        "provider_specific_fields",
        "reasoning_details",
        "thinking_blocks",
        "cache_control",
        "id",
        "index",
        "token_ids",
        "logprobs",
        "status",
        "object",
        "created",
        "model",
        "finish_reason",
        "response_metadata",
        "usage_metadata",
        "additional_kwargs",
        "invalid_tool_calls",
        "extra_content",
        "thought_signature",
        "signature",
        "phase",
        "weight",
        "is_error",
    }
)
"""Fields that replies of ours, of other servers and of SDKs contain, and that say nothing to a model."""
REFUSED = {"audio": "there is text only", "images": "there is text only"}


def as_sent(messages: Any, *, strict: bool) -> tuple[Any, tuple[str, ...]]:
    """The messages without what was only echoed, with old function calls as tool calls, and a warning for each unknown
    field. Raises UnknownParameter if strict, UnsupportedParameter for audio and images.

    What is no list of objects is left as it is, for the body's class to refuse.
    """
    if not isinstance(messages, list):
        return messages, ()
    told: list[str] = []
    converted = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        converted.append(_message(message, where, told, strict=strict) if isinstance(message, Mapping) else message)
    return _as_tools(converted), tuple(dict.fromkeys(told))


def _message(message: Mapping[str, Any], where: str, told: list[str], *, strict: bool) -> dict[str, Any]:
    for name, why in REFUSED.items():
        if message.get(name):
            raise UnsupportedParameter(f"{where}.{name} is not supported here", hint=why, field=f"{where}.{name}")
    if message.get("type") == "message":  # an item of the Responses API
        message = {name: value for name, value in message.items() if name != "type"}
    known = _select_known(message, MESSAGE, where, told, strict=strict)
    calls = known.get("tool_calls")
    if isinstance(calls, list):
        known["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{place}]", told, strict=strict) if isinstance(call, Mapping) else call
            for place, call in enumerate(calls)
        ]
    if known.get("role") == "assistant" and known.get("content") is None:
        known["content"] = ""
    return known


def _call(call: Mapping[str, Any], where: str, told: list[str], *, strict: bool) -> dict[str, Any]:
    if call.get("type") == "custom" and isinstance(custom := call.get("custom"), Mapping):
        function = {"name": custom.get("name"), "arguments": json.dumps({"input": custom.get("input")})}
        call = {**call, "type": "function", "custom": None, "function": function}
    known = _select_known(
        call, CALL, where, told, strict=strict, also={"custom"} if call.get("custom") is None else set()
    )
    if isinstance(call.get("id"), str):
        known["id"] = call["id"]
    if isinstance(inner := known.get("function"), Mapping):
        known["function"] = _select_known(inner, FUNCTION, f"{where}.function", told, strict=strict)
    return known


def _select_known(
    given: Mapping[str, Any],
    known: frozenset[str],
    where: str,
    told: list[str],
    *,
    strict: bool,
    also: frozenset[str] | set[str] = frozenset(),
) -> dict[str, Any]:
    known_fields = {}
    for name, value in given.items():
        if name in known:
            if value is not None or name == "content":
                known_fields[name] = value
        elif value is not None and name not in ECHOED and name not in also and name not in REFUSED:
            error: UnknownParameter = unknown(name, known, within=where)
            if strict or len(told) >= MOST_UNKNOWN:
                raise error
            told.append(str(error))
    return known_fields


def _as_tools(messages: list[Any]) -> list[Any]:
    """Old function calls and their results as tool calls and results; the n-th call answers to the n-th result."""
    tools: list[Any] = []
    count = 0
    for message in messages:
        if not isinstance(message, dict):
            tools.append(message)
            continue
        call = message.pop("function_call", None)
        if call is not None and message.get("role") == "assistant" and not message.get("tool_calls"):
            count += 1
            made = {"id": f"call{count:05d}", "type": "function", "function": call}
            tools.append({**message, "tool_calls": [made]})
        elif message.get("role") == "function":
            tools.append({**message, "role": "tool", "tool_call_id": f"call{count:05d}"})
        else:
            tools.append(message)
    return tools
