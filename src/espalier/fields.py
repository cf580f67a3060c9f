"""Tables of settings as dataclasses: a field declares its type, default, help, range, choices, variables and flags.

Settings, engine options and the flags of `espalier serve` are read, checked and listed from such tables.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        threads: Annotated[int | None, Field("Threads of the model.", least=1, flags=("--threads", "-t"))] = None

This module knows no table, reads no environment and builds no command.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

from espalier.errors import InputError

NOUNS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
SWITCHES = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


class WrongValue(ValueError):
    """A value that its field does not accept. expected: what it accepts, in words: "a whole number from 1 on"."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Field:
    """The declaration of a field. flags: names on the command line; a field without flags is none. variables: names of
    environment variables, the main one first; by default the field's name in capitals. least, most, above: range of a
    number. choices: allowed texts, if the type is no `Literal`. parse: turns one text into one value; it may raise
    ValueError or InputError. clean: normalises a value, or raises ValueError. is_secret: never shown."""

    help: str
    _: KW_ONLY
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    variables: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    clean: Callable[[Any], Any] | None = None
    hint: str | None = None
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A field of a table with its declaration. type: the type of a value or, if is_list, of an item."""

    name: str
    type: Any
    is_list: bool
    is_optional: bool
    choices: tuple[str, ...]
    default: Any
    field: Field

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of its environment variables, the main one first."""
        return self.field.variables or (self.name.upper(),)

    def read(self, text: str) -> Any:
        """The value of a variable's text: items of a list are separated by commas, and `none` is None for an optional
        field. Raises WrongValue, and InputError if `parse` does."""
        if self.is_optional and text.strip().lower() == "none":
            return None
        if not self.is_list:
            return self.read_item(text.strip())
        # An empty item is left out, unless `parse` has to say what it is.
        parts = (part.strip() for part in text.split(","))
        return tuple(self.read_item(part) for part in parts if part or self.field.parse)

    def read_item(self, text: str) -> Any:
        """The value of a text without commas: one item, if is_list. Raises as `read`."""
        parse = self.field.parse or _READERS.get(self.type, str)
        try:
            return parse(text)
        except InputError:
            raise
        except ValueError as error:
            raise WrongValue(text, self.expected()) from error

    def checked(self, value: Any) -> Any:
        """The value, normalised by `clean`. Raises WrongValue for a wrong type or a value out of range."""
        if value is None and self.is_optional:
            return None
        for item in value if self.is_list else (value,):
            self._check(item)
        if self.field.clean is None:
            return value
        try:
            return self.field.clean(value)
        except ValueError as error:
            raise WrongValue(value, str(error)) from error

    def _check(self, item: Any) -> None:
        field = self.field
        if self.choices and item not in self.choices:
            raise WrongValue(item, self.expected())
        if self.type not in NOUNS:
            return
        if type(item) is not self.type and not (self.type is float and type(item) is int):  # True is no number
            raise WrongValue(item, self.expected())
        if (field.least is not None and not item >= field.least) or (
            field.above is not None and not item > field.above
        ):
            raise WrongValue(item, self.expected())
        if field.most is not None and item > field.most:
            raise WrongValue(item, f"at most {field.most:.0f}")

    def expected(self) -> str:
        """What it accepts, in words: "one of hard, soft", "a whole number from 1 on"."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        noun = NOUNS.get(self.type, "another value")
        if self.field.least is not None:
            return f"{noun} from {self.field.least:g} on"
        return noun if self.field.above is None else f"{noun} above {self.field.above:g}"


def _switch(text: str) -> bool:
    try:
        return SWITCHES[text.lower()]
    except KeyError:
        raise ValueError(text) from None


_READERS: Mapping[Any, Callable[[str], Any]] = {int: int, float: float, bool: _switch}


@cache
def entries(table: type) -> Mapping[str, DeclaredField]:
    """The fields of a dataclass that have a `Field`, by name and in order."""
    hints = typing.get_type_hints(table, include_extras=True)
    declared_fields = {}
    for field in dataclasses.fields(table):
        declared = [extra for extra in getattr(hints[field.name], "__metadata__", ()) if isinstance(extra, Field)]
        if declared:
            declared_fields[field.name] = _declare_field(field, hints[field.name].__origin__, declared[0])
    return declared_fields


def _declare_field(field_of_class: dataclasses.Field[Any], hint: Any, field: Field) -> DeclaredField:
    """hint: a type such as `int`, `str | None`, `Literal["a", "b"]` or `tuple[int, ...]`."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next(member for member in members if member is not types.NoneType)
    is_list = typing.get_origin(kind) is tuple
    kind = typing.get_args(kind)[0] if is_list else kind
    literals = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    return DeclaredField(
        name=field_of_class.name,
        type=str if literals else kind,
        is_list=is_list,
        is_optional=types.NoneType in members,
        choices=field.choices or literals,
        default=field_of_class.default,
        field=field,
    )


def read_variable(entry: DeclaredField, variable: str, text: str) -> Any:
    """The checked value of a variable. Raises InputError naming the variable."""
    try:
        return entry.checked(entry.read(text))
    except WrongValue as error:
        raise wrong_variable(entry, variable, error) from error
    except InputError as error:
        raise InputError(f"{variable}: {error.message}", hint=error.hint, field=variable) from error


def wrong_variable(entry: DeclaredField, variable: str, error: WrongValue, *, hint: str | None = None) -> InputError:
    """The error of a variable with a wrong value, in one line, without the value of a secret."""
    value = ",".join(map(str, error.value)) if isinstance(error.value, tuple) else str(error.value)
    shown = variable if entry.field.is_secret else f"{variable}={value}"
    return InputError(f"{shown}: {error.expected}", hint=entry.field.hint or hint, field=variable)
