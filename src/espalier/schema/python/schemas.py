"""Writes JSON Schemas for Python classes, types and functions.

    schema_of(list[int])      {"type": "array", "items": {"type": "integer"}}

Supported: dataclasses, TypedDicts, NamedTuples (as objects, to keep the names), enums, unions, containers, functions
(an object of the parameters) and pydantic models, whose schemas pydantic writes. A type that JSON Schema cannot express
is refused with its path, never widened. `instances.py` is the inverse.
"""

from __future__ import annotations

import collections.abc
import datetime as dt
import decimal
import json
import math
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from espalier.errors import SchemaError
from espalier.schema.python.types import (
    MISSING,
    described,
    first_line,
    is_enum,
    is_function,
    is_hashable,
    is_pydantic,
    is_pydantic_model,
    is_union,
    members,
    name_of,
    pydantic,
    unwrapped,
)

Schema: TypeAlias = dict[str, Any]

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    decimal.Decimal: {"type": "number"},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    bytes: {"type": "string", "contentEncoding": "base64", "pattern": BASE64},
}

ARRAYS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
SIZES = {"string": "Length", "array": "Items", "object": "Properties"}
JSON_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_of(obj: Any) -> Schema:
    """The JSON Schema (draft 2020-12) of a class, a type such as `list[User]`, or a function's parameters.

    Fields keep their order; those without a default are required; no others are allowed. Descriptions come from
    docstrings, `Annotated[..., "text"]` and `metadata={"description": ...}`; bounds from `Annotated`, as in
    annotated-types. Raises SchemaError naming the path (`User.friends[].x`) of what JSON Schema cannot express.
    """
    name = getattr(obj, "__name__", None) or name_of(obj)
    writer = _SchemaWriter()
    if is_pydantic(obj):
        return writer.pydantic_schema(obj, name)
    tp, _ = unwrapped(obj)
    if members(tp, name) is None:
        schema = writer.of(obj, name)
    else:
        # The outermost class is the schema itself; only if it refers to itself does it become a definition.
        key = writer.name(tp)
        schema = writer.object_of(tp, name)
        if key in writer.wanted:
            writer.definitions = {key: schema} | writer.definitions
            schema = {"$ref": f"#/$defs/{key}"}
    return schema | ({"$defs": writer.definitions} if writer.definitions else {})


