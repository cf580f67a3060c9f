"""Tools, tool choices and tool calls as values, read from the shapes of several APIs. Wire formats are not known here.

A tool is read from OpenAI's shape (chat completions or responses), Anthropic's (`input_schema`), MCP's (`inputSchema`),
or from a mapping of names to schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from espalier.errors import InputError
from espalier.nearest import LONGEST_NAME, nearest

ToolMode = Literal["auto", "required", "none"]
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The characters of OpenAI's names, and the dots that MCP allows; the length that MCP and Anthropic allow."""
SCHEMA_FIELDS = ("parameters", "input_schema", "inputSchema")
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool that states none."""
OWN_TYPES = ("function", "custom")
"""Types of the tools that a client runs itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call.

    parameters: the JSON Schema of its arguments, as JSON text (a mapping is accepted); arguments are always an object,
    and None stands for a tool without arguments.
    strict: with True, keywords that can only be checked afterwards are refused; otherwise they are checked then.
    formats: `assert` enforces the known values of `format`, `annotate` takes them for remarks.
    closed: objects that declare `properties` take no other names where their schema says nothing of others, since a
    function takes no argument that it does not name.
    Raises InputError naming the field.
    """

    name: str
    parameters: str
    description: str = ""
    strict: bool | None = None
    formats: Literal["assert", "annotate"] = "assert"
    closed: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InputError(f"{self.name!r} is no name for a tool", hint="1 to 128 of A-Z a-z 0-9 _ - .", field="name")
        if not isinstance(self.description, str):
            raise InputError(f"the description of {self.name} is not text", field="description")
        if self.strict not in (None, True, False):
            raise InputError(f"strict of {self.name} is true or false", field="strict")
        if self.formats not in ("assert", "annotate"):
            raise InputError(f"formats of {self.name}: {self.formats!r}", hint="assert or annotate", field="formats")
        if not isinstance(self.closed, bool):
            raise InputError(f"closed of {self.name} is true or false", field="closed")
        schema: Any = self.parameters
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except ValueError as error:
                raise InputError(f"the schema of {self.name} is not JSON: {error}", field="parameters") from error
        if schema is None:
            schema = NO_ARGUMENTS
        if not isinstance(schema, Mapping):
            raise InputError(
                f"the schema of {self.name} is an object, not {type(schema).__name__}",
                hint="leave it out for a tool without arguments",
                field="parameters",
            )
        try:
            text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the schema of {self.name} is not JSON: {error}", field="parameters") from error
        object.__setattr__(self, "parameters", text)

    @property
    def schema(self) -> dict[str, Any]:
        """A copy of the arguments' schema."""
        schema: dict[str, Any] = json.loads(self.parameters)
        return schema

    def to_json(self) -> dict[str, Any]:
        """OpenAI's shape, which chat templates also take."""
        inner: dict[str, Any] = {"name": self.name}
        if self.description:
            inner["description"] = self.description
        inner["parameters"] = self.schema
        if self.strict is not None:
            inner["strict"] = self.strict
        if self.formats != "assert":
            inner["formats"] = self.formats
        if not self.closed:
            inner["closed"] = False
        return {"type": "function", "function": inner}


def read_tools(data: Any, *, where: str = "tools", skips_hosted: bool = False) -> tuple[Tool, ...]:
    """Read tools from a list of them, `{"tools": [...]}`, or a mapping of names to schemas; order is kept.

    skips_hosted: leave out the tools that `is_hosted` tells, even if no other is left; else they are refused. Raises
    InputError naming the tool and the field, also for two tools of one name and for an empty list.
    """
    if isinstance(data, Mapping):
        if isinstance(data.get("tools"), Sequence):
            data = data["tools"]
        elif isinstance(data.get("name"), str) or (data.get("type") == "function" and "function" in data):
            data = [data]
        else:
            data = [{"name": name, "parameters": schema} for name, schema in data.items()]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InputError("tools are a list of tools", hint=SHAPE, field=where)
    by_name: dict[str, Tool] = {}
    index = -1
    for index, value in enumerate(data):
        if skips_hosted and is_hosted(value):
            continue
        tool = _read(value, f"{where}[{index}]")
        if tool.name in by_name:
            raise InputError(f"there are two tools called {tool.name!r}", field=f"{where}[{index}].name")
        by_name[tool.name] = tool
    if index < 0:
        raise InputError("there are no tools", hint="leave `tools` out, or name one", field=where)
    return tuple(by_name.values())


def is_hosted(tool: Any) -> bool:
    """Whether a tool is one that a provider runs or knows by its type, such as OpenAI's `web_search` and Anthropic's
    `bash_20250124`. A misspelt type of a client's own tool is none."""
    if not isinstance(tool, Mapping) or "function" in tool:
        return False
    kind = tool.get("type")
    return isinstance(kind, str) and kind not in OWN_TYPES and not nearest(kind, OWN_TYPES)


def hosted_types(tools: Any) -> tuple[str, ...]:
    """The types of the tools of a list that `is_hosted` tells, shortened for a message."""
    if isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Iterable):
        return ()
    return tuple(dict.fromkeys(tool["type"][:LONGEST_NAME] for tool in tools if is_hosted(tool)))


SHAPE = '{"type": "function", "function": {"name": ..., "parameters": {...}}}'


