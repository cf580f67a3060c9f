"""Constraints as a user asks for them: `Spec`, and the specs of JSON, expressions, choices and grammars.

Specs are frozen values that round-trip to JSON, with `kind` as their tag; `kinds.py` lists all kinds. They know
nothing of vocabularies or engines.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, Self, get_origin

from espalier.constraints.kind_table import KINDS
from espalier.errors import SchemaError, SpecError
from espalier.grammar.json_mode import JsonKind, JsonWhitespace, check_json_options
from espalier.schema.order import DEFAULT, Order, read_order
from espalier.schema.python.schemas import schema_of

CHECKED_AT_ONCE = 1000
"""Characters of a pattern or grammar that is parsed when its spec is made; a longer one takes a while, and is parsed
when it is compiled, within the time limit of a request."""
READ_AT_ONCE = 10_000
"""Characters of a schema, its documents included, that is read when its spec is made, in milliseconds; a longer one is
read when it is compiled."""


ATOMS = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of values that hold no constraints."""


class Spec(ABC):
    """A constraint as a user asks for it. Subclasses are frozen dataclasses with a `kind`."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """`{"kind": ..., field: value, ...}`, all JSON."""
        values = {name: getattr(self, name) for name in self.json_fields()}
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        """The names of the JSON fields, which are the arguments of the class."""
        return tuple(f.name for f in fields(cls))  # type: ignore[arg-type]  # a dataclass

    def key(self) -> str:
        """A cache key: equal specs have equal keys. The order of keys in a schema counts, because it is enforced."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Spec:
        """The inverse of `to_json`. Raises SpecError naming the field."""
        if not isinstance(data, Mapping) or "kind" not in data:
            raise SpecError("a constraint needs a `kind`", hint=f"one of: {', '.join(KINDS)}", field="kind")
        kind = data["kind"]
        cls: type[Spec] | None = KINDS.spec_of(kind) if isinstance(kind, str) else None
        if cls is None:
            raise SpecError(f"unknown constraint {kind!r}", hint=f"one of: {', '.join(KINDS)}", field="kind")
        known = cls.json_fields()
        for name in data:
            if name != "kind" and name not in known:
                raise SpecError(
                    f"{cls.__name__} has no field {name!r}", hint=f"fields: {', '.join(sorted(known))}", field=name
                )
        try:
            with KINDS.blamed(str(kind)):
                return cls.from_fields({k: v for k, v in data.items() if k != "kind"})
        except TypeError as error:
            raise SpecError(f"{cls.__name__}{_missing(error)}") from error

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> Spec:
        """A spec from values of `json_fields`. Raises TypeError for a required field that is missing."""
        return cls(**values)

    def parts(self) -> tuple[Spec, ...]:
        """The constraints that this one is made of, in the order of its fields: members, regions, what follows."""
        parts: list[Spec] = []
        todo: list[Any] = _inner_values(self)
        while todo:
            value = todo.pop()
            if isinstance(value, Spec):
                parts.append(value)
            else:
                todo += _inner_values(value)
        return tuple(parts)

    def beginnings(self) -> tuple[Spec, ...]:
        """The constraints that read the first character of a text of this one. An opening such as `<think>` is none: it
        skips the whitespace before it, which what stands around this constraint may skip as well."""
        return (self,)

    def walk(self) -> Iterator[Spec]:
        """This constraint, and all that it is made of, however deep; each before its own parts."""
        todo: list[Spec] = [self]
        while todo:
            spec = todo.pop()
            yield spec
            todo += reversed(spec.parts())

    @property
    def rewinds(self) -> bool:
        """Whether this constraint itself (not a part of it) lets tokens be sampled that it then takes back."""
        return False

    def word_languages(self) -> tuple[str, ...]:
        """The languages whose word files this constraint reads, those of its parts included."""
        return tuple(lang for part in self.parts() for lang in part.word_languages())

    def ordered(self, order: Order) -> Self:
        """The constraint with this order of properties in every schema that states none, tools' arguments included."""
        changed: Self = _fill_field(self, "order", order)
        return changed

    def closing(self, closed: bool) -> Self:  # the value of a field
        """The constraint with this `closed` in every schema that states none."""
        changed: Self = _fill_field(self, "closed", closed)
        return changed

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that name this constraint in logs; equal constraints have equal ones."""
        return _digest(self.key())

    def begun(self, before: str) -> str:
        """The beginning of the constrained text that the prompt holds already. The text to judge and parse is this
        beginning and the output. before: what the prompt holds of the model's turn."""
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _inner_values(value: Any) -> list[Any]:
    """The values in a dataclass, mapping or sequence, last first, without strings."""
    if is_dataclass(value) and not isinstance(value, type):
        held: list[Any] = [getattr(value, entry.name) for entry in fields(value)]
    elif isinstance(value, Mapping):
        held = [*value.values()]
    else:
        held = [*value] if isinstance(value, Sequence) and not isinstance(value, str | bytes) else []
    return [part for part in reversed(held) if type(part) not in ATOMS]  # a list of words may be long


