"""Builds commands from groups of flags: a flag is declared once, as a field of a dataclass.

A command names the groups that it takes and is given their values:

    @with_flags
    def command(prompt: Prompt = None, *, sampling: SamplingFlags, engine: EngineFlags) -> None: ...

`with_flags` gives typer a signature in which each group stands as its flags. A group is a dataclass whose fields are
`Annotated[..., typer.Option(...)]` or options in `OptionFlags`, or a table of espalier/fields.py in `FlagsOf`. A field
added to a group is a flag of every command that takes the group. This module knows no group.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import typer
from typer.models import OptionInfo

from espalier.cli.flags.values import COMPLETES
from espalier.cli.help import GroupedCommand
from espalier.cli.hints import say_in_flags
from espalier.errors import EspalierError, InputError
from espalier.fields import DeclaredField, WrongValue, entries
from espalier.sampling.fields import Option, Texts

SCALARS = (int, float)
"""Types of options whose flags take the same."""
FEW = 6
"""Parameters of a command whose help needs no groups."""
COMMON = frozenset(
    {
        "schema",
        "json_object",
        "regex",
        "choice",
        "grammar",
        "preset",
        "temperature",
        "seed",
        "max_tokens",
        "strategy",
        "trace",
        "tools",
        "reasoning",
        "option",
    }
)
"""Fields whose flags stand first in help."""
PANELS = {
    "constraint": "Constraints",
    "soft_json": "Constraints",
    "safety": "Safety",
    "tools": "Tools and reasoning",
    "reasoning": "Tools and reasoning",
    "vocab": "Word lists",
    "sampling": "Sampling",
    "sampler": "Sampling",
    "decoding": "Strategies",
    "num_return_sequences": "Strategies",
    "tracing": "Traces",
    "activations": "Hidden states",
    "capture": "Hidden states",
    "engine": "Model and engine",
    "raw": "Prompt",
    "system": "Prompt",
    "settings": "Server",
}
"""Parameter of a command -> the heading of its flags."""


class SubApp(typer.Typer):
    """An app whose commands have help in groups."""

    def command(self, name: str | None = None, **given: Any) -> Any:
        return super().command(name, **{"cls": GroupedCommand, **given})


def sub_app(description: str) -> typer.Typer:
    """An app of several commands, such as `espalier trace ...`, with help in plain text."""
    return SubApp(
        help=description,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class Group(Protocol):
    """The flags that stand for one parameter of a command."""

    def flags(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, annotation and default of each flag."""

    def value(self, given: Mapping[str, Any]) -> Any:
        """The command's argument, from the values of the flags. Raises InputError."""


@dataclass(frozen=True, slots=True)
class DataclassGroup:
    """A dataclass whose fields are flags: the command is given an instance."""

    cls: type

    def flags(self) -> Iterator[tuple[str, Any, Any]]:
        hints = typing.get_type_hints(self.cls, include_extras=True)
        for field in dataclasses.fields(self.cls):
            inner = _group(hints[field.name])
            if inner is None:
                yield field.name, _name_flag(hints[field.name], field.name), field.default
            else:
                yield from inner.flags()

    def value(self, given: Mapping[str, Any]) -> Any:
        hints = typing.get_type_hints(self.cls, include_extras=True)
        own = dict(given)
        for field in dataclasses.fields(self.cls):
            inner = _group(hints[field.name])
            if inner is not None:
                own[field.name] = inner.value({name: own.pop(name) for name, _, _ in inner.flags()})
        return self.cls(**own)


