"""Rewrite past tool calls and results so that a chat template with the given abilities renders all of them.

No message is changed in place, and messages without calls and results are returned unchanged. Tools that may be called
now are not known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from espalier.chat.prompt.abilities import THOUGHT_KEYS, Abilities
from espalier.chat.wire.formats import OPENAI, WireFormat
from espalier.chat.wire.render import render_calls

Message = dict[str, Any]

_NINE = re.compile(r"[A-Za-z0-9]{9}")


def has_past_calls(messages: Iterable[Message]) -> bool:
    return any(message.get("role") == "tool" or _calls(message) for message in messages)


def rewrite_past_calls(messages: Sequence[Message], abilities: Abilities, wire: WireFormat = OPENAI) -> list[Message]:
    """Rewrite checked messages. A result gets the name of the call with its id.

    wire: how calls are spelled in a message's content if the template does not render calls.
    """
    if abilities.thought_key:
        messages = [_with_thought(message, abilities) for message in messages]
    if abilities.tool_calls and not abilities.many_calls:
        messages = _with_single_calls(messages)
    rewritten: list[Message] = []
    names: dict[str, str] = {}
    results: list[str] = []  # consecutive results become one message: templates want users and assistants to alternate
    for message in messages if abilities.any_id else _with_short_ids(messages):
        if message["role"] == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id", ""))
            if not abilities.tool_role:
                results.append(f"Result{f' of {name}' if name else ''}:\n{message['content']}")
                continue
            message = {**message, "name": name} if name else message
        elif calls := _calls(message):
            names |= {call["id"]: call["function"]["name"] for call in calls if "id" in call}
            message = _with_calls(message, abilities, wire)
        rewritten += [*_join_results(results), message]
        results = []
    return rewritten + _join_results(results)


def _calls(message: Message) -> list[dict[str, Any]]:
    """The calls of a message. Other roles may have anything in this field, which is not checked."""
    return message.get("tool_calls", []) if message.get("role") == "assistant" else []


def _join_results(results: Sequence[str]) -> list[Message]:
    return [{"role": "user", "content": "\n\n".join(results)}] if results else []


def _with_calls(message: Message, abilities: Abilities, wire: WireFormat) -> Message:
    calls = message["tool_calls"]
    if abilities.tool_calls:
        spell = _as_object if abilities.call_objects else _as_text
        spelled = [
            {**call, "function": {**call["function"], "arguments": spell(call["function"]["arguments"])}}
            for call in calls
        ]
        return {**message, "tool_calls": spelled}
    text = render_calls(wire, [(call["function"]["name"], _as_object(call["function"]["arguments"])) for call in calls])
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": f"{message['content']}\n{text}" if message["content"] else text}


def _with_thought(message: Message, abilities: Abilities) -> Message:
    """The message with its reasoning where the template looks for it; in front of the content where a message with
    calls may not have both."""
    if message.get("role") != "assistant":
        return message
    key = abilities.thought_key
    thought = next((message[name] for name in THOUGHT_KEYS if isinstance(message.get(name), str)), "")
    if not thought:
        return message
    if not abilities.thought_with_content and message["content"] and _calls(message):
        return {**message, key: f"{thought}\n\n{message['content']}", "content": ""}
    return {**message, key: thought}


def _with_single_calls(messages: Sequence[Message]) -> list[Message]:
    """Each call in a message of its own, with its result behind it: that with its id, else the first that is left."""
    split: list[Message] = []
    todo = [*messages]
    while todo:
        message = todo.pop(0)
        calls = _calls(message)
        if len(calls) < 2:
            split.append(message)
            continue
        results: list[Message] = []
        while todo and todo[0].get("role") == "tool":
            results.append(todo.pop(0))
        known = {call.get("id") for call in calls}
        rest = {key: value for key, value in message.items() if key not in THOUGHT_KEYS} | {"content": ""}
        for place, call in enumerate(calls):
            split.append({**(rest if place else message), "tool_calls": [call]})
            own = [result for result in results if result.get("tool_call_id") == call.get("id")]
            free = [result for result in results if result.get("tool_call_id") not in known]
            for result in own or free[:1]:
                results.remove(result)
                split.append(result)
        split += results
    return split


def _as_object(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Give ids of nine letters and digits, numbered in order of the calls, to calls whose ids are different. A result
    without an id gets that of the call at its position since the last message with calls."""
    used = {call.get("id") for message in messages for call in _calls(message)}
    numbers = (number for number in (f"{place:09d}" for place in count(1)) if number not in used)
    known: dict[str, str] = {}
    waiting: list[str] = []

    def nine(call_id: str | None) -> str:
        if call_id is None:
            return next(numbers)
        if _NINE.fullmatch(call_id):
            return call_id
        if call_id not in known:
            known[call_id] = next(numbers)
        return known[call_id]

    changed: list[Message] = []
    for message in messages:
        if _calls(message):
            calls = [{**call, "id": nine(call.get("id"))} for call in _calls(message)]
            waiting = [call["id"] for call in calls]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            call_id = message.get("tool_call_id")
            message = {**message, "tool_call_id": waiting.pop(0) if call_id is None and waiting else nine(call_id)}
        changed.append(message)
    return changed
