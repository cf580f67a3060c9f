"""Flags for tools and reasoning, and how a turn of content, reasoning and calls is printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from espalier.chat.reading.deltas import ContentDelta, Delta, ReasoningDelta
from espalier.chat.tools import ToolCall
from espalier.cli import output
from espalier.cli.flags.groups import info_of
from espalier.cli.flags.inputs import read_text
from espalier.engines.request_options import OPTIONS, REASONING
from espalier.errors import InputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import TOOLS
from espalier.wiring import App


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFlags:
    """Flags for tools that the model may call."""

    tools: Annotated[str | None, typer.Option(help="Tools the model may call: a JSON file.", metavar="FILE")] = None
    tool_choice: Annotated[
        str | None, typer.Option(help="auto (the default), required, none, or a tool's name.", metavar="WHAT")
    ] = None
    tool_format: Annotated[str | None, info_of(OPTIONS["tool_format"])] = None
    max_calls: Annotated[int | None, info_of(OPTIONS["max_calls"])] = None

    def options(self) -> dict[str, Any]:
        """Options of `make_request`. Raises InputError."""
        choice = self.tool_choice
        return {
            "tools": None if self.tools is None else read_tools_file(self.tools),
            "tool_choice": _json(choice, "tool_choice") if choice is not None and choice.startswith("{") else choice,
            "tool_format": self.tool_format,
            "max_calls": self.max_calls,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFlags:
    """Flags for reasoning before the answer, and for the schema in the prompt."""

    reasoning: Annotated[str | None, info_of(OPTIONS["reasoning"])] = None
    max_reasoning: Annotated[int | None, info_of(OPTIONS["max_reasoning"])] = None
    hold_reasoning: Annotated[bool, info_of(OPTIONS["hold_reasoning"])] = False
    schema_in_prompt: Annotated[bool, info_of(OPTIONS["schema_in_prompt"])] = False

    def options(self, app: App) -> dict[str, Any]:
        """Options of `make_request`."""
        given = self.reasoning
        return {
            "reasoning": [part.strip() for part in given.split(",")] if given and "," in given else given,
            "default_reasoning": app.settings.default_of(REASONING),
            "max_reasoning": self.max_reasoning,
            "hold_reasoning": self.hold_reasoning,
            "schema_in_prompt": self.schema_in_prompt,
        }


def read_tools_file(path: str) -> Any:
    """Tools from JSON itself, from a file, or from stdin for `-`. Raises InputError."""
    return _json(path if path.lstrip().startswith(("[", "{")) else read_text(path, "tools"), "tools")


def _json(text: str, field: str) -> Any:
    check_shape(text, TOOLS, f"--{field.replace('_', '-')}")
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise InputError(
            f"--{field.replace('_', '-')} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}",
            field=field,
        ) from error
    except RecursionError as error:  # brackets that are never closed
        raise InputError(f"--{field.replace('_', '-')} is nested too deeply", field=field) from error
    except ValueError as error:  # a number of more digits than Python reads
        raise InputError(f"--{field.replace('_', '-')}: {error}", field=field) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ. Python's reader keeps the last of two equal names, which could lose a tool."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the name {twice!r} occurs twice in one object", field="tools")
    return fields


def show_delta(delta: Delta) -> None:
    """Stream a delta: content to stdout, reasoning to stderr. Calls are not streamed: `call_line` prints them whole."""
    if isinstance(delta, ReasoningDelta):
        output.aside(delta.text)
    elif isinstance(delta, ContentDelta):
        output.piece(delta.text)


def call_line(call: ToolCall) -> str:
    """A call as one line of JSON; arguments that were cut off are given as their text."""
    parsed: Mapping[str, Any] | None = call.parsed
    if parsed is None:
        return json.dumps({"name": call.name, "arguments": call.arguments, "complete": False}, ensure_ascii=False)
    return json.dumps({"name": call.name, "arguments": parsed}, ensure_ascii=False)
