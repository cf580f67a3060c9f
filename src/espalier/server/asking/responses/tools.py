"""Reads the tools and the tool choice of `/v1/responses` as those of the chat route; custom tools become functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.chat.tools import NO_ARGUMENTS, is_hosted
from espalier.server.asking.custom_tools import name_of, read_custom
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """tools, choice: as the chat route takes them, hosted tools included. shown, shown_choice: as the reply repeats
    them. custom: the names of custom tools."""

    tools: list[Json] = field(default_factory=list)
    choice: Any = None
    shown: list[Json] = field(default_factory=list)
    shown_choice: Any = "auto"
    custom: frozenset[str] = frozenset()


def read_tools(given: Sequence[Mapping[str, Any]] | None, choice: Any) -> Tools:
    """Raises UnsupportedParameter for tools of other types, and BadRequest; each names the field."""
    made, shown, custom = [], [], set()
    for index, tool in enumerate(given or ()):
        place = f"tools[{index}]"
        kind = tool.get("type")
        if is_hosted(tool):  # the chat route leaves it out, and says so
            made.append(dict(tool))
            continue
        maker = MAKERS.get(kind) if isinstance(kind, str) else None
        if maker is None:
            raise UnsupportedParameter(
                f"{place}: tools of type {str(kind)[:60]!r} cannot be called here",
                hint="function or custom",
                field=f"{place}.type",
            )
        inner, echo = maker(tool, place)
        made.append({"type": "function", "function": inner})
        shown.append(echo)
        if kind == "custom":
            custom.add(inner["name"])
    converted = _choice(choice, custom)
    return Tools(
        tools=made,
        choice=converted if made else None,
        shown=shown,
        shown_choice="auto" if choice is None else choice,
        custom=frozenset(custom),
    )


def _function(tool: Mapping[str, Any], place: str) -> tuple[Json, Json]:
    name = name_of(tool, place)
    parameters, strict = tool.get("parameters"), tool.get("strict")
    inner = {"name": name, "parameters": NO_ARGUMENTS if parameters is None else parameters}
    given = {"description": tool.get("description"), "strict": strict}
    inner |= {key: value for key, value in given.items() if value is not None}
    return inner, {
        "type": "function",
        "name": name,
        "description": tool.get("description"),
        "parameters": inner["parameters"],
        "strict": strict,
    }


def _custom(tool: Mapping[str, Any], place: str) -> tuple[Json, Json]:
    inner, shape = read_custom(tool, place)
    return inner, {"type": "custom", "name": inner["name"], "description": tool.get("description"), "format": shape}


MAKERS: Mapping[str, Callable[[Mapping[str, Any], str], tuple[Json, Json]]] = {"function": _function, "custom": _custom}


def _choice(given: Any, custom: set[str]) -> Any:
    """The choice as the chat route takes it: there a custom tool is a function. Raises UnsupportedParameter for tools
    that only OpenAI has."""
    if not isinstance(given, Mapping):
        return given
    kind = given.get("type")
    if kind == "custom":
        if given.get("name") not in custom:
            raise BadRequest("tool_choice names no custom tool", field="tool_choice.name")
        return {**given, "type": "function"}
    if kind not in ("function", "allowed_tools"):
        raise UnsupportedParameter(
            f"tool_choice: tools of type {str(kind)[:60]!r} cannot be called here",
            hint="function, custom or allowed_tools",
            field="tool_choice.type",
        )
    if kind == "allowed_tools" and isinstance(given.get("tools"), list):
        return {**given, "tools": [_read_allowed_tool(tool, i) for i, tool in enumerate(given["tools"])]}
    return given


def _read_allowed_tool(tool: Any, index: int) -> Any:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if is_hosted(tool):
        return tool
    if kind not in MAKERS:
        raise UnsupportedParameter(
            f"tool_choice.tools[{index}]: tools of type {str(kind)[:60]!r} cannot be called here",
            hint="function or custom",
            field=f"tool_choice.tools[{index}].type",
        )
    return {**tool, "type": "function"}
