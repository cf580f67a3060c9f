"""Turns the messages of `/v1/messages`, which are made of content blocks, into chat messages. It knows no model.

A user's message with results of tools becomes one message for each result, and one for the text around them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.server.asking.adapted import Talk
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Json = dict[str, Any]
BETWEEN = "\n\n"
"""What stands between two blocks of text in a prompt."""
FAILED = "Error: "
"""What stands before the result of a tool that failed."""
ROLES = ("user", "assistant", "system")


def talk_of(system: str | Sequence[Any] | None, messages: Sequence[Any]) -> Talk:
    """The chat messages. Raises BadRequest and UnsupportedParameter naming the block."""
    talk = Talk()
    if system:
        text = system if isinstance(system, str) else _texts(system, "system")
        talk.add({"role": "system", "content": text}, "system")
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        role = message.get("role")
        if role not in ROLES:
            raise BadRequest(f"{place}: the role is one of {', '.join(ROLES)}", field=f"{place}.role")
        content = message.get("content")
        if isinstance(content, str):
            talk.add({"role": role, "content": content}, place)
            continue
        if not isinstance(content, list):
            raise BadRequest(f"{place}: content is a text or a list of blocks", field=f"{place}.content")
        if role == "assistant":
            _assistant(content, place, talk)
        elif role == "system":
            talk.add({"role": role, "content": _texts(content, f"{place}.content")}, place)
        else:
            _user(content, place, talk)
    return talk


def _user(content: Sequence[Any], place: str, talk: Talk) -> None:
    texts: list[str] = []

    def flush() -> None:
        if texts:
            talk.add({"role": "user", "content": BETWEEN.join(texts)}, place)
            texts.clear()

    for index, block in enumerate(content):
        here = f"{place}.content[{index}]"
        if _kind(block, here, ("text", "tool_result")) == "text":
            texts.append(_text(block, "text", here))
            continue
        flush()
        given = block.get("content")
        text = "" if given is None else given if isinstance(given, str) else _texts(given, f"{here}.content")
        text = FAILED + text if block.get("is_error") else text
        talk.add({"role": "tool", "tool_call_id": _text(block, "tool_use_id", here), "content": text}, here)
    flush()
    if not content:
        talk.add({"role": "user", "content": ""}, place)


def _assistant(content: Sequence[Any], place: str, talk: Talk) -> None:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    number = len(talk.messages)
    kinds = ("text", "tool_use", "thinking", "redacted_thinking")
    for index, block in enumerate(content):
        here = f"{place}.content[{index}]"
        kind = _kind(block, here, kinds)
        if kind == "text":
            texts.append(_text(block, "text", here))
        elif kind == "thinking":
            thoughts.append(_text(block, "thinking", here))
        elif kind == "redacted_thinking":
            talk.warnings.append(f"{here}: redacted thinking cannot be read here and was left out")
        else:
            given = block.get("input")
            if not isinstance(given, Mapping):
                raise BadRequest(f"{here}: input is an object", field=f"{here}.input")
            function = {"name": _text(block, "name", here), "arguments": json.dumps(given, ensure_ascii=False)}
            inner = f"messages[{number}].tool_calls[{len(calls)}]"
            talk.places |= {inner: here, f"{inner}.function": here}
            calls.append({"id": _text(block, "id", here), "type": "function", "function": function})
    message: Json = {"role": "assistant", "content": BETWEEN.join(texts)}
    if thoughts:
        message["reasoning_content"] = BETWEEN.join(thoughts)
    if calls:
        message["tool_calls"] = calls
    talk.add(message, place)


def _texts(blocks: Any, place: str) -> str:
    if not isinstance(blocks, list):
        raise BadRequest(f"{place} is a text or a list of blocks", field=place)
    texts = []
    for index, block in enumerate(blocks):
        here = f"{place}[{index}]"
        _kind(block, here, ("text",))
        texts.append(_text(block, "text", here))
    return BETWEEN.join(texts)


def _kind(block: Any, place: str, known: Sequence[str]) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        raise BadRequest(f"{place}: a block is an object with a type", field=place)
    if kind not in known:
        raise UnsupportedParameter(
            f"{place}: blocks of type {kind[:60]!r} cannot be read here",
            hint=f"one of: {', '.join(known)}",
            field=f"{place}.type",
        )
    return kind


def _text(block: Mapping[str, Any], name: str, place: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{place}: {name} is {'missing' if value is None else 'not a text'}", field=f"{place}.{name}")
    return value
