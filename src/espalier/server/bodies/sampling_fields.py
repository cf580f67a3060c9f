"""Fields of request bodies from the declarations of options, and the sampling fields that all dialects share.

The declaration checks numbers, with one message for every edge; other values are checked when `asking/` reads them. A
field that differs between the dialects stands in each dialect's body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import AfterValidator, Field, create_model
from pydantic_core import PydanticCustomError

from espalier.errors import InputError
from espalier.sampling.config import FIELDS
from espalier.sampling.config_names import LLAMA_FIELDS, LLAMA_OTHER, OPENAI_FIELDS
from espalier.sampling.fields import Number, Option, Whole
from espalier.server.bodies.base import Body

BY_DIALECT = frozenset({"max_tokens", "frequency_penalty", "presence_penalty", "logit_bias", "samplers"})
"""Fields that each dialect declares itself."""


def option_fields(options: Iterable[tuple[str, Option]], *, are_checked: bool = True) -> dict[str, Any]:
    """Fields for `create_model`: all are optional, and null means "not given". options: with the name of the field.
    are_checked: whether the range of numbers is."""
    return {
        name: (_annotation(option, are_checked), Field(default=None, description=option.help))
        for name, option in options
    }


def _annotation(option: Option, is_checked: bool) -> Any:
    """The type of a value or null, with the range of a number."""
    value = option.value
    if isinstance(option, Number | Whole):
        ends = {name: end for name, end in option.json_schema().items() if name != "type"}
        value = Annotated[value, Field(json_schema_extra=ends)]
        if is_checked:
            value = Annotated[value, AfterValidator(partial(_checked, option))]
    return Union[value, None]  # noqa: UP007  # `|` takes no `Any`


def _checked(option: Option, value: Any) -> Any:
    """The value itself. Raises PydanticCustomError with what the declaration says about a wrong one."""
    try:
        option.check(value)
    except InputError as error:
        problem = str(error).removeprefix(f"{option.name}: ")
        raise PydanticCustomError("option", "{problem}", {"problem": problem}) from None
    return value


def _named(names: Mapping[str, str]) -> dict[str, Option]:
    """names: our name of an option -> theirs."""
    return {theirs: _as_sent(FIELDS[ours]) for ours, theirs in names.items() if theirs not in BY_DIALECT}


def _as_sent(option: Option) -> Option:
    """The option with the range that clients of other servers use: -1 for no limit, and for off."""
    if isinstance(option, Whole) and (option.llama_negative_is_off or option.name == "max_tokens"):
        return replace(option, low=-1)
    return replace(option, low=-math.inf) if isinstance(option, Number) and option.llama_negative_is_off else option


SHARED = _named(LLAMA_FIELDS) | _named({ours: theirs for theirs, ours in LLAMA_OTHER.items()})
"""llama.cpp's names of options, which OpenAI's dialect takes too, and those that both call the same."""
OPENAI = {name: option for name, option in _named(OPENAI_FIELDS).items() if name not in SHARED}

if TYPE_CHECKING:

    class _SharedOptionFields(Body):
        """The fields that code reads by name; there are those of all options."""

        n: int | None = None
        n_cmpl: int | None = None
        n_predict: int | None = None
        ignore_eos: bool | None = None
        stop: str | list[str] | None = None

    class _DeclaredOpenAI(_SharedOptionFields):
        min_tokens: int | None = None

else:
    _SharedOptionFields = create_model("_SharedOptionFields", __base__=Body, **option_fields(SHARED.items()))
    _DeclaredOpenAI = create_model("_DeclaredOpenAI", __base__=_SharedOptionFields, **option_fields(OPENAI.items()))


class SamplingFields(_SharedOptionFields):
    """Sampling fields of llama-server's dialect, which OpenAI's takes too."""

    samplers: list[str] | str | None = None


class OpenAISamplingFields(_DeclaredOpenAI):
    """Sampling fields of OpenAI's dialect with vLLM's extras."""

    samplers: list[str] | str | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
