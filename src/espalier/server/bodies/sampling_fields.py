"""Fields of request bodies from the declarations of options, and the sampling fields that all dialects share.

A field here checks the type alone; the declaration checks the value, with one message for every edge, when `asking/`
reads it. The ranges stand in the OpenAPI document. A field that differs between the dialects stands in each dialect's
body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, create_model

from espalier.sampling.config import FIELDS
from espalier.sampling.config_names import LLAMA_FIELDS, LLAMA_OTHER, OPENAI_FIELDS
from espalier.sampling.fields import Option
from espalier.server.bodies.base import Body

BY_DIALECT = frozenset({"max_tokens", "frequency_penalty", "presence_penalty", "logit_bias", "samplers"})
"""Fields that each dialect declares itself."""
NEGATIVE = frozenset({"seed", "max_tokens"})
"""Options of which clients also send -1: any seed, no limit."""


def option_fields(options: Iterable[tuple[str, Option]]) -> dict[str, Any]:
    """Fields for `create_model`: all are optional, and null means "not given". options: with the name of the field."""
    return {name: (_annotation(option), Field(default=None, description=option.help)) for name, option in options}


def _annotation(option: Option) -> Any:
    """The type of a value or null, with the range of a number for the OpenAPI document."""
    schema = option.json_schema()
    ends = {name: schema[name] for name in ("minimum", "maximum") if name in schema}
    if option.llama_negative_is_off or option.name in NEGATIVE:
        ends.pop("minimum", None)
    value = Annotated[option.value, Field(json_schema_extra=ends)] if ends else option.value
    return Union[value, None]  # noqa: UP007  # `|` takes no `Any`


def _named(names: Mapping[str, str]) -> dict[str, Option]:
    """names: our name of an option -> theirs."""
    return {theirs: FIELDS[ours] for ours, theirs in names.items() if theirs not in BY_DIALECT}


SHARED = _named(LLAMA_FIELDS) | _named({ours: theirs for theirs, ours in LLAMA_OTHER.items()})
"""llama.cpp's names of options, which OpenAI's dialect takes too, and those that both call the same."""
OPENAI = {name: option for name, option in _named(OPENAI_FIELDS).items() if name not in SHARED}

if TYPE_CHECKING:

    class _Declared(Body):
        """The fields that code reads by name; there are those of all options."""

        n: int | None
        n_cmpl: int | None
        n_predict: int | None
        stop: str | list[str] | None

    class _DeclaredOpenAI(_Declared):
        min_tokens: int | None

else:
    _Declared = create_model("_Declared", __base__=Body, **option_fields(SHARED.items()))
    _DeclaredOpenAI = create_model("_DeclaredOpenAI", __base__=_Declared, **option_fields(OPENAI.items()))


class SamplingFields(_Declared):
    """Sampling fields of llama-server's dialect, which OpenAI's takes too."""

    samplers: list[str] | str | None = None


class OpenAISamplingFields(_DeclaredOpenAI):
    """Sampling fields of OpenAI's dialect with vLLM's extras."""

    samplers: list[str] | str | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
