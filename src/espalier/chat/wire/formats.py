"""`WireFormat`: how models write tool calls, as data. Parsers and constraints are built from these values.

A text of a format is `begin open head CALL tail separator head CALL tail close`. Whitespace at the edges of a piece is
the usual one; constraints make it optional, and parsers accept any. Schemas and vocabularies are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from espalier.registry import Registry

CallShape = Literal["json", "named", "python", "tagged", "bare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """lead: what may precede a call that has no marker. begin: once, before everything. open, close: around all calls.
    head, tail: around each. separator: between two.

    shape of CALL: `json` is `{"<name_key>": "NAME", "<args_key>": ARGUMENTS}`, `named` is `NAME middle ARGUMENTS` with
    JSON arguments, `python` is `NAME(a=1, b="x")` with Python literals. With an `id_mark`, `named` is `NAME id_mark ID
    middle ARGUMENTS`; id_form is the regular expression of ids, id_spelling writes the id of the call at a place.
    `tagged` is `name_open NAME middle`, and then `key KEY assign VALUE value_close` for each argument: strings are raw
    text without `text_ends`, other values JSON.
    `bare` is `NAME{a:1,b:<quote>x<quote>}`: names without quotes, strings as raw text between two markers.
    end: what may follow everything, as a marker of the end of the turn.

    other_middles: other spellings of the middle, which models write too.

    in_channels: a turn consists of messages, each with a header that names its channel, and a call is one of them; see
    `reading/channel_walk.py`.

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
    other_middles: tuple[str, ...] = ()
    tail: str = ""
    close: str = ""
    separator: str = "\n"
    name_key: str = "name"
    args_key: str = "arguments"
    id_mark: str = ""
    id_form: str = ""
    id_spelling: str = ""
    name_open: str = ""
    key: str = ""
    assign: str = ""
    value_close: str = ""
    quote: str = ""
    end: str = ""
    in_channels: bool = False
    exact: bool = False

    @property
    def has_json(self) -> bool:
        """Whether arguments are written as one JSON object."""
        return self.shape in ("json", "named")

    @property
    def marker(self) -> str:
        """What begins a call in free text, such as `<tool_call>`; "" for a format without one, whose call stands alone
        and begins with `opener`."""
        return (self.begin or self.head).strip()

    @property
    def call_opener(self) -> str:
        """What follows the marker of a call, whitespace aside, such as `<function=`; "" where a tool's name follows
        directly."""
        pieces = (
            self.open,
            self.head if self.begin.strip() else "",
            self.name_open,
            "{" if self.shape == "json" else "",
        )
        return next((piece.split()[0] for piece in pieces if piece.strip()), "")

    def begins_call(self, text: str) -> bool:
        """Whether the text that follows a marker within a line begins a call: with the opener, behind any whitespace,
        or where a name follows, with a letter, a digit or `_`. At the start of a line a marker always begins one."""
        opener = self.call_opener
        if opener:
            return text.lstrip(" \t\n\r").startswith(opener)
        return text[:1].isascii() and (text[:1].isalnum() or text[:1] == "_")

    @property
    def text_ends(self) -> tuple[str, ...]:
        """What no raw text of an argument contains, first what closes it. In the tagged shape also the tags that
        follow: readers differ on whether they end a text, and a model that writes one has forgotten the closing tag."""
        if self.shape == "tagged":
            return (self.value_close.strip(), self.key, *self.tail.split()[:1])
        return (self.quote,) if self.quote else ()

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
MISTRAL_ID = WireFormat(
    name="mistral_id",
    shape="named",
    head="[TOOL_CALLS]",
    id_mark="[CALL_ID]",
    id_form="[A-Za-z0-9]{9}",
    id_spelling="{:09d}",
    middle="[ARGS]",
    separator="",
)
DEEPSEEK_V3 = WireFormat(
    name="deepseek_v3",
    shape="named",
    begin="<｜tool▁calls▁begin｜>",
    close="<｜tool▁calls▁end｜>",
    head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    tail="\n```<｜tool▁call▁end｜>",
)
DEEPSEEK_V31 = WireFormat(
    name="deepseek_v31",
    shape="named",
    begin="<｜tool▁calls▁begin｜>",
    head="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    tail="<｜tool▁call▁end｜>",
    close="<｜tool▁calls▁end｜>",
    separator="",
)
KIMI = WireFormat(
    name="kimi",
    shape="named",
    begin="<|tool_calls_section_begin|>",
    head="<|tool_call_begin|>functions.",
    id_mark=":",
    id_form="[0-9]{1,4}",
    id_spelling="{}",
    middle="<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
    close="<|tool_calls_section_end|>",
    separator="",
)
HARMONY = WireFormat(
    name="harmony",
    shape="named",
    head="<|channel|>commentary to=functions.",
    middle=" <|constrain|>json<|message|>",
    other_middles=(" json<|message|>", "<|message|>"),
    separator="<|call|><|start|>assistant",
    end="<|call|>",
    in_channels=True,
)
QWEN_CODER = WireFormat(
    name="qwen_coder",
    shape="tagged",
    head="<tool_call>\n",
    name_open="<function=",
    middle=">\n",
    key="<parameter=",
    assign=">\n",
    value_close="\n</parameter>",
    tail="\n</function>\n</tool_call>",
)
GLM = WireFormat(
    name="glm",
    shape="tagged",
    head="<tool_call>",
    middle="\n",
    key="<arg_key>",
    assign="</arg_key>\n<arg_value>",
    value_close="</arg_value>",
    tail="\n</tool_call>",
)
MINIMAX = WireFormat(
    name="minimax",
    shape="tagged",
    begin="<minimax:tool_call>\n",
    name_open='<invoke name="',
    middle='">\n',
    key='<parameter name="',
    assign='">',
    value_close="</parameter>",
    tail="\n</invoke>",
    close="\n</minimax:tool_call>",
)
FUNCTION_GEMMA = WireFormat(
    name="function_gemma",
    shape="bare",
    head="<start_function_call>call:",
    quote="<escape>",
    tail="<end_function_call>",
    separator="",
)
GEMMA4 = WireFormat(
    name="gemma4", shape="bare", head="<|tool_call>call:", quote='<|"|>', tail="<tool_call|>", separator=""
)
UPSTREAM = WireFormat(name="upstream", shape="json", head="\ue000", tail="\ue001")
"""For calls that another server has parsed. Characters for private use mark them, since a server's content may quote
the calls of any model."""
FUNCTIONARY = WireFormat(name="functionary", shape="named", head="<function=", middle=">", tail="</function>")
PYTHONIC = WireFormat(name="pythonic", shape="python", lead="<|python_tag|>", open="[", close="]", separator=", ")

