"""What a user asks for: frozen values that round-trip to JSON. They know nothing of vocabularies or engines.

`Spec` is a tagged union: `kind` is the tag. `compile.py` maps a kind to the code that compiles it.
"""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args

from espalier.errors import SchemaError, SpecError
from espalier.grammar.json_mode import JsonKind, JsonWhitespace, check_json_options

Whitespace = Literal["natural", "compact", "flexible"]
"""natural: at most one space after `,` and `:` (what models write). compact: none. flexible: bounded runs."""


class Spec(ABC):
    """A constraint as asked for. Subclasses are frozen dataclasses with a `kind`."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """`{"kind": ..., field: value, ...}`, all JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def key(self) -> str:
        """Equal specs have equal keys; the order of object keys in a schema counts, since it is enforced."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Spec:
        """The inverse of `to_json`. Raises SpecError naming the field."""
        if not isinstance(data, Mapping) or "kind" not in data:
            raise SpecError("a constraint needs a `kind`", hint=f"one of: {', '.join(KINDS)}", field="kind")
        cls = KINDS.get(str(data["kind"]))
        if cls is None:
            raise SpecError(f"unknown constraint {data['kind']!r}", hint=f"one of: {', '.join(KINDS)}", field="kind")
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]  # a dataclass
        for name in data:
            if name != "kind" and name not in known:
                raise SpecError(
                    f"{cls.__name__} has no field {name!r}", hint=f"fields: {', '.join(sorted(known))}", field=name
                )
        try:
            return cls(**{k: v for k, v in data.items() if k != "kind"})
        except TypeError as error:
            raise SpecError(f"{cls.__name__}: {error}") from error


def _check_whitespace(value: str) -> None:
    if value not in get_args(Whitespace):
        raise SpecError(
            f"unknown whitespace {value!r}", hint=f"one of: {', '.join(get_args(Whitespace))}", field="whitespace"
        )


def _frozen_json(value: Any) -> Any:
    """A private copy of a JSON value; NaN and infinities, and what JSON cannot say, raise SchemaError."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


@dataclass(frozen=True, slots=True)
class JsonSchema(Spec):
    """JSON valid under a JSON Schema (draft 2020-12). `schema` is a dict or a boolean."""

    kind: ClassVar[str] = "json_schema"
    schema: Any = field(hash=False)
    whitespace: Whitespace = field(default="natural", kw_only=True)

    def __post_init__(self) -> None:
        _check_whitespace(self.whitespace)
        if not isinstance(self.schema, Mapping | bool):
            raise SchemaError(
                f"a schema is an object or a boolean, not {type(self.schema).__name__}",
                hint="load a file with json.load first",
            )
        plain = dict(self.schema) if isinstance(self.schema, Mapping) else self.schema
        object.__setattr__(self, "schema", _frozen_json(plain))

    def __hash__(self) -> int:
        return hash(self.key())


@dataclass(frozen=True, slots=True)
class JsonObject(Spec):
    """JSON mode: any JSON object, or any document of the `kinds` asked for.

    whitespace: as in JsonSchema, or `indented`: exactly as `json.dumps(indent=indent)` writes. max_depth: how deep
    objects and arrays may nest; None is no limit (12 for `indented`). kinds: of `object`, `array`, `string`, `number`,
    `boolean`, `null`.
    """

    kind: ClassVar[str] = "json_object"
    whitespace: JsonWhitespace = field(default="natural", kw_only=True)
    max_depth: int | None = field(default=None, kw_only=True)
    kinds: tuple[JsonKind, ...] = field(default=("object",), kw_only=True)
    indent: int = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        kinds = self.kinds
        object.__setattr__(self, "kinds", (kinds,) if isinstance(kinds, str) else tuple(kinds))
        check_json_options(self.kinds, self.whitespace, self.indent, self.max_depth)


@dataclass(frozen=True, slots=True)
class Regex(Spec):
    """A text that a regular expression matches from its first character to its last."""

    kind: ClassVar[str] = "regex"
    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise SpecError(f"a pattern is a string, not {type(self.pattern).__name__}", field="pattern")


@dataclass(frozen=True, slots=True)
class Choice(Spec):
    """Exactly one of the given texts."""

    kind: ClassVar[str] = "choice"
    options: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Sequence):
            raise SpecError("choices are a list of strings", field="options")
        if not self.options:
            raise SpecError("there is nothing to choose from", field="options")
        for i, option in enumerate(self.options):
            if not isinstance(option, str):
                raise SpecError(f"choice {i} is not a string", field="options")
        object.__setattr__(self, "options", tuple(dict.fromkeys(self.options)))


@dataclass(frozen=True, slots=True)
class Gbnf(Spec):
    """A text in the language of a llama.cpp grammar. `root` names the start rule."""

    kind: ClassVar[str] = "gbnf"
    grammar: str
    root: str = field(default="root", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.grammar, str):
            raise SpecError(f"a grammar is a string, not {type(self.grammar).__name__}", field="grammar")


KINDS: dict[str, type[Spec]] = {cls.kind: cls for cls in (JsonSchema, JsonObject, Regex, Choice, Gbnf)}
