"""The base class of request bodies, and how one is read from parsed JSON. It knows no route and no field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from espalier.server.bodies.fields import unknown, without_idle
from espalier.server.http.errors import BadRequest, field_path


class Body(BaseModel):
    """A JSON object that takes its declared fields only, each of exactly its type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


BodyType = TypeVar("BodyType", bound=Body)


def read_body(cls: type[BodyType], data: Mapping[str, Any]) -> BodyType:
    """Validate parsed JSON as a body. Raises BadRequest, UnknownParameter and UnsupportedParameter, each naming the
    field as a path such as `messages[0].content`."""
    given = without_idle(data, _names(cls))
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        raise _first(cls, error) from None


def _names(cls: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in cls.model_fields.items()}


def _first(cls: type[BaseModel], error: ValidationError) -> Exception:
    """The first validation error. Every member of a union reports one; the first is the most useful."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = field_path(found["loc"])
    if found["type"] == "extra_forbidden":
        within, _, name = path.rpartition(".")
        return unknown(name, _siblings(cls, found["loc"][:-1]), within=within)
    if found["type"] == "missing":
        return BadRequest(f"{path} is missing", field=path)
    return BadRequest(f"{path}: {found['msg'][0].lower()}{found['msg'][1:]}", field=path)


def _siblings(cls: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Field names of the object at this location."""
    for part in loc:
        field = next((f for n, f in cls.model_fields.items() if (f.alias or n) == part), None)
        inner = None if field is None else _model_in(field.annotation)
        cls = inner or cls
    return _names(cls)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in getattr(annotation, "__args__", ()) if (found := _model_in(one))), None)