def _read(data: Any, where: str) -> Tool:
    if isinstance(data, Tool):
        return data
    if not isinstance(data, Mapping):
        raise InputError(f"a tool is an object, not {type(data).__name__}", hint=SHAPE, field=where)
    kind = data.get("type", "function")
    inner = data
    if "function" in data:
        inner, where = data["function"], f"{where}.function"
        if not isinstance(inner, Mapping):
            raise InputError("`function` is an object", hint=SHAPE, field=where)
    if kind not in OWN_TYPES or (kind == "custom" and "input_schema" not in inner):
        raise InputError(f"tools of type {kind!r} cannot be called here", hint='only "function"', field=f"{where}.type")
    if "name" not in inner:
        raise InputError("the tool has no name", hint=SHAPE, field=f"{where}.name")
    schema = next((inner[name] for name in SCHEMA_FIELDS if inner.get(name) is not None), None)
    try:
        return Tool(
            name=inner["name"],
            parameters=schema,  # type: ignore[arg-type]  # a mapping is taken too
            description=inner.get("description") or "",
            strict=inner.get("strict"),
            formats=inner.get("formats") or "assert",
            closed=inner.get("closed", True),
        )
    except InputError as error:
        raise InputError(error.message, hint=error.hint, field=f"{where}.{error.field}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """What the model may do with its tools.

    mode: `auto` leaves it to the model, `required` asks for at least one call, `none` forbids calls. names: the tools
    that may be called, all if empty. single: exactly one call, as when a choice names one function.
    """

    mode: ToolMode = "auto"
    names: tuple[str, ...] = field(default=())
    single: bool = False

    def to_json(self) -> Any:
        """OpenAI's shape."""
        if not self.names:
            return self.mode
        named = [{"type": "function", "function": {"name": name}} for name in self.names]
        if self.single and len(named) == 1:
            return named[0]
        return {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": named}}

    def allowed(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that may be called, in their own order. Raises InputError for a name that no tool has."""
        known = [tool.name for tool in tools]
        for name in self.names:
            if name not in known:
                raise InputError(
                    f"the choice names {name!r}, which is no tool",
                    hint=f"tools: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}",
                    field="tool_choice",
                )
        return tuple(tool for tool in tools if not self.names or tool.name in self.names)


AUTO = ToolChoice()


ANTHROPIC: dict[str, ToolMode] = {"auto": "auto", "any": "required", "none": "none"}


def read_choice(data: Any) -> ToolChoice:
    """Read `"auto"`, `"required"` (Mistral's `"any"`), `"none"`, a tool's name, OpenAI's `{"type": "function", ...}`
    (chat completions or responses) and `{"type": "allowed_tools", ...}`, or Anthropic's objects. Raises InputError."""
    if isinstance(data, ToolChoice):
        return data
    if data is None:
        return AUTO
    if isinstance(data, str):
        if data in get_args(ToolMode):
            return ToolChoice(mode=data)  # type: ignore[arg-type]  # one of them
        if data == "any":  # Mistral's
            return ToolChoice(mode=ANTHROPIC[data])
        if NAME.fullmatch(data):
            return ToolChoice(mode="required", names=(data,), single=True)
    elif isinstance(data, Mapping):
        if data.get("type") == "function":
            return ToolChoice(mode="required", names=(_read_name(data, "tool_choice"),), single=True)
        if data.get("type") == "allowed_tools":
            return _read_allowed(data)
        if data.get("type") == "tool":  # Anthropic's
            return ToolChoice(mode="required", names=(_read_name(data, "tool_choice"),), single=True)
        if isinstance(kind := data.get("type"), str) and kind in ANTHROPIC:
            return ToolChoice(mode=ANTHROPIC[kind])
    raise InputError(
        f"tool_choice cannot be {str(data)[:60]!r}",
        hint="auto, required, none, the name of a tool, or an object of type function or allowed_tools",
        field="tool_choice",
    )


def _read_name(data: Any, where: str) -> str:
    inner = data.get("function", data) if isinstance(data, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise InputError(
            "a choice of a tool needs its name",
            hint='{"type": "function", "function": {"name": ...}}',
            field=f"{where}.function.name",
        )
    return name


def _read_allowed(data: Mapping[str, Any]) -> ToolChoice:
    inner = data.get("allowed_tools", data)
    where = "tool_choice.allowed_tools"
    mode = inner.get("mode", "auto") if isinstance(inner, Mapping) else None
    if mode not in ("auto", "required"):
        raise InputError(f"the mode of allowed_tools is auto or required, not {mode!r}", field=f"{where}.mode")
    tools = inner.get("tools")
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        raise InputError("allowed_tools names at least one tool", field=f"{where}.tools")
    named = [(index, tool) for index, tool in enumerate(tools) if not is_hosted(tool)]
    if not named and mode == "auto":
        return ToolChoice(mode="none")
    if not named:
        raise InputError(
            "none of the tools that allowed_tools requires can be called here",
            hint="name a function",
            field=f"{where}.tools",
        )
    names = (_read_name(tool, f"{where}.tools[{index}]") for index, tool in named)
    return ToolChoice(mode=mode, names=tuple(dict.fromkeys(names)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call as the model wrote it. arguments: the exact JSON text. is_complete: False if the text was cut off within
    the call; `arguments` is then the part that was written. index: its position among the calls."""

    index: int
    name: str
    arguments: str
    id: str = ""
    is_complete: bool = True

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments as a dict; None if the text was cut off or is no object."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return arguments if self.is_complete and isinstance(arguments, dict) else None

    def to_json(self) -> dict[str, Any]:
        """OpenAI's shape."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}
