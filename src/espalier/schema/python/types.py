"""Inspects Python types: members of classes and functions, annotations inside wrappers, docstrings.

It makes neither schemas nor instances: `schemas.py` and `instances.py` do. It never imports pydantic: a pydantic class
can only arrive if the caller has imported it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from espalier.errors import SchemaError

MISSING = dataclasses.MISSING
WRAPPERS = (typing.Required, typing.NotRequired)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMember:
    """A field of a class, or a parameter of a function. default: MISSING where there is none that JSON can express."""

    name: str
    type: Any
    required: bool
    default: Any = dataclasses.field(default_factory=lambda: MISSING)
    description: str = ""


def is_pydantic(tp: Any) -> bool:
    """A pydantic model, or a dataclass made by pydantic."""
    return isinstance(tp, type) and (is_pydantic_model(tp) or "__pydantic_core_schema__" in vars(tp))


def is_pydantic_model(tp: Any) -> bool:
    return isinstance(tp, type) and callable(getattr(tp, "model_json_schema", None)) and hasattr(tp, "model_validate")


def pydantic() -> Any:
    """The pydantic package, which is imported wherever a pydantic class exists."""
    return sys.modules["pydantic"]


def is_function(tp: Any) -> bool:
    return inspect.isroutine(tp)


def is_enum(tp: Any) -> bool:
    return isinstance(tp, type) and issubclass(tp, Enum)


def is_dataclass(tp: Any) -> bool:
    return isinstance(tp, type) and dataclasses.is_dataclass(tp)


def is_typed_dict(tp: Any) -> bool:
    """A TypedDict of typing or typing_extensions; `typing.is_typeddict` does not recognise the latter."""
    return isinstance(tp, type) and issubclass(tp, dict) and hasattr(tp, "__required_keys__")


def is_hashable(tp: Any) -> bool:
    """Whether a type can be looked up in a dict; metadata inside a union may be unhashable."""
    try:
        hash(tp)
    except TypeError:
        return False
    return True


def is_named_tuple(tp: Any) -> bool:
    return isinstance(tp, type) and issubclass(tp, tuple) and hasattr(tp, "_fields")


def members(tp: Any, path: str) -> list[TypeMember] | None:
    """The members of a dataclass, TypedDict, NamedTuple (with or without type arguments) or function, in order; None
    for anything else. Raises SchemaError, naming `path`, for annotations that cannot be resolved."""
    cls = typing.get_origin(tp) or tp
    reader = next((read for is_one, read in READERS if is_one(cls)), None)
    if reader is None:
        return None
    hints = _hints(cls, path)
    parameters = getattr(cls, "__parameters__", ())
    arguments = dict(zip(parameters, typing.get_args(tp), strict=False))
    listed = reader(cls, hints, path)
    return [dataclasses.replace(m, type=substituted(m.type, arguments)) for m in listed] if arguments else listed


def substituted(tp: Any, arguments: Mapping[Any, Any]) -> Any:
    """A type with its type variables replaced by the given types."""
    if isinstance(tp, TypeVar):
        return arguments.get(tp, tp)
    parameters = getattr(tp, "__parameters__", ())
    if not parameters or isinstance(tp, type):
        return tp
    return tp[tuple(arguments.get(p, p) for p in parameters)]


def unwrapped(tp: Any) -> tuple[Any, list[Any]]:
    """A type without Annotated, Required, NewType and type variables, and the metadata found, innermost first."""
    metadata: list[Any] = []
    while True:
        origin = typing.get_origin(tp)
        if origin is typing.Annotated:
            metadata = [*tp.__metadata__, *metadata]
            tp = tp.__origin__
        elif origin in WRAPPERS or getattr(origin, "_name", None) == "ReadOnly" or origin is typing.Final:
            tp = typing.get_args(tp)[0]
        elif isinstance(tp, typing.NewType):
            tp = tp.__supertype__
        elif isinstance(tp, TypeVar):
            tp = tp.__bound__ or (typing.Union[tp.__constraints__] if tp.__constraints__ else Any)  # noqa: UP007
        else:
            return tp, metadata


def is_union(tp: Any) -> bool:
    return typing.get_origin(tp) in (typing.Union, types.UnionType)


def described(metadata: list[Any]) -> str:
    """The description in metadata: a string, a `Doc`, or a pydantic `Field(description=...)`; "" if there is none."""
    for data in reversed(metadata):
        text = data if isinstance(data, str) else getattr(data, "documentation", getattr(data, "description", None))
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())
    return ""


def name_of(tp: Any) -> str:
    """The name of a type as one writes it in Python."""
    return tp.__name__ if isinstance(tp, type) and not typing.get_args(tp) else str(tp).replace("typing.", "")


def first_line(tp: Any) -> str:
    """The first line of a type's own docstring, not of one that `dataclass`, `Enum` or `NamedTuple` generates."""
    cls = typing.get_origin(tp) or tp
    text = cls.__dict__.get("__doc__") if isinstance(cls, type) else getattr(cls, "__doc__", None)
    if not isinstance(text, str) or not text.strip():
        return ""
    generated = isinstance(cls, type) and (text.startswith(f"{cls.__name__}(") or text == "An enumeration.")
    return "" if generated else inspect.cleandoc(text).splitlines()[0].strip()


