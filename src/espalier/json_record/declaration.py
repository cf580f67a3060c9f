"""How a field of a record stands in its JSON, and the fields of a record in the order of its JSON.

It neither writes nor reads.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

Read = Callable[[Any], Any]
"""The value of a field from parsed JSON. Raises `Mismatch` of `reading.py`."""
Write = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 1e15
"""Numbers beyond it are an error by default: they are not from a generation, and their sums would overflow."""
FIRST = ""
"""For `in_json(after=...)`: before all fields."""


@dataclass(frozen=True, slots=True)
class Json:
    """How a field stands in the JSON, beside what its type says."""

    #: Its name in the JSON; "" is the name of the field.
    key: str = ""
    #: The object inside the JSON that holds it, together with other fields.
    within: str = ""
    #: Whether it is left out while it has its default.
    omit: bool = False
    #: Whether it is never written or read.
    internal: bool = False
    #: Whether it must be there when it is read although the field has a default.
    needed: bool = False
    #: The largest number, in either direction.
    most: float = LARGEST
    #: In place of what the type says.
    write: Write | None = None
    #: In place of what the type says.
    read: Read | None = None


INTERNAL = Json(internal=True)
NEEDED = Json(needed=True)
OMITTED = Json(omit=True)


def in_json(key: str = "", *, after: str | None = None) -> Callable[[F], F]:
    """Marks the getter of a property that is written beside the fields. after: the field or property that it follows
    in the JSON; the last one by default."""

    def marked(getter: F) -> F:
        getter.json_place = (key, after)  # type: ignore[attr-defined]  # read by `parts_of`
        return getter

    return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A field, or a property that is written."""

    name: str
    hint: Any
    json: Json
    default: Any = None
    is_needed: bool = False
    is_property: bool = False

    @property
    def key(self) -> str:
        return self.json.key or self.name


@cache
def parts_of(record: type) -> tuple[Part, ...]:
    """The fields and properties of a record in the order of its JSON."""
    hints: dict[str, Any] = {}
    for base in reversed(record.__mro__):
        # Without the class's own names: a field `bytes` would hide the type.
        names = vars(sys.modules[base.__module__])
        hints |= inspect.get_annotations(base, globals=names, locals={}, eval_str=True)
    parts = [_field_part(field, hints[field.name]) for field in dataclasses.fields(record)]
    parts = [part for part in parts if not part.json.internal]
    for base in reversed(record.__mro__):
        for name, member in vars(base).items():
            getter = member.fget if isinstance(member, property) else None
            place = getattr(getter, "json_place", None)
            if getter is not None and place is not None:
                key, after = place
                order = [part.name for part in parts]
                position = len(parts) if after is None else 0 if after == FIRST else order.index(after) + 1
                hint = inspect.get_annotations(getter, eval_str=True).get("return", Any)
                parts.insert(position, Part(name=name, hint=hint, json=Json(key), is_property=True))
    return tuple(parts)


def _field_part(field: dataclasses.Field[Any], hint: Any) -> Part:
    declared = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Json)]
    json = declared[0] if declared else Json()
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    is_needed = json.needed or default is dataclasses.MISSING
    return Part(name=field.name, hint=hint, json=json, default=default, is_needed=is_needed)


def split(parts: Sequence[Part]) -> tuple[list[Part], dict[str, list[Part]]]:
    """The parts at the top, with the first of each inner object for the object; and the parts of the inner objects."""
    top, inner = [], dict[str, list[Part]]()
    for part in parts:
        within = part.json.within
        if within not in inner:
            top.append(part)
        if within:
            inner.setdefault(within, []).append(part)
    return top, inner
