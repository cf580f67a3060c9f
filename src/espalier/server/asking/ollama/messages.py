"""Turns the messages of `/api/chat` into chat messages: calls get ids, and results the id of their call. It knows no
model.

Ollama's results of tools name the tool, not the call: each answers to the first open call of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.server.asking.adapted import Talk
from espalier.server.bodies.echoed import ECHOED
from espalier.server.bodies.fields import unknown
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Json = dict[str, Any]
NO_ARGUMENTS: Json = {}
KNOWN = frozenset({"role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id", "name"})
"""Fields of a message that do something, or are refused."""


@dataclass(slots=True)
class _OpenCalls:
    """The calls that have no result yet: id and name of each, in order."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0

    def new_id(self) -> str:
        self.count += 1
        return f"call_{self.count}"

    def answer(self, name: str | None) -> str:
        """The id of the call that a result answers to."""
        match = next((call for call in self.calls if call[1] == name), None)
        if match is None and self.calls:
            match = self.calls[0]
        if match is None:
            return self.new_id()
        self.calls.remove(match)
        return match[0]


def talk_of(messages: Sequence[Mapping[str, Any]]) -> Talk:
    """The chat messages. Raises BadRequest and UnsupportedParameter naming the message."""
    talk, open_calls = Talk(), _OpenCalls()
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.get("images"):
            raise UnsupportedParameter(
                f"{place}.images is not supported here", hint="this model reads text only", field=f"{place}.images"
            )
        for name, value in message.items():
            if name not in KNOWN and name not in ECHOED and value is not None:
                talk.warnings.append(str(unknown(name, KNOWN, within=place)))
        role = message.get("role")
        role = role.lower() if isinstance(role, str) else role
        content = message.get("content")
        chat: Json = {"role": role, "content": "" if content is None else content}
        if role == "assistant":
            if message.get("thinking"):
                chat["reasoning_content"] = message["thinking"]
            if message.get("tool_calls"):
                chat["tool_calls"] = _calls(message["tool_calls"], place, open_calls)
        elif role == "tool":
            tool = message.get("tool_name") or message.get("name")
            chat["tool_call_id"] = message.get("tool_call_id") or open_calls.answer(tool)
            if tool:
                chat["name"] = tool
        talk.add(chat, place)
    return talk


def _calls(calls: Any, place: str, open_calls: _OpenCalls) -> list[Json]:
    where = f"{place}.tool_calls"
    if not isinstance(calls, list):
        raise BadRequest(f"{where} is a list of calls", field=where)
    open_calls.calls.clear()  # a new turn: what the calls before it left open is not answered any more
    chat_calls: list[Json] = []
    for index, call in enumerate(calls):
        here = f"{where}[{index}]"
        inner = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise BadRequest(
                f"{here}: the call names no function",
                hint='{"function": {"name": ..., "arguments": {...}}}',
                field=f"{here}.function",
            )
        call_id = call.get("id") or open_calls.new_id()
        arguments = inner.get("arguments")
        function = {"name": inner["name"], "arguments": NO_ARGUMENTS if arguments is None else arguments}
        open_calls.calls.append((call_id, inner["name"]))
        chat_calls.append({"id": call_id, "type": "function", "function": function})
    return chat_calls
