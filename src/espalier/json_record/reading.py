"""The base class of records, and how they are read: by the types of their fields, from JSON that may be anything."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from espalier.errors import InputError
from espalier.json_record.declaration import LARGEST, Json, Part, Read, parts_of, split
from espalier.json_record.writing import write_json

R = TypeVar("R", bound="JsonRecord")


class JsonRecord:
    """Base of a dataclass that is written and read by its fields."""

    __slots__ = ()
    #: Whether fields that are not declared are passed over when the JSON is read.
    is_open: ClassVar[bool] = False

    #: `record.to_json()`: as `from_json` reads it.
    to_json = write_json

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """From parsed JSON. Raises InputError naming the field, what it should be and what was there."""
        return read_json(cls, data)


class Mismatch(Exception):
    """A value of JSON that is not what a field takes. `path`: where it is, from the outermost object."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def move(self, step: str) -> None:
        """Put what holds the value in front of the path. step: `.name` or `[index]`."""
        self.path = step[:60] + self.path


def mismatch(expected: str, value: Any) -> Mismatch:
    """The error of a value that is not `expected`, which is in words: "a whole number"."""
    nouns = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    return Mismatch(f"is not {expected} but {nouns.get(type(value)) or repr(value)[:60]}")


def read_json(cls: type[R], data: Any, path: str = "") -> R:
    """A record from parsed JSON, also for a class whose `from_json` does more. path: where `data` stands. Raises
    InputError as `JsonRecord.from_json` does."""
    try:
        record_class: type = cls
        record: R = _record_reader(record_class)(data)
        return record
    except Mismatch as error:
        where = f"{path}{error.path}".lstrip(".")
        raise InputError(f"{where or 'it'} {error.problem}", field=where or None) from error


def object_of(needed: Mapping[str, Any], other: Mapping[str, Any] | None = None, *, is_open: bool = False) -> Read:
    """Reads an object that stays a dict. needed, other: the types of the fields that must be there, and that may.
    is_open: whether there may be more."""
    hints = {**needed, **(other or {})}
    fields = {name: (name, reader_of(hint, LARGEST)) for name, hint in hints.items()}
    read_fields = _object_reader(fields, [*needed], is_open=is_open)

    def read(value: Any) -> Any:
        values = read_fields(value)
        return {**value, **values}

    return read


@cache
def _record_reader(record: type) -> Read:
    top, inner = split(parts_of(record))
    fields = {part.key: _field_of(part) for part in top if not part.json.within}
    needed = [part.key for part in top if part.is_needed and not part.json.within]
    for key, parts in inner.items():
        required = [part.key for part in parts if part.is_needed]
        fields[key] = (key, _object_reader({part.key: _field_of(part) for part in parts}, required, is_open=False))
        needed += [key] if required else []
    read_fields = _object_reader(fields, needed, is_open=getattr(record, "is_open", False))

    def read(value: Any) -> Any:
        values = read_fields(value)
        for key in inner:
            values |= values.pop(key, {})
        values.pop("", None)  # properties
        return record(**values)

    return read


def _field_of(part: Part) -> tuple[str, Read]:
    """The name of the argument, "" for a property; and what reads it."""
    return "" if part.is_property else part.name, part.json.read or reader_of(part.hint, part.json.most)


def _object_reader(fields: Mapping[str, tuple[str, Read]], needed: Sequence[str], *, is_open: bool) -> Read:
    """Reads an object into a dict. fields: key -> (its name in the dict, what reads it)."""

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise mismatch("an object", value)
        for key in needed:
            if key not in value:
                raise Mismatch(f"has no {key!r}")
        values = {}
        for key, inner in value.items():
            known = fields.get(key)
            if known is not None:
                name, read_inner = known
                try:
                    values[name] = read_inner(inner)
                except Mismatch as error:
                    error.move(f".{key}")
                    raise
            elif not is_open:
                raise Mismatch(f"has a field {key[:60]!r}, which is not known")
        return values

    return read


def reader_of(hint: Any, most: float = LARGEST) -> Read:
    """Reads values of a type. most: the largest number, in either direction. Raises TypeError for a type that is not
    read."""
    if typing.get_origin(hint) is typing.Annotated:
        declared = [extra.read for extra in hint.__metadata__ if isinstance(extra, Json) and extra.read]
        return declared[0] if declared else reader_of(hint.__origin__, most)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        members = [member for member in arguments if member is not types.NoneType]
        if len(members) == len(arguments) or len(members) != 1:
            raise TypeError(f"a record cannot read {hint}")
        return _optional_reader(reader_of(members[0], most))
    if origin is tuple and arguments[-1] is not ...:
        return _list_reader(reader_of(arguments[0], most), tuple, len(arguments))
    if origin in (tuple, list, Sequence):
        return _list_reader(reader_of(arguments[0], most), list if origin is list else tuple)
    if origin in (dict, Mapping):
        return _map_reader(reader_of(arguments[1], most))
    if origin is typing.Literal:
        return _text
    if hint in (int, float):
        return _number_reader(hint, most)
    own: Read | None = getattr(hint, "from_json", None)
    if own is not None:
        # A class that reads itself does so; one that does not is read here, so that a wrong field has its whole path.
        is_plain = getattr(own, "__func__", None) is getattr(JsonRecord.from_json, "__func__", None)
        return _record_reader(hint) if is_plain else own
    if hint not in READERS:
        raise TypeError(f"a record cannot read {hint}")
    return READERS[hint]


def _anything(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise mismatch("a text", value)
    return value


def _flag(value: Any) -> Any:
    if type(value) is not bool:
        raise mismatch("true or false", value)
    return value


def _octets(value: Any) -> Any:
    if type(value) is not list or not all(type(byte) is int and 0 <= byte < 256 for byte in value):
        raise mismatch("a list of bytes", value)
    return bytes(value)


READERS: Mapping[Any, Read] = {Any: _anything, str: _text, bool: _flag, bytes: _octets}


def _number_reader(hint: type, most: float) -> Read:
    kinds, noun = ((int,), "a whole number") if hint is int else ((int, float), "a finite number")

    def read(value: Any) -> Any:
        if type(value) in kinds and -most <= value <= most:
            return value
        is_number = type(value) in kinds and abs(value) > most and value not in (math.inf, -math.inf)
        raise mismatch(f"between {-most:g} and {most:g}" if is_number else noun, value)

    return read


def _optional_reader(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _list_reader(read: Read, make: type, length: int | None = None) -> Read:
    def read_list(value: Any) -> Any:
        if type(value) is not list or length not in (None, len(value)):
            raise mismatch("a list" if length is None else f"a list of {length}", value)
        if read is _anything:
            return make(value)
        elements: list[Any] = []
        try:
            for element in value:
                elements.append(read(element))  # noqa: PERF401  # its length says which one was wrong
        except Mismatch as error:
            error.move(f"[{len(elements)}]")
            raise
        return make(elements)

    return read_list


def _map_reader(read: Read) -> Read:
    def read_map(value: Any) -> Any:
        if type(value) is not dict:
            raise mismatch("an object", value)
        if read is _anything:
            return value
        values = {}
        for key, inner in value.items():
            try:
                values[key] = read(inner)
            except Mismatch as error:
                error.move(f".{key}")
                raise
        return values

    return read_map