WIRE_FORMATS = Registry(
    "tool_formats",
    {
        wire.name: wire
        for wire in (
            ARGS,
            TOOL_ARGS,
            OPENAI,
            LLAMA3,
            HERMES,
            MISTRAL,
            MISTRAL_ARGS,
            MISTRAL_ID,
            DEEPSEEK_V3,
            DEEPSEEK_V31,
            KIMI,
            HARMONY,
            QWEN_CODER,
            GLM,
            MINIMAX,
            FUNCTION_GEMMA,
            GEMMA4,
            FUNCTIONARY,
            PYTHONIC,
            UPSTREAM,
        )
    },
    holds=WireFormat,
    check=lambda name, value: None if value.name == name else f"its name is {value.name!r}",
)
"""args, tool_args: `{"name"|"tool", "args"}`. openai: `name`, `arguments`. llama3: `name`, `parameters` (Llama 3.1).
hermes: `<tool_call>` (Hermes, Qwen). mistral: `[TOOL_CALLS][...]`; mistral_args: `[TOOL_CALLS]name[ARGS]{...}`;
mistral_id: with `[CALL_ID]`. deepseek_v3 (V3, R1): with a code fence; deepseek_v31: without. kimi: Kimi K2. harmony:
gpt-oss. qwen_coder: `<function=name>` in `<tool_call>` (Qwen3-Coder, Qwen3.5). glm: `<arg_key>` (GLM 4.5 and later).
minimax: `<invoke name="name">` (MiniMax M2). functionary: `<function=name>{...}</function>` (Functionary, Llama 3.1).
pythonic: `[f(a=1)]` (Llama 3.2, 4). function_gemma, gemma4: `call:f{a:1}`. upstream: calls that another server has
parsed."""


def wire_format(name: str) -> WireFormat:
    """The format of that name. Raises UnknownName."""
    return WIRE_FORMATS.load(name)
