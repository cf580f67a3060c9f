"""Sampling flags: `--temperature` and so on, `-o KEY VALUE` for any other field, and `--preset`.

A flag that is not given is None, so that it replaces nothing in a preset. `SamplingConfig` checks the values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from espalier.errors import InputError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import LLAMA_OWN, own_option, with_extra

DEFAULTS = SamplingConfig()
PER_ANSWER = 512
"""Tokens of an answer in a chat, unless a preset says otherwise."""
TEXTS = ("stop", "bad_words", "dry_breakers")
"""Fields that are lists of texts: a value that is no JSON list is one text, as written."""


Sampler = Annotated[
    str, typer.Option(help="espalier, or native: llama.cpp's own chain, as in llama-server.", metavar="NAME")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags:
    """Flags that choose tokens."""

    preset: Annotated[
        str | None, typer.Option(help="Sampling and constraint by name: `espalier presets list`.", metavar="NAME")
    ] = None
    temperature: Annotated[float | None, typer.Option(help=f"0 is greedy. Default: {DEFAULTS.temperature}.")] = None
    top_k: Annotated[int | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.top_k}.")] = None
    top_p: Annotated[float | None, typer.Option(help=f"1 is off. Default: {DEFAULTS.top_p}.")] = None
    min_p: Annotated[float | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.min_p}.")] = None
    seed: Annotated[int | None, typer.Option(help="Makes a run repeatable.")] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(help=f"At most this many. Default: {DEFAULTS.max_tokens}, chat {PER_ANSWER}."),
    ] = None
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends the answer; repeat it.", metavar="TEXT")] = (
        None
    )
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Any other sampling field; repeat it.", metavar="KEY VALUE"),
    ] = None

    def fields(self) -> dict[str, Any]:
        """The fields of SamplingConfig that were given. Raises InputError, SamplingError."""
        given = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("preset", "option")
        }
        return read_fields(self.option, **given)


def read_fields(overrides: Sequence[str] | None = None, **flags: Any) -> dict[str, Any]:
    """The fields of SamplingConfig that are set; None and empty lists are not. Raises InputError, SamplingError."""
    fields = {name: value for name, value in flags.items() if value is not None and value != []}
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
