"""Turns the items of `/v1/responses` into chat messages. It knows no model and no tool.

Consecutive items of the model (reasoning, a message, calls) become one assistant message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from espalier.server.asking.adapted import Talk
from espalier.server.asking.custom_tools import arguments_of
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Json = dict[str, Any]
ROLES = ("user", "assistant", "system", "developer")
TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Content parts that are text, and their field that has it."""
OWN_SUMMARY = "espalier:"
"""How the `encrypted_content` of a compaction of ours begins; the rest of it is the summary as plain text."""
SUMMARY_BEGINS = "Summary of the conversation so far:\n"


class Conversation(Talk):
    """Its items are added one after the other."""

    __slots__ = ()

    def own(self, place: str, kind: str) -> Json:
        """The assistant's message to which an item of this kind belongs: the last one, or a new one. Text after calls,
        and reasoning after either, begins a new one."""
        last = self.messages[-1] if self.messages else {}
        before = {"reasoning": ("reasoning_content", "content", "tool_calls"), "content": ("content", "tool_calls")}
        if last.get("role") != "assistant" or any(last.get(name) is not None for name in before.get(kind, ())):
            self.add({"role": "assistant"}, place)
        return self.messages[-1]


def conversation_of(items: Sequence[Any], *, field_name: str = "input", first: int = 0) -> Conversation:
    """The messages of the items. first: the number of items before them that came from the store, and have no place in
    the body. Raises BadRequest and UnsupportedParameter naming the item."""
    conversation = Conversation()
    for index, item in enumerate(items):
        place = f"{field_name}[{index - first}]" if index >= first else "previous_response_id"
        if not isinstance(item, Mapping):
            raise BadRequest(f"{place}: an item is an object", field=place)
        kind = item.get("type", "message")
        reader = READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise UnsupportedParameter(
                f"{place}: items of type {str(kind)[:60]!r} cannot be read here",
                hint=f"one of: {', '.join(READERS)}",
                field=f"{place}.type",
            )
        reader(item, place, conversation)
    return conversation


def _message(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    role = item.get("role")
    if role not in ROLES:
        raise BadRequest(f"{place}: the role is one of {', '.join(ROLES)}", field=f"{place}.role")
    content = text_of(item.get("content"), f"{place}.content")
    if role != "assistant":
        conversation.add({"role": role, "content": content}, place)
        return
    conversation.own(place, "content")["content"] = content


def _call(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    arguments = _text(item, "arguments", place)
    _add_call(item, arguments or "{}", place, conversation)


def _custom_call(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    _add_call(item, arguments_of(_text(item, "input", place)), place, conversation)


def _add_call(item: Mapping[str, Any], arguments: str, place: str, conversation: Conversation) -> None:
    call = {
        "id": _text(item, "call_id", place),
        "type": "function",
        "function": {"name": _text(item, "name", place), "arguments": arguments},
    }
    message = conversation.own(place, "call")
    calls = message.setdefault("tool_calls", [])
    here = f"messages[{len(conversation.messages) - 1}].tool_calls[{len(calls)}]"
    conversation.places |= {here: place, f"{here}.function": place, f"{here}.id": f"{place}.call_id"}
    calls.append(call)


def _output(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    output = text_of(item.get("output"), f"{place}.output")
    conversation.add({"role": "tool", "tool_call_id": _text(item, "call_id", place), "content": output}, place)
    conversation.places[f"messages[{len(conversation.messages) - 1}].content"] = f"{place}.output"


def _reasoning(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    """What the model thought: the text itself, or its summary."""
    parts = [*_parts(item, "content", place), *([] if item.get("content") else _parts(item, "summary", place))]
    if not parts:
        if item.get("encrypted_content"):
            conversation.warnings.append(f"{place}: encrypted reasoning cannot be read here and was left out")
        return
    conversation.own(place, "reasoning")["reasoning_content"] = "\n\n".join(parts)


def _compaction(item: Mapping[str, Any], place: str, conversation: Conversation) -> None:
    """The summary of what came before, as the assistant's words."""
    summary = _text(item, "encrypted_content", place)
    if not summary.startswith(OWN_SUMMARY):
        conversation.warnings.append(f"{place}: an encrypted summary cannot be read here and was left out")
        return
    text = SUMMARY_BEGINS + summary.removeprefix(OWN_SUMMARY)
    conversation.add({"role": "assistant", "content": text}, place)


def _parts(item: Mapping[str, Any], name: str, place: str) -> list[str]:
    given = item.get(name)
    if given is None:
        return []
    if not isinstance(given, list):
        raise BadRequest(f"{place}: {name} is a list", field=f"{place}.{name}")
    return [
        _text(part if isinstance(part, Mapping) else {}, "text", f"{place}.{name}[{i}]") for i, part in enumerate(given)
    ]


def text_of(content: Any, place: str) -> str:
    """The text of a content: a text, or a list of parts. Raises UnsupportedParameter for a part that is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest(f"{place} is a text or a list of parts", field=place)
    texts = []
    for index, part in enumerate(content):
        here = f"{place}[{index}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or not isinstance(kind, str):
            raise BadRequest(f"{here}: a part is an object with a type", field=here)
        if kind not in TEXTS:
            raise UnsupportedParameter(f"{here}: only text can be read, not {kind[:60]!r}", field=f"{here}.type")
        texts.append(_text(part, TEXTS[kind], here))
    return "".join(texts)


def _text(item: Mapping[str, Any], name: str, place: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{place}: {name} is {'missing' if value is None else 'not a text'}", field=f"{place}.{name}")
    return value


READERS: Mapping[str, Callable[[Mapping[str, Any], str, Conversation], None]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "reasoning": _reasoning,
    "compaction": _compaction,
}
