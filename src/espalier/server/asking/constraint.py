"""Reads the constraints of a body into one Spec. It compiles nothing.

All that a body gives hold together: OpenAI's `response_format`, vLLM's `structured_outputs` and `guided_…`,
llama-server's `grammar` and `json_schema`, and our `espalier.constraint`. The safety filter,
`espalier.safety` or `safety`, is a preset's name or the fields of `Safety`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.joining.named import READERS, read_grammar
from espalier.constraints.joining.rule import together
from espalier.constraints.json_schema.typos import refuse_typos
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import JsonObject, JsonSchema, Regex, Spec
from espalier.schema.order import Order
from espalier.schema.read.walk import has_closed_objects
from espalier.server.asking.naming import field_names
from espalier.server.asking.structural_tags import Readers, structural_tag
from espalier.server.bodies.openai import ResponseFormat, SharedBody, StructuredOutputs
from espalier.server.http.errors import BadRequest, UnsupportedParameter

Formats: TypeAlias = Literal["assert", "annotate"]
OLD = "{old} is an old field: write structured_outputs.{new}"
GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
OWN = "espalier.constraint"
FIELDS = ("schema", "regex", "pattern", "grammar", "options", "root", "constraint", "kind")
"""Fields that errors of constraints name; all of them are the one field of the body."""
SAFETY = "espalier.safety"
SAFETY_FIELDS = ("preset", "categories", "without", "include", "exclude", "patterns", "lists", "mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyConstraint:
    """names: from the field that an error names to the field of the body. warnings: about old fields. default_order:
    the order of properties where neither the body nor a preset nor the environment states one; None is that of the
    schema."""

    spec: Spec | None = None
    default_order: Order | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_constraint(body: SharedBody, *, max_bytes: int, formats: Formats = "assert") -> BodyConstraint:
    """The constraint of a body, if it has one; several hold together. formats: whether `format` is enforced in its
    schemas, unless it says so itself. Raises BadRequest for one larger than max_bytes, SpecError and its kin; each
    names the field of the body."""
    specs: list[tuple[str, Spec]] = []
    warnings: list[str] = []
    espalier = body.espalier
    stated = formats if espalier is None or espalier.formats is None else espalier.formats
    for path, make in _sources(body, stated, warnings):
        names = dict.fromkeys(("", *FIELDS), path)
        try:
            with field_names(names, otherwise=f"{OWN}.{{field}}" if path == OWN else None):
                spec = make()
            if spec is None:  # it allows any text
                continue
        except RecursionError:
            raise BadRequest("the constraint is nested too deeply", field=path) from None
        size = len(spec.key())
        if size > max_bytes:
            raise BadRequest(f"the constraint has {size} characters; the limit is {max_bytes}", field=path)
        specs.append((path, spec))
        if path in GUIDED:
            warnings.append(OLD.format(old=path, new=GUIDED[path]))
    if not specs:
        return BodyConstraint()
    path = specs[-1][0]
    with field_names({"constraint": path}):
        whole = together(*(spec for _, spec in specs))
    names = dict.fromkeys(FIELDS, path)
    if len(specs) > 1:
        names["members"] = path
    if path == OWN:  # fields that only some kinds of constraints have
        names |= {name: f"{path}.{name}" for name in ("lang", "top")}
    order: Order | None = "any" if _leaves_order_open(body.response_format) else None
    return BodyConstraint(spec=whole, default_order=order, names=names, warnings=tuple(warnings))


def _leaves_order_open(given: ResponseFormat | None) -> bool:
    """Whether a format has a schema of closed objects without `strict`: OpenAI's models keep the order of a strict one
    alone. In open objects a model could put off a required property without end by writing others before it."""
    if given is None or (given.json_schema is not None and given.json_schema.strict):
        return False
    schema = _schema_in(given)
    return isinstance(schema, dict) and has_closed_objects(schema)


def _sources(
    body: SharedBody, formats: Formats, warnings: list[str]
) -> Iterator[tuple[str, Callable[[], Spec | None]]]:
    """Each constraint of the body: its field, and a function that makes its Spec, which may add to the warnings."""
    ours = body.espalier
    schemas = _Schemas(None if ours is None else ours.allow, formats, warnings)
    given = body.response_format
    if given is not None and (given.type != "text" or _list_constraint_fields(given)):
        yield _path_in("response_format", given), lambda: _response_format(given, schemas, "response_format")
    outputs = body.structured_outputs
    if outputs is not None:
        yield from _read_structured_outputs(outputs, schemas)
    for old, new in GUIDED.items():
        value = getattr(body, old)
        if value is not None:
            yield old, _maker(new, value, schemas, "natural")
    grammar = body.grammar
    if isinstance(grammar, ResponseFormat):
        yield _path_in("grammar", grammar), lambda: _response_format(grammar, schemas, "grammar")
    elif grammar:  # llama-server ignores an empty one
        yield "grammar", _maker("grammar", grammar, schemas, "natural")
    for name, kind in (("choice", "choice"), ("regex", "regex"), ("ebnf", "grammar")):  # as in Python; SGLang's
        value = getattr(body, name)
        if value:
            yield name, _maker(kind, value, schemas, "natural")
    if body.structural_tag is not None:
        yield "structural_tag", lambda: schemas.tag(body.structural_tag, "structural_tag")
    if body.json_schema is not None:
        yield "json_schema", _maker("json", body.json_schema, schemas, "natural")
    if ours is not None and ours.constraint is not None:
        yield OWN, _own(ours.constraint, schemas)


@dataclass(frozen=True, slots=True)
class _Schemas:
    """How the schemas and grammars of a body are read. allow, formats, closed: of JsonSchema. warnings: what changes
    no text and is not used."""

    allow: Any
    formats: Formats
    warnings: list[str]
    closed: bool | None = None

    def read(self, schema: Any, *, whitespace: Any = "natural", allow: Any = None) -> JsonSchema:
        return schema_spec(
            schema, whitespace=whitespace, allow=allow or self.allow, format=self.formats, closed=self.closed
        )

    def tag(self, given: Any, path: str) -> Spec | None:
        return structural_tag(given, path, Readers(self.read, self.grammar))

    def grammar(self, text: str) -> Spec:
        return read_grammar(text, read_schema=self.read, tell=self.warnings.append)


def _schema_in(given: ResponseFormat) -> Any:
    """The schema of a format: OpenAI's, llama-server's, or TGI's value, which may hold it under `schema` too."""
    if given.json_schema is not None:
        return given.json_schema.schema_
    if given.value is None:
        return given.schema_
    named = isinstance(given.value, dict) and given.type == "json_schema" and "schema" in given.value
    return given.value["schema"] if named else given.value