def argument_texts(text: str | None) -> dict[str, str]:
    """Descriptions of parameters from an `Args:` section in Google style and from `:param name:` lines."""
    if not text:
        return {}
    texts: dict[str, str] = {}
    lines = inspect.cleandoc(text).splitlines()
    for line in lines:
        if match := re.match(r":param (?:[^:]*\s)?(\w+):\s*(.+)", line.strip()):
            texts[match.group(1)] = match.group(2).strip()
    start = next((i for i, line in enumerate(lines) if re.fullmatch(r"(Args|Arguments|Parameters):", line)), None)
    if start is None:
        return texts
    last, indent = "", 0
    for line in lines[start + 1 :]:
        if line.strip() and not line[0].isspace():
            break
        depth = len(line) - len(line.lstrip())
        match = re.match(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
        if match and (not last or depth <= indent):
            last, indent = match.group(1), depth
            texts[last] = match.group(2).strip()
        elif line.strip() and last:
            texts[last] = f"{texts[last]} {line.strip()}".strip()
    return texts


def _hints(cls: Any, path: str) -> dict[str, Any]:
    names = {cls.__name__: cls} if isinstance(cls, type) else {}
    try:
        return typing.get_type_hints(cls, localns=names, include_extras=True)
    except NameError as error:
        raise SchemaError(f"{path}: {error}", hint="define the class at the top of its module") from error
    except (TypeError, SyntaxError) as error:
        raise SchemaError(f"{path}: the annotations cannot be read: {error}") from error


def _dataclass_members(cls: Any, hints: Mapping[str, Any], path: str) -> list[TypeMember]:
    for name, pseudo in cls.__dataclass_fields__.items():
        if isinstance(pseudo.type, dataclasses.InitVar) or str(pseudo.type).startswith(("InitVar", "dataclasses.Init")):
            raise SchemaError(f"{path}.{name}: an InitVar is not a field", hint="use a field, or a function")
    return [
        TypeMember(
            name=f.name,
            type=hints[f.name],
            required=f.default is MISSING and f.default_factory is MISSING,
            default=f.default,
            description=str(f.metadata.get("description", "")),
        )
        for f in dataclasses.fields(cls)
        if f.init
    ]


def _typed_dict_members(cls: Any, hints: Mapping[str, Any], path: str) -> list[TypeMember]:
    # Under `from __future__ import annotations` only the hints show Required and NotRequired.
    wrappers = {name: next((o for o in _origins(tp) if o in WRAPPERS), None) for name, tp in hints.items()}
    return [
        TypeMember(
            name=name,
            type=tp,
            required=wrappers[name] is typing.Required or (wrappers[name] is None and name in cls.__required_keys__),
        )
        for name, tp in hints.items()
    ]


def _origins(tp: Any) -> Iterator[Any]:
    """The origins of a type and of the types it wraps, outermost first."""
    while (origin := typing.get_origin(tp)) is not None:
        yield origin
        tp = tp.__origin__ if origin is typing.Annotated else typing.get_args(tp)[0] if typing.get_args(tp) else None


def _named_tuple_members(cls: Any, hints: Mapping[str, Any], path: str) -> list[TypeMember]:
    defaults = cls._field_defaults
    return [
        TypeMember(name=n, type=hints.get(n, Any), required=n not in defaults, default=defaults.get(n, MISSING))
        for n in cls._fields
    ]


def _function_members(function: Any, hints: Mapping[str, Any], path: str) -> list[TypeMember]:
    texts = argument_texts(function.__doc__)
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError) as error:
        raise SchemaError(f"{path}: its parameters are not known", hint="wrap it in a function of Python") from error
    listed = []
    for i, (name, parameter) in enumerate(parameters.items()):
        if i == 0 and name in ("self", "cls") and name not in hints:
            continue  # a method that was taken from its class
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise SchemaError(f"{path}.{name}: a positional-only parameter has no name in JSON")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue  # a model passes no arguments there
        empty = parameter.default is parameter.empty
        listed.append(
            TypeMember(
                name=name,
                type=hints.get(name, Any),
                required=empty,
                default=MISSING if empty else parameter.default,
                description=texts.get(name, ""),
            )
        )
    return listed


READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Mapping[str, Any], str], list[TypeMember]]], ...] = (
    (is_dataclass, _dataclass_members),
    (is_typed_dict, _typed_dict_members),
    (is_named_tuple, _named_tuple_members),
    (is_function, _function_members),
)
"""(test, reader): the first test that accepts a class selects its reader."""
