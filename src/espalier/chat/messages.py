"""Chat messages as every edge takes them: checked, plain, OpenAI's shape. They know no template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from espalier.errors import InputError

ROLES = ("system", "developer", "user", "assistant", "tool")


def check_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Copies of the messages, text parts joined. Raises InputError naming the message and the field."""
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
    if any(0xD800 <= ord(c) < 0xE000 for c in content):
        raise InputError(f"{where}: content is not valid Unicode", field=f"{where}.content")
    return {**message, "role": role, "content": content}


def _part(where: str, part: Any) -> str:
    if isinstance(part, Mapping) and part.get("type") in ("text", "input_text") and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise InputError(f"{where}: only text parts can be read, not {kind!r}", field=where)
