"""Reads a body of `/v1/messages` as one of `/v1/chat/completions`, which asks the engine. It runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.chat.tools import is_hosted
from espalier.server.asking.adapted import TranslatedRequest, ask_adapted, shared_fields
from espalier.server.asking.messages.blocks import talk_of
from espalier.server.bodies.messages import MessagesBody, OutputFormat
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process

Json = dict[str, Any]
PLACES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "chat_template_kwargs": "output_config.effort",
    "reasoning_effort": "output_config.effort",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
"""From the beginning of a path in the chat body to that of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMessagesRequest(TranslatedRequest):
    """stops: the texts of `stop_sequences`. hides_thinking: whether the reply leaves the text of the reasoning out."""

    stops: tuple[str, ...] = ()
    hides_thinking: bool = False


def ask_messages(body: MessagesBody, process: Process, *, counts: bool = False) -> ParsedMessagesRequest:
    """Read a body. counts: its tokens are only counted. Raises InputError and its kin, each naming the field."""
    if body.max_tokens is None and not counts:
        raise BadRequest("max_tokens is missing", field="max_tokens")
    talk = talk_of(body.system, body.messages)
    warnings = [*talk.warnings]
    data = shared_fields(body) | _tool_fields(body) | _format_fields(body)
    data |= _thinking_fields(body, warnings) | {"messages": talk.messages}
    if body.stop_sequences:
        data["stop"] = body.stop_sequences
    if body.context_management is not None:
        warnings.append("context_management has no effect here: nothing is cleared")
    places = PLACES | talk.places
    for index in range(len(body.tools or ())):
        places |= {
            f"tools[{index}].function": f"tools[{index}]",
            f"tools[{index}].function.parameters": f"tools[{index}].input_schema",
        }

    def make(**given: Any) -> ParsedMessagesRequest:
        return ParsedMessagesRequest(
            **given | {"warnings": (*given["warnings"], *warnings), "report": body.espalier is not None},
            stops=tuple(body.stop_sequences or ()),
            hides_thinking=body.thinking is not None and body.thinking.display == "omitted",
        )

    return ask_adapted(data, process, make, places=places)


def _tool_fields(body: MessagesBody) -> Json:
    """Without tools, a choice has no effect."""
    if not body.tools:
        return {}
    fields: Json = {"tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools)]}
    choice = body.tool_choice
    if choice is not None:
        fields["tool_choice"] = {name: choice[name] for name in ("type", "name") if name in choice}
        alone = choice.get("disable_parallel_tool_use")
        if alone is not None and not isinstance(alone, bool):
            raise BadRequest(
                "disable_parallel_tool_use is true or false", field="tool_choice.disable_parallel_tool_use"
            )
        if alone:
            fields["parallel_tool_calls"] = False
    return fields


def _tool(tool: Mapping[str, Any], place: str) -> Json:
    """A tool as the chat route has it, which leaves hosted ones out. Without `strict`, what of a schema cannot be
    enforced is checked, as Anthropic's models are not held to it either."""
    if is_hosted(tool):
        return dict(tool)
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedParameter(
            f"{place}: tools of type {str(tool['type'])[:60]!r} cannot be called here",
            hint="give an input_schema",
            field=f"{place}.type",
        )
    if not isinstance(tool.get("name"), str):
        raise BadRequest(f"{place}: the tool has no name", field=f"{place}.name")
    strict = tool.get("strict")
    inner: Json = {
        "name": tool["name"],
        "parameters": tool.get("input_schema"),
        "strict": False if strict is None else strict,
    }
    if tool.get("description") is not None:
        inner["description"] = tool["description"]
    return {"type": "function", "function": inner}


def _format_fields(body: MessagesBody) -> Json:
    later: OutputFormat | None = None if body.output_config is None else body.output_config.format
    if later is not None and body.output_format is not None:
        raise BadRequest(
            "output_format is the old name of output_config.format", hint="leave one of them out", field="output_format"
        )
    shape = later or body.output_format
    if shape is None:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": shape.schema_}}}


def _thinking_fields(body: MessagesBody, warnings: list[str]) -> Json:
    thinking = body.thinking
    effort = None if body.output_config is None else body.output_config.effort
    if thinking is not None and thinking.type == "disabled" and effort is not None:
        warnings.append("output_config.effort has no effect without thinking")
        effort = None
    budget = None if thinking is None else thinking.budget_tokens
    if thinking is not None and thinking.type == "enabled" and budget is None:
        raise BadRequest("thinking needs budget_tokens", field="thinking.budget_tokens")
    if budget is not None and body.max_tokens is not None and budget >= body.max_tokens:
        warnings.append("thinking.budget_tokens is not less than max_tokens, which ends the reasoning before it does")
    fields: Json = {} if thinking is None else {"thinking": {"type": thinking.type, "budget_tokens": budget}}
    return fields if effort is None else {**fields, "reasoning_effort": effort}
