"""Sampling flags: `--temperature` and so on, `-o KEY VALUE` for any other field, and `--preset`.

A flag that is not given is None, so that it replaces nothing in a preset. `SamplingConfig` checks the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from espalier.cli.flags.groups import OptionFlags, info_of
from espalier.engines.request_options import OPTIONS
from espalier.errors import InputError, SamplingError
from espalier.sampling.config import COMMON, FIELDS, SamplingConfig
from espalier.sampling.config_names import LLAMA_OWN, own_option, with_extra
from espalier.sampling.fields import Texts

PER_ANSWER = 512
"""Tokens of an answer in a chat, unless a preset says otherwise."""
TEXTS = tuple(name for name, option in FIELDS.items() if isinstance(option, Texts))
"""Fields that are lists of texts: a value that is no JSON list is one text, as written."""
Sampler = Annotated[str, info_of(OPTIONS["sampler"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags:
    """Flags that choose tokens."""

    preset: Annotated[str | None, info_of(OPTIONS["preset"])] = None
    common: Annotated[Mapping[str, Any], OptionFlags(COMMON, notes=(("max_tokens", f", chat {PER_ANSWER}"),))] = field(
        default_factory=dict
    )
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Any other sampling field; repeat it.", metavar="KEY VALUE"),
    ] = None

    def fields(self) -> dict[str, Any]:
        """The fields of SamplingConfig that were given. Raises InputError, SamplingError."""
        return read_fields(self.option, **self.common)


def read_fields(overrides: Sequence[str] | None = None, **flags: Any) -> dict[str, Any]:
    """The fields of SamplingConfig that are set. Raises InputError, SamplingError."""
    fields = dict(flags)
    for text in overrides or ():
        key, given, value = text.partition("=")
        if not given:
            raise InputError(f"-o {key} needs a value", hint="-o top_k 20", field="option")
        try:
            name, read = own_option(key, _value(key, value))
        except SamplingError as error:
            raise SamplingError(f"-o {error.message}", hint=error.hint, field=key) from error
        if name in fields:
            raise InputError(f"{name} is given twice", field=name)
        fields[name] = read
    return with_extra(fields)


def check_single(sampling: SamplingConfig) -> None:
    """Raises InputError if several outputs are asked for: the commands show one."""
    if sampling.n != 1:
        raise InputError(f"n: this command gives one answer, not {sampling.n}", hint="run it again", field="n")


def _value(key: str, text: str) -> Any:
    """The value of a JSON text; any other text is itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if LLAMA_OWN.get(key, key) not in TEXTS or isinstance(value, list) else text
