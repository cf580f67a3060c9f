"""Find out which parts of a chat a template supports, by rendering trial messages and searching their words in the
output.

No template is known by name and no source is read. A template that raises does not support what was tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from espalier.errors import InputError

# Words that no template contains by itself.
TOOL, KEY, VALUE, RESULT, SYSTEM = "zqtoolprobe", "zqkeyprobe", "zqvalueprobe", "zqresultprobe", "zqsystemprobe"
THOUGHT = "zqthoughtprobe"
ARGUMENTS = {KEY: VALUE}
THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Where templates look for the reasoning of an earlier turn."""
OTHER_TOOL, OTHER_NINE = "zqotherprobe", "e4D3c2B1a"
SHORT_ID, LONG_ID, NINE = "call_1", "call_0123456789abcdef01234567", "a1B2c3D4e"
"""The ids that clients send, and the only kind that some templates accept: nine letters and digits."""

_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "A trial.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "A trial."}},
            "required": [KEY],
        },
    },
}
_USER = {"role": "user", "content": "Hello"}


class Render(Protocol):
    """The signature of `ChatTemplate.render`. Raises InputError."""

    def __call__(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """tools: whether the output shows `tools=`. tool_role: whether it shows messages of role `tool`. system_role: the
    same for a system message. tool_calls: the same for calls of assistant messages. call_objects: whether their
    arguments are given as an object, not as JSON text; some templates read only the one, some only the other. any_id:
    whether ids of calls may be any text; False if they must be nine letters and digits. many_calls: whether one message
    may have several calls; others drop all but the first, or refuse them. thought_key: the field of an assistant
    message with calls that the output shows as its reasoning, "" if there is none. thought_with_content: whether such
    a message may have content too."""

    tools: bool
    tool_role: bool
    system_role: bool
    call_objects: bool
    tool_calls: bool
    any_id: bool = True
    many_calls: bool = True
    thought_key: str = ""
    thought_with_content: bool = True


def find_abilities(render: Render) -> Abilities:
    """Find the abilities by trial. Never raises."""
    system = {"role": "system", "content": SYSTEM}
    objects = _renders_objects(render)
    calls = objects or _renders_texts(render)
    # If calls are not rendered, the message before a result gets content in their place.
    before = _calls(ARGUMENTS if objects else json.dumps(ARGUMENTS)) if calls else _answer()
    result = RESULT in _text(render, [_USER, before, _result()])
    thought_key = next((key for key in THOUGHT_KEYS if calls and _shows_thought(render, before | {key: THOUGHT})), "")
    return Abilities(
        tools=any(TOOL in _text(render, messages, [_TOOL]) for messages in ([_USER], [system, _USER])),
        tool_role=result,
        system_role=SYSTEM in _text(render, [system, _USER]),
        call_objects=objects or not calls,
        tool_calls=calls,
        any_id=not result or all(_takes_id(render, before, call_id) for call_id in (SHORT_ID, LONG_ID)),
        many_calls=not calls or _renders_several(render, before),
        thought_key=thought_key,
        thought_with_content=not thought_key
        or _shows_thought(render, before | {thought_key: THOUGHT, "content": "Hello"}),
    )


def _renders_objects(render: Render) -> bool:
    """An object shows by its value; a template that prints it as Python does expects text. The name must show too: some
    templates replace it by an id."""
    text = _text_of_calls(render, ARGUMENTS)
    return TOOL in text and VALUE in text and repr(ARGUMENTS) not in text


def _renders_texts(render: Render) -> bool:
    """JSON text must appear unchanged; encoded once more it would have backslashes."""
    arguments = json.dumps(ARGUMENTS)
    text = _text_of_calls(render, arguments)
    return TOOL in text and arguments in text


def _text_of_calls(render: Render, arguments: Any) -> str:
    calls = _calls(arguments)
    # A call is usually followed by its result, but a template may support calls and no results.
    return _text(render, [_USER, calls, _result()]) or _text(render, [_USER, calls])


def _renders_several(render: Render, before: Mapping[str, Any]) -> bool:
    """Whether the output shows both calls of a message."""
    first, second = (
        {**call, "id": call_id, "function": {**call["function"], "name": name}}
        for call in before["tool_calls"]
        for call_id, name in ((NINE, TOOL), (OTHER_NINE, OTHER_TOOL))
    )
    results = [_result(), _result() | {"tool_call_id": OTHER_NINE, "name": OTHER_TOOL}]
    message = {**before, "tool_calls": [first, second]}
    # Some templates name a result by its call, but the result of a call alone shows no call.
    return all(name in _text(render, [_USER, message]) for name in (TOOL, OTHER_TOOL)) or all(
        _text(render, [_USER, message, *results]).count(name) > 1 for name in (TOOL, OTHER_TOOL)
    )


def _shows_thought(render: Render, message: Mapping[str, Any]) -> bool:
    return THOUGHT in (_text(render, [_USER, message, _result()]) or _text(render, [_USER, message]))


def _takes_id(render: Render, before: Mapping[str, Any], call_id: str) -> bool:
    calls = [{**call, "id": call_id} for call in before.get("tool_calls", ())]
    message = {**before, "tool_calls": calls} if calls else before
    return RESULT in _text(render, [_USER, message, {**_result(), "tool_call_id": call_id}])


def _answer() -> dict[str, Any]:
    return {"role": "assistant", "content": "Hello"}


def _calls(arguments: Any) -> dict[str, Any]:
    call = {"id": NINE, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _result() -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": NINE, "name": TOOL, "content": RESULT}


def _text(
    render: Render, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The rendered text; "" if the template refuses."""
    try:
        return render(messages, tools=tools)
    except InputError:
        return ""
