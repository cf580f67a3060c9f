"""`ToolCalls`: the spec of texts with tool calls. It knows no grammar and no vocabulary.

`grammar.py` builds the grammar of the calls, `compile.py` adds the free text around it, `judge.py` judges a text.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from espalier.chat.argument_types import Types, argument_types
from espalier.chat.tools import Tool, ToolChoice, read_choice
from espalier.chat.wire.formats import WIRE_FORMATS, WireFormat, wire_format
from espalier.constraints.spec import Spec
from espalier.constraints.tools.schemas import tools_of
from espalier.errors import InputError, SpecError
from espalier.grammar.json_mode import JsonWhitespace, check_json_options
from espalier.schema.order import DEFAULT, Order, read_order
from espalier.schema.read.walk import has_closed_objects
from espalier.wording import OptionText, Setting


@dataclass(frozen=True, slots=True, init=False)
class ToolCalls(Spec):
    """Free text, tool calls, or both, as `choice` says. The arguments of each call are valid for its tool's schema.

    tools: Tool values, dicts in the shapes of OpenAI, Anthropic or MCP, Python functions, or a mapping of names to
    schemas. choice: `auto` (text, calls, or text and then calls), `required` (only calls), `none` (text in which no
    call starts), a tool's name (one call of it), or OpenAI's objects. format: the wire format of the calls, a name in
    `WIRE_FORMATS`. max_calls: None is no limit. whitespace, order: as in JsonSchema; the order is that of the
    arguments, and `any` where none is given and the tool's objects are closed (in formats without JSON for tools with
    few arguments). content: with `auto` and `none`, the constraint on a text without calls, instead of free text.

    Raises SpecError and InputError naming the field.
    """

    kind: ClassVar[str] = "tool_calls"
    tools: tuple[Tool, ...]
    choice: ToolChoice
    format: str
    max_calls: int | None
    whitespace: JsonWhitespace
    order: Order | None
    content: Spec | None

    def __init__(
        self,
        tools: Any,
        *,
        choice: Any = "auto",
        format: str = "args",  # noqa: A002  # as the field is called
        max_calls: int | None = None,
        whitespace: JsonWhitespace = "natural",
        order: str | Sequence[str] | None = None,
        content: Spec | None = None,
    ) -> None:
        listed = tools_of(tools)
        chosen = _choice(choice, listed)
        if not isinstance(format, str) or format not in WIRE_FORMATS.names():
            raise SpecError(
                f"unknown format of tool calls {format!r}", hint=f"one of: {', '.join(WIRE_FORMATS)}", field="format"
            )
        wire = wire_format(format)
        _check_names(listed, chosen, wire)
        if wire.marker and wire.open.strip() and not wire.begin.strip():
            raise SpecError(f"the format {format!r} opens its calls before its marker", field="format")
        if max_calls is not None and (not isinstance(max_calls, int) or isinstance(max_calls, bool) or max_calls < 1):
            raise SpecError(f"max_calls: {max_calls!r} is no whole number from 1 on", field="max_calls")
        check_json_options(("object",), whitespace, 2, None)
        if content is not None:
            if not isinstance(content, Spec):
                raise SpecError(
                    f"content is a Spec such as JsonSchema(...), not {type(content).__name__}", field="content"
                )
            if chosen.mode == "required":
                raise SpecError(
                    "content cannot be had where a call is required",
                    hint=OptionText("use ", Setting("choice", "auto")),
                    field="content",
                )
        values = {
            "tools": listed,
            "choice": chosen,
            "format": format,
            "max_calls": max_calls,
            "whitespace": whitespace,
            "order": None if order is None else read_order(order),
            "content": content,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def wire(self) -> WireFormat:
        """The wire format. With a content, parsers accept only its exact spelling as a call."""
        return replace(wire_format(self.format), exact=self.content is not None)

    def order_of(self, tool: Tool) -> Order:
        """The order of a tool's properties where every order costs nothing: `any` where none was asked for and the
        objects are closed. A model could put off a required property without end if it might write others before it.
        `written_order` is the order in a grammar."""
        if self.order is not None:
            return self.order
        return "any" if has_closed_objects(tool.schema, closed=tool.closed) else DEFAULT

    @property
    def allowed(self) -> tuple[Tool, ...]:
        """The tools that may be called; none if the choice is `none`."""
        return () if self.choice.mode == "none" else self.choice.allowed(self.tools)

    @property
    def types(self) -> dict[str, dict[str, Types]]:
        """By tool that may be called and by argument: the types it may have, where the format's parser needs them."""
        if self.wire.shape != "tagged":
            return {}
        return {tool.name: argument_types(tool.schema) for tool in self.allowed}

    @property
    def most_calls(self) -> int | None:
        """The most calls; None is no limit."""
        return {"none": 0}.get(self.choice.mode, 1 if self.choice.single else self.max_calls)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "tools": [tool.to_json() for tool in self.tools],
            "choice": self.choice.to_json(),
            "format": self.format,
            "max_calls": self.max_calls,
            "whitespace": self.whitespace,
            **({} if self.order is None else {"order": self.order if isinstance(self.order, str) else [*self.order]}),
            "content": None if self.content is None else self.content.to_json(),
        }

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        return ("tools", "choice", "format", "max_calls", "whitespace", "order", "content")

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> ToolCalls:
        content = values.get("content")
        if isinstance(content, Mapping):
            try:
                values = {**values, "content": Spec.from_json(content)}
            except RecursionError:
                raise SpecError("the constraints are nested too deeply", field="content") from None
        return cls(**values)


def _choice(choice: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    """The choice, as its JSON form can express it. Raises SpecError."""
    try:
        chosen = read_choice(choice)
        chosen.allowed(tools)
        restored = read_choice(chosen.to_json())
    except InputError as error:
        raise SpecError(error.message, hint=error.hint, field="choice") from error
    if (restored.mode, restored.single) != (chosen.mode, chosen.single):
        raise SpecError(
            f"a choice of mode {chosen.mode!r} that is single names one tool and is required",
            hint=OptionText(Setting("max_calls", 1), " leaves the tool open"),
            field="choice",
        )
    return restored


def _check_names(tools: Sequence[Tool], choice: ToolChoice, wire: WireFormat) -> None:
    """Raises SpecError if the name of an allowed tool cannot be written in the format."""
    for number, tool in enumerate(tools):
        if choice.names and tool.name not in choice.names:
            continue
        parts = tool.name.split(".")
        if wire.shape == "python" and not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
            raise SpecError(
                f"{tool.name!r} cannot be called in the format {wire.name!r}, which is Python's",
                hint="letters, digits and _, not a digit first, and no word of Python's own",
                field=f"tools[{number}].name",
            )
