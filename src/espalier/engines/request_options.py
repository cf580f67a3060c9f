"""The options of a request beside its sampling and its strategy: preset, tools, reasoning, order of properties.

They are arguments of `make_request` under the same names. `decoding/options.py` and `sampling/config.py` declare the
others; options whose values are our own objects, such as a constraint, are arguments of `make_request` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from espalier.chat.reasoning import MODES
from espalier.chat.reasoning import REASONING as MARKERS
from espalier.errors import InputError, SpecError
from espalier.sampling.fields import Choice, Flag, Option, Types, Whole, Word
from espalier.schema.order import ORDERS, Order, read_order

SAMPLERS = ("espalier", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyOrder(Option):
    """The order of properties: one of ORDERS, or the names that come first."""

    types: ClassVar[Types] = Types("str | Sequence[str]", "str | tuple[str, ...]", str | list[str])

    #: The names; property names are not among them.
    known: tuple[str, ...] = ORDERS

    def check(self, given: Any) -> Order | None:
        try:
            return None if given is None else read_order(given)
        except SpecError as error:
            raise self.error(error.message, hint=error.hint, field=self.name) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers(Option):
    """Markers of reasoning: auto, none, a name, or a pair of texts. `chat/reasoning.py` reads them."""

    types: ClassVar[Types] = Types("Any", "Any", str | list[str])

    #: The names; a pair of texts is not among them.
    known: tuple[str, ...] = (*MODES, *MARKERS)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetName(Word):
    """The name of a preset; Python takes a `Preset` too."""

    types: ClassVar[Types] = Types("Any", "str", str)


SCHEMA_ORDER = PropertyOrder(
    name="schema_order",
    help="Order of properties in schemas that state none, the tools' included: schema, any, required-first, a,b,c. By "
    "default any for tools and for a response_format that is not strict, else schema.",
    metavar="ORDER",
    error=InputError,
)
CLOSED = Flag(
    name="closed",
    default=None,
    help="Objects of schemas take no names beyond their `properties`. Those of tools do not by default; false opens "
    "them.",
    error=InputError,
)
REASONING = Markers(
    name="reasoning",
    help="The markers between which the model may reason first, free of the constraint: auto (the default: those that "
    'the model has), none, a name such as think, or "START,END".',
    metavar="MARKERS",
    elsewhere=(("thinking", "Anthropic"),),
    error=InputError,
)
OF_SCHEMAS = (SCHEMA_ORDER, CLOSED)
"""Options that hold for every schema of a request that does not say so itself."""
FROM_ENVIRONMENT = (SCHEMA_ORDER, REASONING)
"""Options whose value, where nothing else states one, the environment may state."""
OPTIONS: Mapping[str, Option] = {
    option.name: replace(option, error=InputError)
    for option in (
        *OF_SCHEMAS,
        PresetName(
            name="preset",
            help="Sampling and constraint by name, of `espalier presets list`; other options join it.",
            metavar="NAME",
        ),
        REASONING,
        Whole(name="max_reasoning", low=1, help="The most tokens of reasoning.", metavar="N"),
        Flag(name="hold_reasoning", default=False, help="Bans and stop texts hold for the reasoning too."),
        Whole(name="max_calls", low=1, help="The most calls of tools in one turn.", metavar="N"),
        Word(
            name="tool_format",
            help="Wire format of calls, if the chat template does not tell.",
            hint="the name of a wire format",
            metavar="NAME",
        ),
        Flag(name="schema_in_prompt", default=False, help="Puts the schema into the prompt too."),
        Choice(
            name="sampler",
            default="espalier",
            known=SAMPLERS,
            help="espalier, or native: llama.cpp's own chain, as in llama-server.",
            metavar="NAME",
        ),
        Option(
            name="activations",
            help="True, or fields of `Activations`: the result has the run's hidden states.",
            flag="",
        ),
    )
}
"""Every option of this module by name."""


def given_options(body: Any, options: Iterable[Option]) -> dict[str, Any]:
    """The options that an object with attributes of their names states."""
    values = {option.name: getattr(body, option.name) for option in options}
    return {name: value for name, value in values.items() if value is not None}
