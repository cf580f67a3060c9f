"""`Preset`: sampling config, constraint and filters under one name, as a value that round-trips to JSON.

A grammar and a schema are texts here, and a filter is a type with options: `constraints/joining/presets.py` turns
them into constraints. `files.py` reads and writes presets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import date, time
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Self

from espalier.errors import InputError, SamplingError, SchemaError
from espalier.option_types import CommonSetters
from espalier.sampling.config import SamplingConfig

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
BUILTIN = "@"
"""The first character of a built-in grammar's name."""
SCHEMA_OPTIONS: Mapping[str, tuple[str, ...]] = {"json_schema": ("schema",), "tool_call": ("tools",)}
"""Filter type -> options that hold schemas. They are kept as JSON text, since TOML has no null and keeps no order."""


def check_name(name: Any) -> str:
    """The name itself, which is also the file's. Raises InputError."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} is no name of a preset",
            hint="letters, digits, _ and -, at most 64 of them, not - first",
            field="name",
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetFilter:
    """One filter of a preset. type: its kind; options: its parameters, as JSON values. A disabled filter does nothing.

    Schemas are kept as JSON text and biases as pairs, so that every form of a preset is equal.
    """

    type: str
    enabled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _text(self.type, "type of a filter", "filters")
        if not self.type or not isinstance(self.enabled, bool):
            raise InputError("a filter has a type, and `enabled` is true or false", field="filters")
        options = _mapping(self.options, "options of a filter", "filters")
        try:
            _check_json(options, self.type)
            options = _mapping(_normal(self.type, options), "options of a filter", "filters")
        except RecursionError as error:
            raise InputError("the options of a filter are nested too deeply", field="filters") from error
        object.__setattr__(self, "options", options)

    def __reduce__(self) -> tuple[Any, ...]:
        return PresetFilter.from_json, (self.to_json(),)  # for pickle, which cannot handle read-only mappings

    def to_json(self) -> dict[str, Any]:
        """-inf in `biases` becomes null, since JSON has no infinity."""
        options = _plain(self.options)
        if self.type == "logit_bias" and isinstance(options.get("biases"), list):
            options["biases"] = [_without_infinity(one) for one in options["biases"]]
        return {"type": self.type, "enabled": self.enabled, "options": options}

    @staticmethod
    def from_json(data: Any) -> PresetFilter:
        """Raises InputError for unknown fields."""
        values = _check_fields(data, PresetFilter, "a filter")
        if "type" not in values:
            raise InputError("a filter needs a `type`", field="filters")
        return PresetFilter(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """config: fields of SamplingConfig; fields that are not named have its defaults. grammar: GBNF, or `@NAME` for a
    built-in one. json_schema: as JSON text; a mapping is serialised. filters: PresetFilters, or their JSON.
    safety_preset: the name of a set of categories. schema_order: the order of properties in every schema that states
    none, the request's tools included: `schema`, `any`, `required-first`.

    A preset is applied whole or refused. Raises InputError and SamplingError naming the field.
    """

    name: str
    description: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    grammar: str | None = None
    json_schema: str | None = None
    filters: tuple[PresetFilter, ...] = ()
    safety_preset: str | None = None
    schema_order: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        _text(self.description, "description", "description")
        config = {k: v for k, v in _mapping(self.config, "config", "config").items() if v is not None}
        whole = SamplingConfig.from_json(config)
        # What mirostat takes the place of stays as written, so that each use of the preset can name it.
        used = {name: config[name] if name in whole.replaced else getattr(whole, name) for name in config}
        used = {name: value for name, value in used.items() if value is not None}  # a seed of -1 means none
        object.__setattr__(self, "config", MappingProxyType(used))
        object.__setattr__(self, "json_schema", _schema_text(self.json_schema))
        for name in ("grammar", "json_schema", "safety_preset", "schema_order"):
            value = getattr(self, name) or None  # other writers use "" for nothing
            object.__setattr__(self, name, value)
            if value is not None:
                _text(value, name, name)
        if self.grammar is not None and self.json_schema is not None:
            raise InputError(f"the preset {self.name!r} names a grammar and a schema: one of them", field="json_schema")
        if isinstance(self.filters, str | Mapping) or not isinstance(self.filters, Sequence | None):
            raise InputError("filters are a list", field="filters")
        filters = (one if isinstance(one, PresetFilter) else PresetFilter.from_json(one) for one in self.filters or ())
        object.__setattr__(self, "filters", tuple(filters))

    def __reduce__(self) -> tuple[Any, ...]:
        return Preset.from_json, (self.to_json(),)

    @property
    def sampling(self) -> SamplingConfig:
        """The complete config."""
        return SamplingConfig.from_json(self.config)

    def to_json(self) -> dict[str, Any]:
        """All fields by name; `json_schema` is text, and -inf in `logit_bias` is null."""
        sampling = self.sampling
        written = {**sampling.to_json(), **{name: self.config.get(name) for name in sampling.replaced}}
        return {
            "name": self.name,
            "description": self.description,
            "config": {name: written[name] for name in self.config},
            "filters": [one.to_json() for one in self.filters],
            "grammar": self.grammar,
            "json_schema": self.json_schema,
            "safety_preset": self.safety_preset,
            **({} if self.schema_order is None else {"schema_order": self.schema_order}),
        }

    @staticmethod
    def from_json(data: Any) -> Preset:
        """The inverse of `to_json`; only the name is required. Raises InputError naming the field."""
        values = _check_fields(data, Preset, "a preset")
        if "name" not in values:
            raise InputError("a preset needs a `name`", field="name")
        return Preset(**{name: value for name, value in values.items() if value is not None})


class BasePresetBuilder(CommonSetters):
    """Builds a preset step by step: `BasePresetBuilder("mine").temperature(0.2).grammar("@json_object").build()`.

    Fields that are not set have SamplingConfig's defaults. Errors are raised by `build`.
    """

    def __init__(self, name: str) -> None:
        self._values: dict[str, Any] = {"name": check_name(name)}
        self._config: dict[str, Any] = {}
        self._filters: list[PresetFilter] = []

    def description(self, text: str) -> Self:
        return self._with(description=text)

    def sampling(self, **fields: Any) -> Self:
        """Any fields of SamplingConfig."""
        self._config |= fields
        return self

    def grammar(self, text: str) -> Self:
        """GBNF, or `@NAME`."""
        return self._with(grammar=text)

    def json_schema(self, schema: str | Mapping[str, Any]) -> Self:
        return self._with(json_schema=schema)

    def safety_preset(self, name: str) -> Self:
        return self._with(safety_preset=name)

    def schema_order(self, order: str) -> Self:
        """`schema`, `any` or `required-first`."""
        return self._with(schema_order=order)

    def add_filter(self, type: str, **options: Any) -> Self:  # noqa: A002  # as the field is called
        self._filters.append(PresetFilter(type=type, options=options))
        return self

    def build(self) -> Preset:
        """Raises InputError and SamplingError naming the field."""
        return Preset(**self._values, config=self._config, filters=tuple(self._filters))

    def _with(self, **values: Any) -> Self:
        self._values |= values
        return self


def _text(value: Any, what: str, name: str) -> None:
    if not isinstance(value, str):
        raise InputError(f"the {what} is a text, not {type(value).__name__}", field=name)
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise InputError(f"the {what} is not valid Unicode", field=name)


def _mapping(value: Any, what: str, name: str) -> Mapping[str, Any]:
    value = {} if value is None else value
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise InputError(f"the {what} is a mapping with texts as keys", field=name)
    try:
        return MappingProxyType({key: _frozen(one, f"{what}: {key}", name) for key, one in value.items()})
    except RecursionError as error:
        raise InputError(f"the {what} is nested too deeply", field=name) from error


def _frozen(value: Any, what: str, name: str) -> Any:
    """Lists as tuples and mappings as read-only ones, so that nobody can change a shared preset."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(one, f"{what}.{key}", name) for key, one in value.items()})
    if isinstance(value, list | tuple | range | Set):
        return tuple(_frozen(one, f"{what}[{place}]", name) for place, one in enumerate(value))
    if isinstance(value, date | time):
        raise InputError(f"{what} is a date or a time", hint='write it as a text: "2026-01-31"', field=name)
    return value


