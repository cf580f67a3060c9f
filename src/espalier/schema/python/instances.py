"""Builds instances of Python classes from parsed JSON: the inverse of `schemas.py`.

    build(User, {"name": "Ada"})      User(name="Ada")

It checks types and names, not bounds: the constraint enforced those during generation. Pydantic models validate
themselves. For a union, the first member that fits is built.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from espalier.errors import GenerationError, SchemaError
from espalier.schema.pointers import below
from espalier.schema.python.schemas import ARRAYS, MAPPINGS, SETS
from espalier.schema.python.types import (
    is_enum,
    is_function,
    is_hashable,
    is_pydantic,
    is_pydantic_model,
    is_typed_dict,
    is_union,
    members,
    name_of,
    pydantic,
    unwrapped,
)


class BuildError(GenerationError):
    """The value does not fit the class. pointer: the JSON pointer of the part that does not fit."""

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        self.pointer = pointer
        where = f" at {pointer}" if pointer else " at the top"
        super().__init__(f"{message or 'the value does not fit'}{where}")


def build(obj: Any, value: Any, *, pointer: str = "") -> Any:
    """An instance of `obj` from parsed JSON that satisfies `schema_of(obj)`.

    A dataclass or NamedTuple: an instance. A TypedDict: a dict. A function: the keyword arguments to call it with.
    A pydantic model: the result of `model_validate`. A type: a value of it. Raises BuildError with the JSON pointer of
    the part that does not fit, SchemaError for a type without a schema.
    """
    tp, _ = unwrapped(obj)
    origin, arguments = typing.get_origin(tp) or tp, typing.get_args(tp)
    if is_union(tp):
        return _first_that_fits(arguments, value, pointer)
    if origin is typing.Literal:
        return _one_of({id(a): (getattr(a, "value", a), a) for a in arguments}, value, pointer)
    if is_enum(tp):
        return _one_of({m.name: (m.value, m) for m in tp}, value, pointer)
    if is_pydantic(origin):
        return _pydantic(tp, value, pointer)
    if members(tp, name_of(tp)) is not None:
        return _members(tp, value, pointer)
    if hasattr(tp, "__value__"):
        return build(tp.__value__, value, pointer=pointer)
    if origin in ARRAYS or origin in SETS:
        items = _items(value, arguments[0] if arguments else Any, pointer)
        return items if origin not in SETS else frozenset(items) if origin is frozenset else set(items)
    if origin is tuple:
        return _tuple(arguments, value, pointer)
    if origin in MAPPINGS:
        return _mapping(arguments, value, pointer)
    if not is_hashable(tp) or tp not in SCALARS:
        raise SchemaError(f"{name_of(tp)} has no JSON Schema")
    return SCALARS[tp](value, pointer)


def _check_type(*kinds: type) -> Callable[[Any, str], Any]:
    """A check that returns the value if it has one of these types; a boolean is not a number."""

    def check(value: Any, pointer: str) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise BuildError(
                f"{_show_value(value)} is not of type {' or '.join(kind.__name__ for kind in kinds)}", pointer=pointer
            )
        return value

    return check


def _parse_string(name: str, parse: Callable[[str], Any]) -> Callable[[Any, str], Any]:
    """A reader that parses a string."""

    def read(value: Any, pointer: str) -> Any:
        try:
            return parse(_check_type(str)(value, pointer))
        except (ValueError, binascii.Error) as error:
            raise BuildError(f"{_show_value(value)} is not a {name}: {error}", pointer=pointer) from error

    return read


def _whole(value: Any, pointer: str) -> int:
    """1.0 is an integer in JSON Schema."""
    if isinstance(value, float | decimal.Decimal) and value == value // 1:
        return int(value)
    return int(_check_type(int)(value, pointer))


def _float(value: Any, pointer: str) -> float:
    try:
        return float(_check_type(int, float, decimal.Decimal)(value, pointer))
    except OverflowError as error:
        raise BuildError(f"{_show_value(value)} is too large for a float", pointer=pointer) from error


def _decimal(value: Any, pointer: str) -> decimal.Decimal:
    return decimal.Decimal(str(_check_type(int, float, decimal.Decimal)(value, pointer)))


def _anything(value: Any, pointer: str) -> Any:
    return value


SCALARS: dict[Any, Callable[[Any, str], Any]] = {
    str: _check_type(str),
    int: _whole,
    float: _float,
    bool: _check_type(bool),
    None: _check_type(type(None)),
    type(None): _check_type(type(None)),
    Any: _anything,
    object: _anything,
    decimal.Decimal: _decimal,
    dt.datetime: _parse_string("date and time", dt.datetime.fromisoformat),
    dt.date: _parse_string("date", dt.date.fromisoformat),
    dt.time: _parse_string("time", dt.time.fromisoformat),
    uuid.UUID: _parse_string("UUID", uuid.UUID),
    bytes: _parse_string("base64", lambda text: base64.b64decode(text, validate=True)),
}


def _first_that_fits(options: tuple[Any, ...], value: Any, pointer: str) -> Any:
    errors = []
    for option in options:
        try:
            return build(option, value, pointer=pointer)
        except BuildError as error:
            errors.append(error)
    # The error that is deepest in the value is the most specific.
    raise max(errors, key=lambda error: error.pointer.count("/"))


def _one_of(options: Mapping[Any, tuple[Any, Any]], value: Any, pointer: str) -> Any:
    for plain, option in options.values():
        if plain == value and isinstance(plain, bool) == isinstance(value, bool):
            return option
    known = ", ".join(_show_value(plain) for plain, _ in options.values())
    raise BuildError(f"{_show_value(value)} is none of {known}", pointer=pointer)


def _members(tp: Any, value: Any, pointer: str) -> Any:
    cls = typing.get_origin(tp) or tp
    known = {member.name: member for member in members(tp, name_of(tp)) or ()}
    fields_given = _object(value, pointer)
    for name in fields_given:
        if name not in known:
            raise BuildError(f"{name_of(cls)} has no {name!r}", pointer=below(pointer, name))
    for name, member in known.items():
        if member.required and name not in fields_given:
            raise BuildError(f"{name_of(cls)} requires {name!r}", pointer=pointer)
    values = {name: build(known[name].type, v, pointer=below(pointer, name)) for name, v in fields_given.items()}
    if is_function(cls) or is_typed_dict(cls):
        return values
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise BuildError(f"{name_of(cls)} rejects its fields: {error}", pointer=pointer) from error


def _pydantic(tp: Any, value: Any, pointer: str) -> Any:
    package = pydantic()
    try:
        return tp.model_validate(value) if is_pydantic_model(tp) else package.TypeAdapter(tp).validate_python(value)
    except package.ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = pointer
        for part in first["loc"]:
            at = below(at, part)
        raise BuildError(f"{name_of(tp)}: {first['msg']}", pointer=at) from error


def _items(value: Any, kind: Any, pointer: str) -> list[Any]:
    items = _check_type(list)(value, pointer)
    return [build(kind, item, pointer=below(pointer, i)) for i, item in enumerate(items)]


def _tuple(kinds: tuple[Any, ...], value: Any, pointer: str) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_items(value, kinds[0], pointer))
    items = _check_type(list)(value, pointer)
    if not kinds:
        return tuple(items)
    if len(items) != len(kinds):
        raise BuildError(f"{len(items)} items, but {len(kinds)} are needed", pointer=pointer)
    pairs = zip(kinds, items, strict=True)
    return tuple(build(kind, item, pointer=below(pointer, i)) for i, (kind, item) in enumerate(pairs))


def _mapping(kinds: tuple[Any, ...], value: Any, pointer: str) -> dict[Any, Any]:
    members = _object(value, pointer)
    if not kinds:
        return dict(members)
    return {
        build(kinds[0], name, pointer=below(pointer, name)): build(kinds[1], v, pointer=below(pointer, name))
        for name, v in members.items()
    }


def _object(value: Any, pointer: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BuildError(f"{_show_value(value)} is not an object", pointer=pointer)
    return value


def _show_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
