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
        values = {name: getattr(self, name) for name in self.json_fields()}
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        """The names of the fields in JSON, which are the arguments of the class."""
        return tuple(f.name for f in fields(cls))  # type: ignore[arg-type]  # a dataclass

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
        known = cls.json_fields()
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


def _json_text(value: Any) -> str:
    """A JSON value as text; NaN and infinities, and what JSON cannot say, raise SchemaError."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def _check_text(value: Any, what: str, name: str) -> None:
    if not isinstance(value, str):
        raise SpecError(f"{what} is a string, not {type(value).__name__}", field=name)
    place = next((i for i, c in enumerate(value) if 0xD800 <= ord(c) < 0xE000), None)
    if place is not None:
        raise SpecError(f"{what} is not valid Unicode at character {place}", hint="write it in UTF-8", field=name)


@dataclass(frozen=True, slots=True, init=False)
class JsonSchema(Spec):
    """JSON valid under a JSON Schema (draft 2020-12). `schema` is a dict or a boolean.

    text: the schema as JSON. Each `.schema` is a copy of its own, so that nobody can change what was compiled.
    """

    kind: ClassVar[str] = "json_schema"
    text: str
    whitespace: Whitespace

    def __init__(self, schema: Any, *, whitespace: Whitespace = "natural") -> None:
        _check_whitespace(whitespace)
        if not isinstance(schema, Mapping | bool):
            raise SchemaError(
                f"a schema is an object or a boolean, not {type(schema).__name__}",
                hint="load a file with json.load first",
            )
        plain = dict(schema) if isinstance(schema, Mapping) else schema
        object.__setattr__(self, "text", _json_text(plain))
        object.__setattr__(self, "whitespace", whitespace)

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        return ("schema", "whitespace")


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
        if not isinstance(kinds, str | Sequence):
            raise SpecError("kinds are a list of names", field="kinds")
        object.__setattr__(self, "kinds", (kinds,) if isinstance(kinds, str) else tuple(kinds))
        check_json_options(self.kinds, self.whitespace, self.indent, self.max_depth)


@dataclass(frozen=True, slots=True)
class Regex(Spec):
    """A text that a regular expression matches from its first character to its last."""

    kind: ClassVar[str] = "regex"
    pattern: str

    def __post_init__(self) -> None:
        _check_text(self.pattern, "a pattern", "pattern")


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
            _check_text(option, f"choice {i}", "options")
        object.__setattr__(self, "options", tuple(dict.fromkeys(self.options)))


@dataclass(frozen=True, slots=True)
class Gbnf(Spec):
    """A text in the language of a llama.cpp grammar. `root` names the start rule."""

    kind: ClassVar[str] = "gbnf"
    grammar: str
    root: str = field(default="root", kw_only=True)

    def __post_init__(self) -> None:
        _check_text(self.grammar, "a grammar", "grammar")
        _check_text(self.root, "the name of the root rule", "root")


KINDS: dict[str, type[Spec]] = {cls.kind: cls for cls in (JsonSchema, JsonObject, Regex, Choice, Gbnf)}
