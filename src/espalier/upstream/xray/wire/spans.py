"""JSON with the place of every value, so that parts can be cut out and the rest stays byte for byte.

Bytes are read as Latin-1, one character each: places are those of bytes, and texts are decoded only by `text_of`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from espalier.errors import UpstreamError

Made: TypeAlias = Mapping[str, Callable[[Any], Any]]
_DECODE = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(slots=True)
class Value:
    """data: the value. start, end: of its text. members, items: of an object or array that was gone into."""

    data: Any
    start: int
    end: int
    members: dict[str, JsonMember] = field(default_factory=dict)
    items: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class JsonMember:
    """start: where its name begins. before: the place of the comma before it, None for the first member. after: the
    place behind the comma after it, None for the last."""

    start: int
    value: Value
    before: int | None
    after: int | None = None

    @property
    def whole(self) -> tuple[int, int]:
        """What to cut so that the member is gone, with one comma."""
        if self.before is not None:
            return self.before, self.value.end
        return self.start, self.value.end if self.after is None else self.after


def parsed(text: str, inside: frozenset[str], made: Made | None = None) -> Value:
    """The object in a text, or the list of objects; values under the names of `inside` are gone into. made: for lists
    under some of these names, what is made at once of each item, so that the items of a long list are never all there
    as JSON objects. Raises UpstreamError for anything else."""
    try:
        place = _skip_space(text, 0)
        if text[place : place + 1] == "[":
            value = _array(text, place, inside, made or {}, "")
            if not value.data or not all(isinstance(entry, dict) for entry in value.data):
                raise ValueError("no list of objects")
        elif text[place : place + 1] == "{":
            value = _object(text, place, inside, made or {})
        else:
            raise ValueError("no object")
    except (ValueError, IndexError, RecursionError) as error:
        raise UpstreamError(f"the reply is no JSON object: {error}") from error
    if _skip_space(text, value.end) != len(text):
        raise UpstreamError("the reply goes on after its JSON object")
    return value


def text_of(data: Any) -> str:
    """A text that was read as Latin-1."""
    return data.encode("latin-1", "replace").decode("utf-8", "replace") if isinstance(data, str) else ""


def decoded(data: Any) -> Any:
    """A value whose texts were read as Latin-1."""
    if isinstance(data, dict):
        return {text_of(name): decoded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [decoded(value) for value in data]
    return text_of(data) if isinstance(data, str) else data


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with each part from start to end replaced. Parts do not overlap, but one may hold others: it wins."""
    made, place = [], 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if start < place:
            continue
        made += [text[place:start], new]
        place = end
    made.append(text[place:])
    return "".join(made)


def _skip_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


def _value(text: str, place: int, inside: frozenset[str], made: Made, name: str | None) -> Value:
    """name: the member's, or the list's; None for a value that is not gone into."""
    place = _skip_space(text, place)
    if name is not None and text[place] == "{":
        return _object(text, place, inside, made)
    if name is not None and text[place] == "[":
        return _array(text, place, inside, made, name)
    data, end = _DECODE(text, place)
    return Value(data, place, end)


def _object(text: str, start: int, inside: frozenset[str], made: Made) -> Value:
    inner = Value({}, start, start)
    place = _skip_space(text, start + 1)
    before: int | None = None
    last: JsonMember | None = None
    while text[place] != "}":
        if text[place] != '"':
            raise ValueError(f"no name at {place}")
        name, end = _DECODE(text, place)
        colon = _skip_space(text, end)
        if text[colon] != ":":
            raise ValueError(f"no colon at {colon}")
        value = _value(text, colon + 1, inside, made, name if name in inside else None)
        if last is not None:
            last.after = place
        last = inner.members[name] = JsonMember(place, value, before)
        inner.data[name] = value.data
        place = _skip_space(text, value.end)
        if text[place] == ",":
            before, place = place, _skip_space(text, place + 1)
        elif text[place] != "}":
            raise ValueError(f"no comma at {place}")
    inner.end = place + 1
    return inner


def _array(text: str, start: int, inside: frozenset[str], made: Made, name: str) -> Value:
    inner, make = Value([], start, start), made.get(name)
    place = _skip_space(text, start + 1)
    while text[place] != "]":
        value = _value(text, place, inside, made, name if make is None else None)
        if make is not None:
            value.data = make(value.data)
        inner.items.append(value)
        inner.data.append(value.data)
        place = _skip_space(text, value.end)
        if text[place] == ",":
            place = _skip_space(text, place + 1)
        elif text[place] != "]":
            raise ValueError(f"no comma at {place}")
    inner.end = place + 1
    return inner
