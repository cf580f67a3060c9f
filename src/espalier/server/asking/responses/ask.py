"""Reads a body of `/v1/responses` as one of `/v1/chat/completions`, which asks the engine. It runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.server.asking.adapted import TranslatedRequest, ask_adapted, moved_by, shared_fields
from espalier.server.asking.responses.items import conversation_of
from espalier.server.asking.responses.tools import Tools, read_tools
from espalier.server.asking.thinking import NO_EFFECT, can_reason, may_reason
from espalier.server.asking.token_ids import known_vocab
from espalier.server.asking.truncate import room_for_prompt
from espalier.server.bodies.responses import INCLUDABLE, LOGPROBS, ResponsesBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process

Json = dict[str, Any]
PLACES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "chat_template_kwargs": "reasoning.effort",
}
"""From the beginning of a path in the chat body to that of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedResponsesRequest(TranslatedRequest):
    """body: as it was given. items: of the whole conversation, those of earlier responses included. tools: of the body.
    kept: whether the response is stored. has_summary: whether reasoning is shown as its summary. is_plain: whether
    every token is one of the content."""

    body: ResponsesBody
    items: tuple[Mapping[str, Any], ...]
    tools: Tools
    kept: bool = False
    has_summary: bool = False
    is_plain: bool = False


def ask_responses(body: ResponsesBody, process: Process, *, history: Sequence[Json] = ()) -> ParsedResponsesRequest:
    """Read a body. history: the items of earlier responses. Raises InputError and its kin, each naming the field."""
    if body.input is None:
        raise BadRequest("input is missing", field="input")
    own = [{"type": "message", "role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    items = (*history, *own)
    talk = conversation_of(items, first=len(history))
    tools = read_tools(body.tools, body.tool_choice)
    warnings = [*talk.warnings]
    data = shared_fields(body) | _chat_fields(body, tools, process, warnings)
    lead = [{"role": "system", "content": body.instructions}] if body.instructions else []
    data |= {"messages": [*lead, *talk.messages], "add_generation_prompt": True}  # a message is never continued
    if not data["messages"]:
        raise BadRequest("there are no items", field="input")
    places = PLACES | {f"tools[{i}].function": f"tools[{i}]" for i in range(len(tools.tools))}
    places |= {moved_by(path, len(lead)): place for path, place in talk.places.items()}
    if lead:
        places |= {"messages[0]": "instructions", "messages[0].content": "instructions"}
    if isinstance(body.input, str):
        last = f"messages[{len(data['messages']) - 1}]"
        places |= {last: "input", f"{last}.content": "input"}

    is_kept = body.store is not False and process.responses is not None
    if body.store and not is_kept:
        warnings.append("store has no effect: responses are not stored here")

    def make(**given: Any) -> ParsedResponsesRequest:
        return ParsedResponsesRequest(
            **given | {"warnings": (*given["warnings"], *warnings), "report": body.espalier is not None},
            body=body,
            items=items,
            tools=tools,
            kept=is_kept,
            has_summary=summary_of(body) is not None,
            is_plain=not tools.tools
            and (given["reasoning_place"] == "content" or not may_reason(given["requests"][0], process.engine.engine)),
            input_limit=_input_limit(body, process),
        )

    return ask_adapted(data, process, make, places=places)


def summary_of(body: ResponsesBody) -> str | None:
    """Which summary of the reasoning the body asks for."""
    reasoning = body.reasoning
    return None if reasoning is None else reasoning.summary or reasoning.generate_summary


def _chat_fields(body: ResponsesBody, tools: Tools, process: Process, warnings: list[str]) -> Json:
    """The fields of a chat body that this body's own fields stand for."""
    fields: Json = {}
    if body.max_output_tokens is not None:
        fields["max_completion_tokens"] = body.max_output_tokens
    fields |= _tool_fields(body, tools)
    shape = None if body.text is None else body.text.format
    if shape is not None and shape.type != "text":
        fields["response_format"] = {"type": shape.type}
        if shape.type == "json_schema":
            named = {"name": shape.name, "schema": shape.schema_, "strict": shape.strict}
            fields["response_format"]["json_schema"] = {k: v for k, v in named.items() if v is not None}
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        warnings.append("text.verbosity has no effect here")
    if body.top_logprobs is not None or LOGPROBS in _read_include(body, warnings):
        fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return fields | _reasoning_fields(body, process, warnings)


def _tool_fields(body: ResponsesBody, tools: Tools) -> Json:
    """Without tools, a choice has no effect."""
    if not tools.tools:
        return {}
    given = {"tool_choice": tools.choice, "parallel_tool_calls": body.parallel_tool_calls}
    return {"tools": tools.tools} | {name: value for name, value in given.items() if value is not None}


def _read_include(body: ResponsesBody, warnings: list[str]) -> list[str]:
    for index, name in enumerate(body.include or ()):
        if name not in INCLUDABLE:
            raise UnsupportedParameter(
                f"include: {name[:60]!r} is not supported here",
                hint=f"one of: {', '.join(INCLUDABLE)}",
                field=f"include[{index}]",
            )
        if INCLUDABLE[name]:
            warnings.append(f"include: {name} has no effect: {INCLUDABLE[name]}")
    return body.include or []


def _reasoning_fields(body: ResponsesBody, process: Process, warnings: list[str]) -> Json:
    effort = None if body.reasoning is None else body.reasoning.effort
    if (effort or summary_of(body)) and effort != "none" and not can_reason(process.engine.engine):
        warnings.append(f"reasoning {NO_EFFECT}")
        return {}
    return {} if effort is None else {"reasoning": {"effort": effort}}


def _input_limit(body: ResponsesBody, process: Process) -> int | None:
    """The most tokens of the prompt under `truncation`. Raises CapabilityError where tokens are not known."""
    if body.truncation != "auto":
        return None
    known_vocab(process.engine.engine, "truncation")
    return room_for_prompt(process.engine.capabilities.max_context, reply=body.max_output_tokens)
