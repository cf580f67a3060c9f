"""Tools and reasoning on the command line: their flags, and how calls are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.chat.reading.deltas import ContentDelta, Delta, ReasoningDelta
from espalier.chat.tools import ToolCall
from espalier.cli import output
from espalier.cli.flags.inputs import read_text
from espalier.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFlags:
    """The flags that make an answer a turn of several parts."""

    tools: str | None = None
    tool_choice: str | None = None
    tool_format: str | None = None
    max_calls: int | None = None
    reasoning: str | None = None
    max_reasoning: int | None = None
    schema_in_prompt: bool = False

    @property
    def splits(self) -> bool:
        """Whether the answer is read as reasoning, content and calls."""
        return self.tools is not None or self.reasoning is not None

    def options(self) -> dict[str, Any]:
        """What `LoadedEngine.stream` is given. Raises InputError."""
        return {
            "tools": None if self.tools is None else read_tools_file(self.tools),
            "tool_choice": self._choice(),
            "tool_format": self.tool_format,
            "max_calls": self.max_calls,
            "reasoning": self._reasoning(),
            "max_reasoning": self.max_reasoning,
            "schema_in_prompt": self.schema_in_prompt,
        }

    def _choice(self) -> Any:
        text = self.tool_choice
        return text if text is None or not text.startswith("{") else _json(text, "tool_choice")

    def _reasoning(self) -> Any:
        """A name, or two markers with a comma between them."""
        text = self.reasoning
        if text is None or "," not in text:
            return text
        return [part.strip() for part in text.split(",")]


def read_tools_file(path: str) -> Any:
    """The JSON of a file of tools, or of stdin for `-`. Raises InputError."""
    return _json(path if path.lstrip().startswith(("[", "{")) else read_text(path, "tools"), "tools")


def _json(text: str, field: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise InputError(
            f"--{field.replace('_', '-')} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}",
            field=field,
        ) from error
    except RecursionError as error:
        raise InputError(f"--{field.replace('_', '-')} is nested too deeply", field=field) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Python keeps the last of two values of one name; a tool must not get lost so."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the name {twice!r} is there twice in one object", field="tools")
    return found


class ShownTurn:
    """Content goes to stdout as it comes, reasoning to stderr; calls are printed when they are complete."""

    def __init__(self) -> None:
        self._is_reasoning = False

    def show(self, delta: Delta) -> None:
        is_reasoning = isinstance(delta, ReasoningDelta)
        if self._is_reasoning and not is_reasoning:
            output.aside("\n")
        self._is_reasoning = is_reasoning
        if isinstance(delta, ReasoningDelta):
            output.aside(delta.text)
        elif isinstance(delta, ContentDelta):
            output.piece(delta.text)


def call_line(call: ToolCall) -> str:
    """One call on one line; arguments that were cut are the text there is."""
    parsed: Mapping[str, Any] | None = call.parsed
    if parsed is None:
        return json.dumps({"name": call.name, "arguments": call.arguments, "complete": False}, ensure_ascii=False)
    return json.dumps({"name": call.name, "arguments": parsed}, ensure_ascii=False)