def _path_in(name: str, given: ResponseFormat) -> str:
    """Where the schema of a format stands in the body. name: of the format's field."""
    inside = ".json_schema.schema" if given.json_schema is not None else ".value" if given.value is not None else ""
    return name + inside


def _response_format(given: ResponseFormat, schemas: _Schemas, name: str) -> Spec | None:
    """The constraint of a format; None for any text. name: the field of the body."""
    allowed = {"structural_tag": TAG_FIELDS, "regex": ("value",), "text": ()}.get(given.type, SCHEMA_FIELDS)
    stated = _list_constraint_fields(given)
    for field_name in stated:
        if field_name not in allowed or (field_name == "value" and len(stated) > 1):
            raise BadRequest(
                f"{name}.{field_name} does not go with the type {given.type}", field=f"{name}.{field_name}"
            )
    if given.type == "text":
        return None
    path = _path_in(name, given)
    if given.type == "structural_tag":
        return schemas.tag(given.model_dump(include=set(TAG_FIELDS), exclude_none=True), path)
    schema = _schema_in(given)
    if given.type == "regex":
        if not isinstance(schema, str):
            raise BadRequest(f"{name}: the value is a regular expression", field=f"{name}.value")
        return Regex(schema)
    if schema is None and given.type == "json_object":
        return JsonObject()
    if schema is None:
        raise BadRequest(
            "the format has no schema",
            hint='"json_schema": {"name": ..., "schema": {...}}',
            field=f"{name}.json_schema" if given.type == "json_schema" else f"{name}.value",
        )
    named = given.json_schema
    if given.type == "json_object":
        return schemas.read(schema)
    if named is not None and named.strict:
        refuse_typos(schema, "the format is strict")
    # As with tools: keywords that cannot be enforced are checked.
    return schemas.read(schema, allow="checked" if named is not None and named.strict is False else None)