def _fill_field(value: Any, field_name: str, filling: Any) -> Any:
    """A value in which every constraint that has this field, and None in it, has the filling there; the value itself
    where nothing changes."""
    if isinstance(value, tuple):
        parts = tuple(_fill_field(part, field_name, filling) for part in value)
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for entry in fields(value):
        old = getattr(value, entry.name)
        takes = entry.name == field_name and isinstance(value, Spec) and old is None
        if (new := filling if takes else _fill_field(old, field_name, filling)) is not old:
            changed[entry.name] = new
    if not changed:
        return value
    filled = copy(value)
    for name, new in changed.items():
        object.__setattr__(filled, name, new)
    return filled


def _missing(error: TypeError) -> str:
    """Python's message for missing arguments, reworded for users."""
    if "missing" not in str(error):
        return f": {error}"
    names = re.findall(r"'(\w+)'", str(error))
    return " needs " + " and ".join(f"`{name}`" for name in names)


def _json_text(value: Any) -> str:
    """A JSON value as text. Raises SchemaError for NaN, infinities and values that are not JSON."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error


def check_text(value: Any, what: str, name: str) -> None:
    """Raises SpecError, naming the field, for a value that is no string or holds a lone surrogate."""
    if not isinstance(value, str):
        raise SpecError(f"{what} is a string, not {type(value).__name__}", field=name)
    place = next((i for i, c in enumerate(value) if 0xD800 <= ord(c) < 0xE000), None)
    if place is not None:
        raise SpecError(f"{what} is not valid Unicode at character {place}", hint="write it in UTF-8", field=name)


@dataclass(frozen=True, slots=True, init=False)
class JsonSchema(Spec):
    """JSON valid under a JSON Schema: drafts 2020-12 (where `$schema` says nothing), 2019-09, 7, 6, 4.

    `schema` is a dict, a boolean, or a Python type or function; then `r.parsed` is an instance of that type (see
    `espalier.schema_of`). text: the schema as JSON. `.schema` returns a new copy each time, so that callers cannot
    change what was compiled.

    whitespace: `natural`, `compact`, `flexible`, or `indented`, exactly as `json.dumps(indent=indent)` writes.
    separators: two regular expressions instead, for the text between items and the text after keys.
    order: the order of properties: `schema` (as in its text), `any`, `required-first`, or a list of names that come
    first. None leaves it to the request and the environment, and is `schema` where they say nothing (`used_order`).
    format: `annotate`, or `assert` to enforce the known formats, which is the default for a Python type.
    allow: `checked` accepts keywords that can only be checked when the text is complete.
    documents: other schemas that `$ref` may name, by address; nothing is ever fetched.
    closed: where `properties` are declared and nothing is said of other names, there are no other names, at any depth
    (`schema/normal/closing.py`); the verdict follows. None leaves it to the request, and is false where it says
    nothing.

    Raises SchemaError, with a pointer to a keyword whose value has the wrong shape (`"type": "intger"`) or a reference
    that leads to nothing; UnsupportedError for a draft that is not known; SpecError naming the field. What
    cannot be enforced is told when it is compiled.
    """

    kind: ClassVar[str] = "json_schema"
    text: str
    whitespace: JsonWhitespace
    indent: int
    separators: tuple[str, str] | None
    order: Order | None
    format: str
    allow: str | None
    documents: tuple[tuple[str, str], ...]
    closed: bool | None
    python: Any = field(compare=False, repr=False)

    def __init__(
        self,
        schema: Any,
        *,
        whitespace: JsonWhitespace = "natural",
        indent: int = 2,
        separators: Sequence[str] | None = None,
        order: str | Sequence[str] | None = None,
        format: Literal["annotate", "assert"] | None = None,  # noqa: A002  # as the keyword is called
        allow: Literal["checked"] | None = None,
        documents: Mapping[str, Any] | None = None,
        closed: bool | None = None,
    ) -> None:
        check_json_options(("object",), whitespace, indent, None)
        python = None
        if isinstance(schema, type) or callable(schema) or get_origin(schema) is not None:
            python, schema = schema, schema_of(schema)
        if not isinstance(schema, Mapping | bool):
            raise SchemaError(
                f"a schema is an object or a boolean, not {type(schema).__name__}",
                hint="load a file with json.load first",
            )
        if separators is not None and (
            isinstance(separators, str) or len(separators) != 2 or any(not isinstance(s, str) for s in separators)
        ):
            raise SpecError("separators are two regular expressions: for `,` and for `:`", field="separators")
        if format is None:  # building a datetime from a string that is no date would fail
            format = "annotate" if python is None else "assert"  # noqa: A001
        if format not in ("annotate", "assert"):
            raise SpecError(f"unknown format {format!r}", hint="annotate or assert", field="format")
        if allow not in (None, "checked"):
            raise SpecError(f"allow: {allow!r}", hint='only "checked" can be allowed', field="allow")
        if documents is not None and not isinstance(documents, Mapping):
            raise SpecError("documents are schemas by their addresses", field="documents")
        if closed is not None and not isinstance(closed, bool):
            raise SpecError(f"closed: {closed!r} is neither true nor false", field="closed")
        values: dict[str, Any] = {
            "text": _json_text(dict(schema) if isinstance(schema, Mapping) else schema),
            "whitespace": whitespace,
            "indent": indent,
            "separators": None if separators is None else tuple(separators),
            "order": None if order is None else read_order(order),
            "format": format,
            "allow": allow,
            "documents": tuple(sorted((str(uri), _json_text(doc)) for uri, doc in (documents or {}).items())),
            "closed": closed,
            "python": python,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if sum(map(len, (self.text, *(text for _, text in self.documents)))) <= READ_AT_ONCE:
            from espalier.schema.read.check import check_document  # noqa: PLC0415  # slow to import

            check_document(self.schema, {uri: json.loads(text) for uri, text in self.documents} or None)

    @property
    def schema(self) -> Any:
        return json.loads(self.text)

    def explicit(self) -> JsonSchema:
        """The schema as other programs and prompts get it: where it is closed, its objects say so themselves."""
        if not self.closed:
            return self
        from espalier.schema.normal.closed_document import closed_document  # noqa: PLC0415  # slow to import

        documents = {uri: json.loads(text) for uri, text in self.documents} or None
        names = ("whitespace", "indent", "separators", "order", "format", "allow")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return JsonSchema(closed_document(self.schema, documents), documents=documents, **values)

    @property
    def fingerprint(self) -> str:
        """Of the schema alone, whatever the edge adds to it: equal schemas have equal ones."""
        return _digest(self.text)

    @property
    def used_order(self) -> Order:
        """The order of properties, `schema` where none was asked for."""
        return DEFAULT if self.order is None else self.order

    def to_json(self) -> dict[str, Any]:
        """As `Spec.to_json`; fields other than schema and whitespace only where they differ from their defaults."""
        values = {"kind": self.kind, "schema": self.schema, "whitespace": self.whitespace}
        usual = {"indent": 2, "separators": None, "order": None, "format": "annotate", "allow": None, "closed": None}
        for name, value in usual.items():
            mine = getattr(self, name)
            if mine != value:
                values[name] = list(mine) if isinstance(mine, tuple) else mine
        if self.documents:
            values["documents"] = {uri: json.loads(text) for uri, text in self.documents}
        return values

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        return ("schema", "whitespace", "indent", "separators", "order", "format", "allow", "documents", "closed")


@dataclass(frozen=True, slots=True)
class JsonObject(Spec):
    """JSON mode: any JSON object, or any document of the `kinds` asked for.

    whitespace: as in JsonSchema. max_depth: how deep objects and arrays may nest; None is no limit (12 for `indented`).
    kinds: some of `object`, `array`, `string`, `number`, `boolean`, `null`.
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
    """A text that a regular expression matches from its first character to its last. Raises RegexError with the offset
    of what is wrong, UnsupportedError for what no automaton can do, such as back references."""

    kind: ClassVar[str] = "regex"
    pattern: str

    def __post_init__(self) -> None:
        check_text(self.pattern, "a pattern", "pattern")
        if len(self.pattern) <= CHECKED_AT_ONCE:
            from espalier.grammar.regex.parse import parse_regex  # noqa: PLC0415  # the parser is slow to import

            parse_regex(self.pattern)