@dataclass(frozen=True, slots=True)
class OptionFlags:
    """Marks a field `Mapping[str, Any]` of a group as the flags of declared options: the group is given the values that
    were set, by the options' names, for a config to check."""

    options: tuple[Option, ...]
    #: What help says beside the default of an option, by its name.
    notes: tuple[tuple[str, str], ...] = ()

    def flags(self) -> Iterator[tuple[str, Any, Any]]:
        notes = dict(self.notes)
        for option in self.options:
            yield option.name, flag_of(option, notes.get(option.name, "")), None

    def value(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = {option.name: (option, given[option.name]) for option in self.options}
        return {
            name: option.read(value) if isinstance(value, str) else value
            for name, (option, value) in values.items()
            if value not in (None, [])
        }


def flag_of(option: Option, note: str = "") -> Any:
    """The annotation of an option's flag, for typer. Its value is None where it is not given. note: what help says
    beside the default."""
    kind: Any = option.value if option.value in SCALARS else list[str] if isinstance(option, Texts) else str
    return Annotated[kind | None, info_of(option, note)]


def info_of(option: Option, note: str = "") -> OptionInfo:
    """An option's flag for typer: its name, help, and what its value is called."""
    more = f" Default: {option.default}{note}." if option.types.value in SCALARS and option.default else ""
    more = " Repeat the flag for several." if isinstance(option, Texts) else more
    name = (option.flag or option.name).replace("_", "-")
    info: OptionInfo = typer.Option(
        f"--{name}", help=option.help + more, metavar=option.metavar, autocompletion=COMPLETES.get(option.name)
    )
    return info


@dataclass(frozen=True, slots=True)
class FlagsOf:
    """Marks a parameter `dict[str, Any]` as the flags of a table of fields: the command is given the values that were
    set, by the names of their fields. is_checked: typer checks ranges, and the help shows ranges and defaults; without
    it the reader of the values checks them."""

    table: type
    is_checked: bool = False

    def flags(self) -> Iterator[tuple[str, Any, Any]]:
        for name, entry in entries(self.table).items():
            if entry.field.flags:
                yield name, self._annotation(entry), None

    def value(self, given: Mapping[str, Any]) -> dict[str, Any]:
        table = entries(self.table)
        return {name: _read(table[name], value) for name, value in given.items() if value not in (None, [])}

    def _annotation(self, entry: DeclaredField) -> Any:
        field = entry.field
        kind = entry.type if field.parse is None else str
        has_default = self.is_checked and entry.default not in (None, "", ())
        return Annotated[
            list[kind] | None if entry.is_list else kind | None,  # type: ignore[valid-type]  # known at run time only
            typer.Option(
                *field.flags,
                help=f"{field.help} [default: {entry.default}]" if has_default else field.help,
                metavar=field.metavar,
                min=field.least if self.is_checked else None,
                max=field.most if self.is_checked else None,
            ),
        ]


def _read(entry: DeclaredField, value: Any) -> Any:
    """The value of a flag, parsed by the field's `parse` if it has one. Raises InputError."""
    if entry.field.parse is None:
        return tuple(value) if entry.is_list else value
    try:
        return tuple(map(entry.read_item, value)) if entry.is_list else entry.read_item(value)
    except WrongValue as error:
        raise InputError(f"{entry.field.flags[0]} {error.value}: {error.expected}", field=entry.name) from error


def _name_flag(hint: Any, name: str) -> Any:
    """The annotation of an option with its flag; an option that names none gets the field's name."""
    kind, *extras = typing.get_args(hint)
    option = next(extra for extra in extras if isinstance(extra, OptionInfo))
    if option.default is ... and not option.param_decls:
        option = copy.copy(option)
        option.param_decls = (f"--{name.replace('_', '-')}",)
    return Annotated[kind, option]


def _group(hint: Any) -> Group | None:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return DataclassGroup(hint)
    return next(
        (extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, FlagsOf | OptionFlags)), None
    )


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer, with each group replaced by its flags. Raises TypeError for a flag that two groups
    declare."""
    hints = typing.get_type_hints(command, include_extras=True)
    panels = PANELS if len(inspect.signature(command).parameters) > FEW else {}
    groups: dict[str, Group] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        group = _group(hints[name])
        if group is None:
            parameters.append(_parameter(name, _in_panel(hints[name], name, panels.get(name)), parameter.default))
            continue
        groups[name] = group
        # Fields of two groups may have one name; flags may not.
        parameters += [
            _parameter(f"{name}_{flag}", _in_panel(hint, flag, panels.get(name)), default)
            for flag, hint, default in group.flags()
        ]
    flags = _check_flags(command, parameters)

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group.value({flag: values.pop(f"{name}_{flag}") for flag, _, _ in group.flags()})
        try:
            command(**values)
        except EspalierError as error:
            say_in_flags(error, flags)
            raise

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` gives
    return run


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _in_panel(hint: Any, name: str, panel: str | None) -> Any:
    """The annotation with the heading under which help shows the flag; the common ones stand before all headings."""
    kind, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    option = next((extra for extra in extras if isinstance(extra, OptionInfo)), None)
    if option is None or panel is None or name in COMMON:
        return hint
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]


def _check_flags(command: Callable[..., None], parameters: list[inspect.Parameter]) -> frozenset[str]:
    """All flags. Raises TypeError for one that stands there twice."""
    seen: set[str] = set()
    for parameter in parameters:
        option = next((x for x in getattr(parameter.annotation, "__metadata__", ()) if isinstance(x, OptionInfo)), None)
        names = () if option is None else (option.default, *(option.param_decls or ()))
        for flag in (name for name in names if isinstance(name, str)):
            if flag in seen:
                raise TypeError(f"{command.__module__}: two flags are called {flag}")
            seen.add(flag)
        if option is not None and not option.param_decls and not isinstance(option.default, str):
            seen.add(f"--{parameter.name.replace('_', '-')}")
    return frozenset(seen)
