"""Writes records as JSON, by the types of their fields.

The writer of a class is made as `dataclasses` makes `__init__`: from the text of one expression, here
`{"step": r.step, "token": {"id": r.token_id, "bytes": list(r.bytes)}}`. A loop over the fields takes three times as
long, and a trace has hundreds of candidates.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from espalier.json_record.declaration import Json, Part, Write, parts_of, split


def write_json(record: Any) -> dict[str, Any]:
    """The JSON of a record by its fields, also for a class whose `to_json` adds to it."""
    cls: type = type(record)
    return _writer(cls)(record)


@cache
def _writer(record: type) -> Callable[[Any], dict[str, Any]]:
    top, inner = split(parts_of(record))
    names: dict[str, Any] = {}
    objects = {key: _display([_item(part, names) for part in parts]) for key, parts in inner.items()}
    items = [
        f"{part.json.within!r}: {objects[part.json.within]}" if part.json.within else _item(part, names) for part in top
    ]
    made: Callable[[Any], dict[str, Any]] = eval(f"lambda r: {_display(items)}", names)
    return made


def _display(items: Sequence[str]) -> str:
    return f"{{{', '.join(items)}}}"


def _item(part: Part, names: dict[str, Any]) -> str:
    """`"key": r.name`, with a call around the value unless it is JSON already. names: gets what the text refers to."""
    value = f"r.{part.name}"
    write = part.json.write or _write_of(part.hint)
    if write is not None:
        names[f"write_{part.name}"] = write
    item = f"{part.key!r}: {value}" if write is None else f"{part.key!r}: write_{part.name}({value})"
    if not part.json.omit:
        return item
    names[f"default_{part.name}"] = part.default
    return f"**({{}} if {value} == default_{part.name} else {{{item}}})"


def _write_of(hint: Any) -> Write | None:
    """None: such a value is JSON already. A record in a field is of the field's own class, not of a class below it."""
    if typing.get_origin(hint) is typing.Annotated:
        own = [extra.write for extra in hint.__metadata__ if isinstance(extra, Json) and extra.write]
        return own[0] if own else _write_of(hint.__origin__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _optional_write([write for member in arguments if (write := _write_of(member))])
    if origin is Sequence:
        return _sequence_write(_list_write(_write_of(arguments[0])))
    if origin in (tuple, list):
        return _list_write(_write_of(arguments[0]))
    if origin in (dict, Mapping):
        return _map_write(_write_of(arguments[1]))
    if hint is bytes:
        return list
    if hasattr(hint, "to_json"):
        return _writer(hint) if hint.to_json is write_json else operator.methodcaller("to_json")
    return operator.methodcaller("_asdict") if hasattr(hint, "_asdict") else None


def _list_write(write: Write | None) -> Write:
    return list if write is None else lambda values: [*map(write, values)]


def _sequence_write(write: Write) -> Write:
    """A sequence of a class of its own may write itself, without making its items."""

    def write_sequence(values: Any) -> Any:
        own = getattr(values, "to_json", None)
        return write(values) if own is None else own()

    return write_sequence


def _map_write(write: Write | None) -> Write:
    return dict if write is None else lambda values: {key: write(value) for key, value in values.items()}


def _optional_write(writes: Sequence[Write]) -> Write | None:
    if not writes:
        return None
    write = writes[0]
    return lambda value: None if value is None else write(value)
