"""The instructions that describe tools and a schema to a model whose chat template does not.

They depend only on the tools, the wire format and the choice; `render.py` decides where in the prompt they stand. They
are short, since a small model's context is. The bundled model was trained on the first sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from espalier.chat.tools import Tool, ToolChoice, ToolMode
from espalier.chat.wire.formats import CallShape, WireFormat
from espalier.chat.wire.render import join_calls, spell_call, spell_tag
from espalier.errors import InputError

_PLACEHOLDER: dict[CallShape, Callable[[WireFormat], str]] = {
    "json": lambda _wire: "{...}",
    "named": lambda _wire: "{...}",
    "python": lambda _wire: "ARGUMENT=VALUE, ...",
    "bare": lambda _wire: "{ARGUMENT:VALUE,...}",
    "tagged": lambda wire: f"{spell_tag(wire, 'ARGUMENT', 'VALUE')}\n...",
}
_VALUES: dict[CallShape, str] = {
    "json": "",
    "named": "{...} is a JSON object of its arguments.",
    "python": "Values are Python literals.",
    "tagged": "Texts stand as they are, other values as JSON.",
    "bare": "Texts stand between QUOTE and QUOTE, other values as JSON, names without quotes.",
}
_ASKED: dict[ToolMode, str] = {
    "auto": "If no tool is needed, answer without a call.",
    "required": "You must call a tool.",
}


def tools_text(tools: Sequence[Tool], wire: WireFormat, choice: ToolChoice, max_calls: int | None) -> str:
    """The tools, how to call them, how many calls there may be, and what the choice asks for; "" if there are no tools.

    All tools are listed whatever the choice, and text that depends on the choice comes last, so that prompts share
    their beginning. With mode `none` there is no text, as if the request had no tools. max_calls: None is no limit.
    Raises InputError for a choice of an unknown tool.
    """
    if not tools or choice.mode == "none":
        return ""
    allowed = choice.allowed(tools)
    only = f"Call only {_names(allowed)}." if len(allowed) < len(tools) else ""
    lines = [
        f"You can use these tools: {_names(tools)}.",
        *map(_tool, tools),
        _how(wire, _several(wire, 1 if choice.single else max_calls)),
        _sentences(only, _ASKED[choice.mode]),
    ]
    return "\n".join(lines)


def schema_text(schema: Any) -> str:
    """The text for a schema of the answer. Raises InputError if it is not JSON."""
    try:
        return f"Answer with JSON that is valid under this JSON Schema:\n{_compact(schema)}"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the schema is not JSON: {error}", field="schema") from error


def _tool(tool: Tool) -> str:
    described = {"description": tool.description} if tool.description else {}
    return _compact({"name": tool.name, **described, "parameters": tool.schema})


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _names(tools: Sequence[Tool]) -> str:
    return ", ".join(tool.name for tool in tools)


def _sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _how(wire: WireFormat, several: str) -> str:
    example = join_calls(wire, [spell_call(wire, "NAME", _PLACEHOLDER[wire.shape](wire))])
    values = _VALUES[wire.shape].replace("QUOTE", wire.quote)
    if wire.marker:
        return f"To call a tool, write this, after other text if you like:\n{example}\n{_sentences(values, several)}"
    return _sentences(f"To call a tool, answer with {example} and nothing else.", values, several)


def _several(wire: WireFormat, max_calls: int | None) -> str:
    if max_calls == 1:
        return "Make one call only."
    most = "several" if max_calls is None else f"up to {max_calls}"
    between = wire.separator.strip()
    if between:
        how = f'separated by "{between}"{" in the same list" if wire.open else ""}'
    else:
        how = "one after another" if wire.marker else "one on each line"
        how += " within the same markers" if wire.begin and wire.close else ""
    return f"You may make {most} calls, {how}."
