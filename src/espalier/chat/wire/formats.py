"""`WireFormat`: how models write tool calls, as data. Parsers and constraints are built from these values.

A text of a format is `begin open head CALL tail separator head CALL tail close`. Whitespace at the edges of a piece is
the usual one; constraints make it optional, and parsers accept any. Schemas and vocabularies are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from espalier.registry import Registry

CallShape = Literal["json", "named", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """lead: what may precede a call that has no marker. begin: once, before everything. open, close: around all calls.
    head, tail: around each. separator: between two.

    shape of CALL: `json` is `{"<name_key>": "NAME", "<args_key>": ARGUMENTS}`, `named` is `NAME middle ARGUMENTS` with
    JSON arguments, `python` is `NAME(a=1, b="x")` with Python literals.

    exact: parsers accept as calls only what a constraint writes: the format's own keys, the name first, a known tool.
    For turns whose content may look like calls, such as documents of a schema.
    """

    name: str
    shape: CallShape
    lead: str = ""
    begin: str = ""
    open: str = ""
    head: str = ""
    middle: str = ""
    tail: str = ""
    close: str = ""
    separator: str = "\n"
    name_key: str = "name"
    args_key: str = "arguments"
    exact: bool = False

    @property
    def marker(self) -> str:
        """What begins a call in free text, such as `<tool_call>`; "" for a format without one, whose call stands alone
        and begins with `opener`."""
        return (self.begin or self.head).strip()

    @property
    def opener(self) -> str:
        """The first character of a call in a format without a marker."""
        return "" if self.marker else (self.open or "{")


ARGS = WireFormat(name="args", shape="json", args_key="args")
TOOL_ARGS = WireFormat(name="tool_args", shape="json", name_key="tool", args_key="args")
OPENAI = WireFormat(name="openai", shape="json")
LLAMA3 = WireFormat(name="llama3", shape="json", lead="<|python_tag|>", args_key="parameters", separator="; ")
HERMES = WireFormat(name="hermes", shape="json", head="<tool_call>\n", tail="\n</tool_call>")
MISTRAL = WireFormat(name="mistral", shape="json", begin="[TOOL_CALLS]", open="[", close="]", separator=", ")
MISTRAL_ARGS = WireFormat(name="mistral_args", shape="named", head="[TOOL_CALLS]", middle="[ARGS]", separator="")
FUNCTIONARY = WireFormat(name="functionary", shape="named", head="<function=", middle=">", tail="</function>")
PYTHONIC = WireFormat(name="pythonic", shape="python", lead="<|python_tag|>", open="[", close="]", separator=", ")

WIRE_FORMATS = Registry(
    "tool_formats",
    {
        "args": "espalier.chat.wire.formats:ARGS",
        "tool_args": "espalier.chat.wire.formats:TOOL_ARGS",
        "openai": "espalier.chat.wire.formats:OPENAI",
        "llama3": "espalier.chat.wire.formats:LLAMA3",
        "hermes": "espalier.chat.wire.formats:HERMES",
        "mistral": "espalier.chat.wire.formats:MISTRAL",
        "mistral_args": "espalier.chat.wire.formats:MISTRAL_ARGS",
        "functionary": "espalier.chat.wire.formats:FUNCTIONARY",
        "pythonic": "espalier.chat.wire.formats:PYTHONIC",
    },
)
"""args, tool_args: `{"name"|"tool", "args"}`. openai: `name`, `arguments`. llama3: `name`, `parameters` (Llama 3.1).
hermes: `<tool_call>` (Hermes, Qwen). mistral: `[TOOL_CALLS][...]`; mistral_args: `[TOOL_CALLS]name[ARGS]{...}`.
functionary: `<function=name>{...}</function>` (Functionary, Llama 3.1). pythonic: `[f(a=1)]` (Llama 3.2, 4)."""

CALL_PARSERS = Registry(
    "tool_parsers",
    {
        "json": "espalier.chat.reading.json_calls:JsonCalls",
        "named": "espalier.chat.reading.named_calls:NamedCalls",
        "python": "espalier.chat.reading.python_calls:PythonCalls",
    },
)
"""Shape -> parser: see `chat/reading/turn_parser.py`."""


def wire_format(name: str) -> WireFormat:
    """The format of that name. Raises UnknownName."""
    found: WireFormat = WIRE_FORMATS.load(name)
    return found