TAG_FIELDS = ("structures", "triggers", "format")
SCHEMA_FIELDS = ("json_schema", "schema", "value")


def _list_constraint_fields(given: ResponseFormat) -> list[str]:
    """The fields of a format, beside its type, that say what the text is."""
    values = {
        **{name: getattr(given, name) for name in TAG_FIELDS},
        "json_schema": given.json_schema,
        "schema": given.schema_,
        "value": given.value,
    }
    return [name for name, value in values.items() if value is not None]


def _read_structured_outputs(
    given: StructuredOutputs, schemas: _Schemas
) -> Iterator[tuple[str, Callable[[], Spec | None]]]:
    where = "structured_outputs"
    if given.whitespace_pattern:
        raise UnsupportedParameter(
            f"{where}.whitespace_pattern is not supported here",
            hint="use `espalier.constraint`",
            field=f"{where}.whitespace_pattern",
        )
    if given.disable_additional_properties:  # as vLLM means it: where a schema says nothing of them
        schemas = replace(schemas, closed=True)
    values = {kind: getattr(given, "json_" if kind == "json" else kind) for kind in KINDS}
    asked = {kind: value for kind, value in values.items() if value is not None and (kind, value) != OFF}
    if len(asked) != 1:
        raise BadRequest(
            f"{where} has {' and '.join(asked) or 'no constraint'}",
            hint=f"exactly one of: {', '.join(KINDS)}",
            field=where,
        )
    kind, value = next(iter(asked.items()))
    if kind == "structural_tag":
        yield f"{where}.{kind}", lambda: schemas.tag(value, f"{where}.{kind}")
        return
    style = "compact" if given.disable_any_whitespace else "natural"
    yield f"{where}.{kind}", _maker(kind, value, schemas, style)


OFF = ("json_object", False)


def _maker(kind: str, value: Any, schemas: _Schemas, style: Any) -> Callable[[], Spec]:
    own: dict[str, Callable[[], Spec]] = {
        "json": lambda: schemas.read(value, whitespace=style),
        "json_object": lambda: JsonObject(whitespace=style),
        "grammar": lambda: schemas.grammar(value),
    }
    return own.get(kind) or partial(READERS[kind], value)


def _own(data: Mapping[str, Any], schemas: _Schemas) -> Callable[[], Spec]:
    if data.get("kind") != JsonSchema.kind:
        return lambda: Spec.from_json(data)
    allow = {} if schemas.allow is None else {"allow": schemas.allow}
    return lambda: Spec.from_json({**allow, "format": schemas.formats, **data})


def join_safety(constraint: Spec | None, asked: Any, *, max_bytes: int, own: str = SAFETY) -> Spec | None:
    """The constraint joined with the filter. own: the field of the body that has it. Raises BadRequest for
    a filter larger than max_bytes, SpecError and its kin; each names the field of the body."""
    if asked is None:
        return constraint
    with field_names({name: f"{own}.{name}" for name in SAFETY_FIELDS}, otherwise=own):
        safety = safety_of(asked)
        size = len(safety.key())
        if size > max_bytes:
            raise BadRequest(f"the filter has {size} characters; the limit is {max_bytes}", field=own)
        return together(constraint, safety)