def _check_json(value: Any, where: str) -> None:
    """Raises InputError for a value that JSON does not have, naming its position."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            _check_json(one, f"{where}.{key}")
    elif isinstance(value, tuple):
        for place, one in enumerate(value):
            _check_json(one, f"{where}[{place}]")
    elif not isinstance(value, str | Integral | Real | None):
        raise InputError(f"the options of a filter: {where} is {type(value).__name__}", field="filters")


def _normal(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas as JSON text, biases as pairs; invalid values are kept, and refused when the filter is applied."""
    found = {name: _plain(value) for name, value in options.items()}
    for name in SCHEMA_OPTIONS.get(kind, ()):
        if isinstance(found.get(name), Mapping):
            found[name] = _schema_text(found[name], f"{kind}.{name}")
    if kind == "logit_bias" and "biases" in found:
        with suppress(SamplingError, TypeError):
            found["biases"] = SamplingConfig(logit_bias=found["biases"]).logit_bias
    return found


def _without_infinity(pair: Any) -> Any:
    return [None if one == -math.inf else one for one in pair] if isinstance(pair, list) else pair


def _check_fields(data: Any, cls: type, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InputError(f"{what} is a mapping, not {type(data).__name__}", field="preset")
    names = [one.name for one in fields(cls)]
    for name in data:
        if name not in names:
            raise InputError(f"{what} has no field {name!r}", hint=f"fields: {', '.join(names)}", field=str(name))
    return dict(data)


def _schema_text(schema: Any, what: str = "json_schema") -> Any:
    """A mapping as JSON text, and a text unchanged. Raises SchemaError for invalid JSON."""
    try:
        if isinstance(schema, Mapping):
            return json.dumps(_plain(schema), ensure_ascii=False, allow_nan=False)
        if schema and isinstance(schema, str):
            json.loads(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"the preset's {what} is not JSON: {error}") from error
    return schema


def _plain(value: Any) -> Any:
    """Mappings, tuples and numbers as plain JSON types."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Real) and not isinstance(value, int | float):  # such as NumPy's
        return int(value) if isinstance(value, Integral) else float(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
