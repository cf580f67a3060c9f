"""The base class of request bodies, and how one is read from parsed JSON. It knows no route and no field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from espalier.server.bodies.fields import sort_fields, unknown
from espalier.server.http.errors import BadRequest, field_path


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldWarnings:
    """What the reply says of a body's fields. hints: names of fields that have no effect. warnings: one for each
    unknown field."""

    hints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __add__(self, other: FieldWarnings) -> FieldWarnings:
        return FieldWarnings(hints=self.hints + other.hints, warnings=self.warnings + other.warnings)

    def lines(self) -> tuple[str, ...]:
        """As warnings, the hints together."""
        listed = f"without effect here: {', '.join(dict.fromkeys(self.hints))}"
        return (*self.warnings, *([listed] if self.hints else ()))


class Body(BaseModel):
    """A JSON object that takes its declared fields only, each of exactly its type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)
    OBJECTS: ClassVar[tuple[str, ...]] = ()
    """Fields whose objects may have hints and unknown fields too."""
    _told: FieldWarnings = PrivateAttr(default_factory=FieldWarnings)

    @property
    def told(self) -> FieldWarnings:
        """What the reply says of the fields that are not here any more."""
        return self._told

    @classmethod
    def as_sent(cls, data: Mapping[str, Any], *, strict: bool) -> tuple[dict[str, Any], FieldWarnings]:
        """The object with its fields sorted, before they are validated. Raises what `sort_fields` raises."""
        sorted_fields = sort_fields(data, names_of(cls), strict=strict, ours=_names_of_ours(cls))
        field_warnings = FieldWarnings(hints=sorted_fields.hints, warnings=sorted_fields.unknown)
        for name in cls.OBJECTS:
            if isinstance(inner := sorted_fields.fields.get(name), Mapping):
                field = next(f for n, f in cls.model_fields.items() if (f.alias or n) == name)
                kind = _model_in(field.annotation)
                assert kind is not None
                # What is unknown in the object of a constraint is refused: it would be dropped from what is enforced.
                inside = sort_fields(inner, names_of(kind), strict=strict or name in CLOSED, within=name)
                sorted_fields.fields[name] = inside.fields
                field_warnings += FieldWarnings(hints=inside.hints, warnings=inside.unknown)
        return sorted_fields.fields, field_warnings


CLOSED = frozenset({"structured_outputs"})
BodyType = TypeVar("BodyType", bound=Body)


def read_body(cls: type[BodyType], data: Mapping[str, Any], *, strict: bool = True) -> BodyType:
    """Validate parsed JSON as a body. strict: whether unknown fields are refused, not told; the body itself can ask
    for that with `"espalier": {"strict": true}`.

    Raises BadRequest, UnknownParameter and UnsupportedParameter, each naming the field as a path such as
    `messages[0].content`."""
    ours = data.get("espalier")
    strict = strict or (isinstance(ours, Mapping) and ours.get("strict") is True)
    given, told = cls.as_sent(data, strict=strict)
    try:
        body = cls.model_validate(given)
    except ValidationError as error:
        raise _first(cls, error) from None
    body._told = told  # of the class above
    return body


@cache
def names_of(cls: type[BaseModel]) -> frozenset[str]:
    """The names of a body's fields, as JSON has them."""
    return frozenset(field.alias or name for name, field in cls.model_fields.items())


@cache
def _names_of_ours(cls: type[BaseModel]) -> frozenset[str]:
    """The fields of a body's `espalier`; none if it has no such object."""
    field = cls.model_fields.get("espalier")
    kind = None if field is None else _model_in(field.annotation)
    return frozenset() if kind is None else names_of(kind)


def _first(cls: type[BaseModel], error: ValidationError) -> Exception:
    """The first validation error. Every member of a union reports one; the first is the most useful."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = field_path(problem["loc"])
    if problem["type"] == "extra_forbidden":
        within, _, name = path.rpartition(".")
        return unknown(name, _siblings(cls, problem["loc"][:-1]), within=within)
    if problem["type"] == "missing":
        return BadRequest(f"{path} is missing", field=path)
    return BadRequest(f"{path}: {problem['msg'][0].lower()}{problem['msg'][1:]}", field=path)


def _siblings(cls: type[BaseModel], loc: tuple[int | str, ...]) -> frozenset[str]:
    """Field names of the object at this location."""
    for part in loc:
        field = next((f for n, f in cls.model_fields.items() if (f.alias or n) == part), None)
        inner = None if field is None else _model_in(field.annotation)
        cls = inner or cls
    return names_of(cls)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for option in getattr(annotation, "__args__", ()) if (model := _model_in(option))), None)