@dataclass(frozen=True, slots=True)
class Choice(Spec):
    """Exactly one of the given texts. options: a list is kept as a tuple."""

    kind: ClassVar[str] = "choice"
    options: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Sequence):
            raise SpecError("choices are a list of strings", field="options")
        if not self.options:
            raise SpecError("there is nothing to choose from", field="options")
        for i, option in enumerate(self.options):
            check_text(option, f"choice {i}", "options")
        object.__setattr__(self, "options", tuple(dict.fromkeys(self.options)))


@dataclass(frozen=True, slots=True)
class Gbnf(Spec):
    """A text in the language of a llama.cpp grammar. `root` names the start rule. `@NAME` is a built-in grammar, whose
    text takes the place of its name. Raises GrammarError with line and column, SpecError, UnknownName.

    token_limits: the most tokens of one text of a rule, by its name. A rule that had its tokens ends where it stands.
    """

    kind: ClassVar[str] = "gbnf"
    grammar: str
    root: str = field(default="root", kw_only=True)
    token_limits: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_text(self.grammar, "a grammar", "grammar")
        check_text(self.root, "the name of the root rule", "root")
        object.__setattr__(self, "token_limits", _read_token_limits(self.token_limits))
        if self.grammar.startswith("@"):
            from espalier.grammar.builtin import GRAMMARS  # noqa: PLC0415  # the parser is slow to import

            object.__setattr__(self, "grammar", str(GRAMMARS.load(self.grammar[1:].strip())))
        elif len(self.grammar) <= CHECKED_AT_ONCE:
            from espalier.grammar.parser import parse  # noqa: PLC0415  # the parser is slow to import

            parse(self.grammar, root=self.root)

    def to_json(self) -> dict[str, Any]:
        """As `Spec.to_json`; limits only where there are some."""
        limits = {"token_limits": dict(self.token_limits)} if self.token_limits else {}
        return {"kind": self.kind, "grammar": self.grammar, "root": self.root} | limits


def _read_token_limits(limits: Any) -> tuple[tuple[str, int], ...]:
    """The pairs of a mapping, or of pairs. Raises SpecError."""
    pairs = limits.items() if isinstance(limits, Mapping) else limits
    try:
        by_rule = dict(pairs)
    except (TypeError, ValueError) as error:
        raise SpecError("token_limits has a number for each rule", field="token_limits") from error
    for rule, limit in by_rule.items():
        check_text(rule, "the name of a rule", "token_limits")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise SpecError(f"the limit of {rule!r} is a number of tokens, not {limit!r}", field="token_limits")
    return tuple(by_rule.items())
