"""Check chat messages in OpenAI's shape, and normalise them to plain dicts. Templates are not known here.

Calls of an assistant message keep their arguments as given, as JSON text or as an object: which of the two a template
reads is not known here. Arguments that a token limit cut off, as replies have them, are closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.chat.call_ids import is_own_id
from espalier.chat.reading.cut_json import close_json
from espalier.chat.tools import NAME
from espalier.errors import InputError

ROLES = ("system", "developer", "user", "assistant", "tool")
CALL_SHAPE = '{"id": ..., "type": "function", "function": {"name": ..., "arguments": "{...}"}}'
_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXTS = {"assistant": ("reasoning_content", "reasoning"), "tool": ("tool_call_id", "name")}
"""Role -> fields that must be text if they are given; null counts as missing."""


def check_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Copies of the messages, with text parts joined. Raises InputError naming the message and the field."""
    if not messages:
        raise InputError("there are no messages", field="messages")
    return tuple(_check(i, message) for i, message in enumerate(messages))


def _check(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise InputError(f"{where} is not an object with `role` and `content`", field=where)
    role = message.get("role")
    if role not in ROLES:
        raise InputError(f"{where}: unknown role {role!r}", hint=f"one of: {', '.join(ROLES)}", field=f"{where}.role")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part(f"{where}.content[{i}]", part) for i, part in enumerate(content))
    elif content is None and message.get("tool_calls"):
        content = ""
    if not isinstance(content, str):
        raise InputError(f"{where}: content must be text or a list of text parts", field=f"{where}.content")
    _unicode(content, where, "content")
    checked = {**message, "role": role, "content": content}
    for name in _TEXTS.get(role, ()):
        _text(checked, name, where)
    if role == "assistant" and "tool_calls" in checked:
        calls = checked.pop("tool_calls")
        if calls:  # null and [] are no calls; templates that test for the field's presence must not see them
            checked["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    return checked


def _part(where: str, part: Any) -> str:
    if isinstance(part, Mapping) and part.get("type") in ("text", "input_text") and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise InputError(f"{where}: only text parts can be read, not {kind!r}", field=where)


def _text(message: dict[str, Any], name: str, where: str) -> None:
    value = message.get(name)
    if value is None:
        message.pop(name, None)
    elif isinstance(value, str):
        _unicode(value, where, name)
    else:
        raise InputError(f"{where}: {name} is text, not {type(value).__name__}", field=f"{where}.{name}")


def _unicode(text: str, where: str, name: str) -> None:
    if _SURROGATE.search(text):
        raise InputError(f"{where}: {name} is not valid Unicode", field=f"{where}.{name}")


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Sequence):
        raise InputError(f"{where} is a list of calls", hint=CALL_SHAPE, field=where)
    return [_call(call, f"{where}[{place}]") for place, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise InputError(f"{where}: a call is an object, not {type(call).__name__}", hint=CALL_SHAPE, field=where)
    checked = {**call, "type": call.get("type", "function")}
    if checked["type"] != "function":
        raise InputError(
            f"{where}: calls of type {checked['type']!r} cannot be read", hint='only "function"', field=f"{where}.type"
        )
    _text(checked, "id", where)
    inner = call.get("function")
    where = f"{where}.function"
    if not isinstance(inner, Mapping):
        raise InputError(f"{where}: the call names no function", hint=CALL_SHAPE, field=where)
    name = inner.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{where}: {name!r} is no name of a tool", hint=CALL_SHAPE, field=f"{where}.name")
    checked["function"] = {
        **inner,
        "arguments": _arguments(inner.get("arguments"), where, closes=is_own_id(checked.get("id"))),
    }
    return checked


def _arguments(arguments: Any, where: str, *, closes: bool) -> Any:
    """The arguments as given, text or object; an object is copied, and half of a surrogate pair is replaced. closes:
    whether a text that is cut off is closed, as in a call of ours that met the token limit."""
    fault = InputError(
        f"{where}: the arguments are not JSON of an object", hint='"{}" for none', field=f"{where}.arguments"
    )
    try:
        if isinstance(arguments, str):
            arguments, parsed = _parse_text(arguments, closes=closes)
            text = json.dumps(parsed, ensure_ascii=False)
        else:
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            parsed = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise fault from error
    if not isinstance(parsed, dict):
        raise fault
    if _SURROGATE.search(text):  # half of a pair, which a model wrote as an escape
        return json.loads(_SURROGATE.sub("\ufffd", text))
    return arguments if isinstance(arguments, str) else parsed


def _parse_text(arguments: str, *, closes: bool) -> tuple[str, Any]:
    """The text of a JSON value, with `closes` closed where it is cut off, and the value. Raises ValueError."""
    text = arguments if arguments.strip() else "{}"
    try:
        # A number too large for a float is JSON; NaN and Infinity are not.
        return text, json.loads(text, parse_constant=_refuse)
    except ValueError:
        if not closes:
            raise
        closed = close_json(text)
        return closed, json.loads(closed)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