class _SchemaWriter:
    """Writes schemas of types; the classes that they mention become definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self.wanted: set[str] = set()
        self._names: dict[Any, str] = {}

    def of(self, tp: Any, path: str) -> Schema:
        tp, metadata = unwrapped(tp)
        schema = self._plain(tp, path)
        for data in metadata:
            schema = _add_bounds(schema, data, path)
        text = described(metadata)
        return schema | {"description": text} if text else schema

    def _plain(self, tp: Any, path: str) -> Schema:
        if is_hashable(tp) and tp in SCALARS:
            return dict(SCALARS[tp])
        origin, arguments = typing.get_origin(tp) or tp, typing.get_args(tp)
        if is_union(tp):
            options = [self.of(option, path) for option in arguments]
            return {"anyOf": [o for i, o in enumerate(options) if o not in options[:i]]}
        if origin is typing.Literal:
            return _values([getattr(a, "value", a) if is_enum(type(a)) else a for a in arguments], path)
        if is_enum(tp):
            text = first_line(tp)
            return _values([member.value for member in tp], path) | ({"description": text} if text else {})
        if is_pydantic(origin):
            return self._embedded(tp, path)
        if members(tp, path) is not None and not is_function(tp):
            return self._reference(tp, lambda: self.object_of(tp, path))
        if hasattr(tp, "__value__"):  # a `type X = ...` statement, which may refer to itself
            return self._reference(tp, lambda: self.of(tp.__value__, path))
        if origin in ARRAYS:
            return {"type": "array"} | ({"items": self.of(arguments[0], f"{path}[]")} if arguments else {})
        if origin in SETS:
            items = {"items": self.of(arguments[0], f"{path}[]")} if arguments else {}
            # A set drops duplicates anyway; uniqueItems is stated where it can be enforced.
            unique = {"uniqueItems": True} if items.get("items") == {"type": "string"} else {}
            return {"type": "array"} | items | unique
        if origin is tuple:
            return self._tuple(tp, arguments, path)
        if origin in MAPPINGS:
            return self._mapping(arguments, path)
        raise SchemaError(
            f"{path}: {name_of(tp)} has no JSON Schema",
            hint="use a dataclass, a TypedDict, a pydantic model or a type of the standard library",
        )

    def _tuple(self, tp: Any, arguments: tuple[Any, ...], path: str) -> Schema:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": self.of(arguments[0], f"{path}[]")}
        if not arguments:
            return {"type": "array"} | ({} if tp in (tuple, typing.Tuple) else {"maxItems": 0})  # noqa: UP006
        prefix = [self.of(a, f"{path}[{i}]") for i, a in enumerate(arguments)]
        return {"type": "array", "prefixItems": prefix, "minItems": len(prefix), "maxItems": len(prefix)}

    def _mapping(self, arguments: tuple[Any, ...], path: str) -> Schema:
        if not arguments:
            return {"type": "object"}
        names = self.of(arguments[0], f"{path}{{key}}")
        kinds = _types(names)
        if kinds != {"string"}:
            raise SchemaError(f"{path}: the keys of an object are strings, not {name_of(arguments[0])}")
        values = self.of(arguments[1], f"{path}{{}}")
        schema: Schema = {"type": "object", "additionalProperties": values}
        return schema if names == SCALARS[str] else schema | {"propertyNames": names}

    def object_of(self, tp: Any, path: str) -> Schema:
        """The object schema of a class or function with members."""
        properties: dict[str, Schema] = {}
        required = []
        for member in members(tp, path) or ():
            inner = self.of(member.type, f"{path}.{member.name}")
            if member.description:
                inner = inner | {"description": member.description}
            default = _json_default(member.default)
            properties[member.name] = inner if default is MISSING else inner | {"default": default}
            required += [member.name] if member.required else []
        text = first_line(tp)
        schema: Schema = {"type": "object"} | ({"description": text} if text else {})
        return schema | {"properties": properties, "required": required, "additionalProperties": False}

    def name(self, tp: Any) -> str:
        """The name of a definition: that of the class, followed by a number if another class has the same name."""
        if tp not in self._names:
            bare = "".join(c if c.isalnum() or c in "_-." else "_" for c in _bare_name(tp)).strip("_")
            taken = set(self._names.values()) | self.definitions.keys()
            numbers = (f"{bare}{i}" for i in range(2, len(taken) + 3))
            self._names[tp] = bare if bare not in taken else next(n for n in numbers if n not in taken)
        return self._names[tp]

    def _reference(self, tp: Any, write: Callable[[], Schema]) -> Schema:
        known = tp in self._names
        name = self.name(tp)
        self.wanted.add(name)
        if not known:
            self.definitions[name] = {}  # keeps its position in $defs, and ends the recursion
            self.definitions[name] = write()
        return {"$ref": f"#/$defs/{name}"}

    def _embedded(self, tp: Any, path: str) -> Schema:
        """A pydantic model inside another type: its own definitions move to the top."""
        if tp in self._names:
            return {"$ref": f"#/$defs/{self._names[tp]}"}
        schema = self.pydantic_schema(tp, path)
        for name, inner in schema.pop("$defs", {}).items():
            if self.definitions.setdefault(name, inner) != inner:
                raise SchemaError(f"{path}: two classes are called {name}", hint="give one of them another name")
        if "$ref" in schema:
            return schema
        if self.definitions.get(tp.__name__) == schema:  # another model already brought it
            return {"$ref": f"#/$defs/{tp.__name__}"}
        return self._reference(tp, lambda: schema)

    def pydantic_schema(self, tp: Any, path: str) -> Schema:
        """The schema that pydantic writes. Raises SchemaError where it writes none."""
        try:
            schema = tp.model_json_schema() if is_pydantic_model(tp) else pydantic().TypeAdapter(tp).json_schema()
        except pydantic().errors.PydanticUserError as error:
            raise SchemaError(f"{path}: {str(error).splitlines()[0]}") from error
        return dict(schema)


def _bare_name(tp: Any) -> str:
    arguments = typing.get_args(tp)
    return name_of(typing.get_origin(tp) or tp) + "".join(f"_{_bare_name(a)}" for a in arguments)


def _values(values: list[Any], path: str) -> Schema:
    """The schema of a Literal or an enum. Raises SchemaError for a value that is not JSON."""
    for value in values:
        if type(value) not in JSON_NAMES and not isinstance(value, str | int | float):
            raise SchemaError(f"{path}: {value!r} is not a JSON value")
    if not values:
        raise SchemaError(f"{path}: there is no value to choose")
    kinds = {next(name for kind, name in JSON_NAMES.items() if isinstance(value, kind)) for value in values}
    typed: Schema = {"type": kinds.pop()} if len(kinds) == 1 else {}
    plain = json.loads(json.dumps(values))
    return typed | ({"const": plain[0]} if len(plain) == 1 else {"enum": plain})


def _json_default(value: Any) -> Any:
    """A default that JSON can express; MISSING otherwise. A model may copy the default."""
    if is_enum(type(value)):
        value = value.value
    if type(value) not in JSON_NAMES or (isinstance(value, float) and not math.isfinite(value)):
        return MISSING
    return value


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types of a schema written by this module; a reference is to an object."""
    if "anyOf" in schema:
        return {kind for option in schema["anyOf"] for kind in _types(option)}
    return {schema["type"]} if "type" in schema else {"object"} if "$ref" in schema else set(SIZES)


def _add_bounds(schema: Schema, data: Any, path: str) -> Schema:
    """The schema with the bounds of one piece of metadata, by the names that annotated-types and pydantic use. Python
    code as metadata is refused; metadata of other kinds is ignored."""
    if isinstance(data, str | type):
        return schema
    for inner in getattr(data, "metadata", None) or ():  # a pydantic Field
        schema = _add_bounds(schema, inner, path)
    if callable(getattr(data, "func", None)):
        raise SchemaError(
            f"{path}: {data!r} is Python code, which JSON Schema cannot express", hint="use bounds or a pattern"
        )
    for name, keyword in BOUNDS.items():
        bound = getattr(data, name, None)
        if bound is not None:
            if not _types(schema) & {"integer", "number"}:
                raise SchemaError(f"{path}: {name}={bound!r} is for numbers", hint="JSON Schema has no bounds on dates")
            schema = schema | {keyword: _number(bound, path)}
    for name in ("min_length", "max_length"):
        size = getattr(data, name, None)
        if size is not None and (size or name == "max_length"):
            kinds = _types(schema) & SIZES.keys()
            if not kinds or "$ref" in schema:
                raise SchemaError(f"{path}: {name} is for strings, arrays and mappings")
            schema = schema | {f"{name[:3]}{SIZES[kind]}": size for kind in sorted(kinds)}
    pattern = getattr(data, "pattern", None)
    if pattern is not None and not callable(pattern):
        schema = schema | {"pattern": getattr(pattern, "pattern", pattern)}
    return schema


def _number(bound: Any, path: str) -> int | float:
    if isinstance(bound, decimal.Decimal):
        return int(bound) if bound == bound.to_integral_value() else float(bound)
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise SchemaError(f"{path}: {bound!r} is not a bound for a number")
    return bound
