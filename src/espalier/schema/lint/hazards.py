"""Warns about valid schemas: runaway texts, overlapping options, patterns and keywords that engines read differently.

    hazards({"type": "string"})      [Hazard(pointer="", code="unbounded-string", message=…)]

Hazards are warnings, not errors: the schema keeps its meaning in JSON Schema. It compiles nothing and knows no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from espalier.errors import SchemaError
from espalier.json_record import JsonRecord
from espalier.schema.lint.engine_limits import ENGINES, WHEN
from espalier.schema.lint.patterns import pattern_hazards
from espalier.schema.pointers import dereference
from espalier.schema.read.values import check_values
from espalier.schema.read.walk import Node, subschemas

MANY_OPTIONS = 500
DEPTH = 10  # levels of nested objects that OpenAI accepts
PROPERTIES = 5000  # properties in all that OpenAI accepts
ALL = tuple(ENGINES)
SILENT = frozenset(
    {
        *("$ref", "$defs", "definitions", "$schema", "$id", "$anchor", "$comment"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    }
)
"""Keywords that assert nothing, also beside a `$ref`."""
JSON_TYPES = frozenset({"object", "array", "string", "number", "boolean", "null"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard(JsonRecord):
    """pointer: a JSON pointer into the schema, "" for all of it. code: stable, for programs. engines: those that it
    concerns, by their names in `ENGINES`."""

    pointer: str
    code: str
    message: str
    engines: tuple[str, ...] = ALL

    def __str__(self) -> str:
        concerned = "" if self.engines == ALL else f" [{', '.join(self.engines)}]"
        return f"{self.pointer or '/'}: {self.message} ({self.code}){concerned}"


Finding: TypeAlias = "Callable[[str, Mapping[str, Any], Node], Iterator[Hazard]]"


def hazards(schema: Node) -> list[Hazard]:
    """All hazards, in the order of the schema. Those that occur in many places (`unbounded-*`, `extra-names`,
    `optional-property`) are reported once, at the first place. References are followed within the document.

    Raises SchemaError for a schema that is not JSON, contains itself, or is nested too deeply.
    """
    schema = _plain(schema)
    hazards_met = [
        hazard
        for pointer, node in subschemas(schema)
        for hazard in (
            (h for look in FINDINGS for h in look(pointer, node, schema))
            if isinstance(node, Mapping)
            else _boolean(pointer)
        )
    ]
    return _gather_hazards([*hazards_met, *_root(schema)])


def _plain(schema: Any) -> Any:
    try:
        plain = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error
    check_values(plain, "")
    return plain


def _gather_hazards(hazards_met: list[Hazard]) -> list[Hazard]:
    """The hazards, with one for each code in ONCE."""
    counts: dict[str, int] = {}
    for hazard in hazards_met:
        counts[hazard.code] = counts.get(hazard.code, 0) + 1
    gathered, seen = [], set()
    for hazard in hazards_met:
        if hazard.code not in ONCE:
            gathered.append(hazard)
        elif hazard.code not in seen:
            seen.add(hazard.code)
            more = counts[hazard.code] - 1
            text = f"{hazard.message}; {more} more like it" if more else hazard.message
            gathered.append(Hazard(pointer=hazard.pointer, code=hazard.code, message=text, engines=hazard.engines))
    return gathered


def types(node: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema allows, by its own `type`, `const` and `enum`; `integer` counts as `number`."""
    stated = node.get("type")
    if isinstance(stated, str | list):
        names = [stated] if isinstance(stated, str) else stated
        return frozenset("number" if name == "integer" else name for name in names)
    values = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(values, list):
        return frozenset(type_of(value) for value in values)
    return JSON_TYPES


def type_of(value: Any) -> str:
    """The JSON type of a value."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _says(node: Mapping[str, Any], *keys: str) -> bool:
    return any(key in node for key in keys)


def _options(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    values = node.get("enum")
    if isinstance(values, list) and len(values) > MANY_OPTIONS:
        yield Hazard(
            pointer=f"{pointer}/enum",
            code="many-options",
            message=f"{len(values)} options: slow to compile on some engines, and too many for a model to choose from",
        )


def _find_unbounded(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    stated = node.get("type")
    kinds = {stated} if isinstance(stated, str) else set(stated) if isinstance(stated, list) else set()
    if _says(node, "enum", "const"):
        return
    if "string" in kinds and not _says(node, "maxLength", "pattern", "format"):
        yield Hazard(
            pointer=pointer,
            code="unbounded-string",
            message="a string without maxLength can run to the token limit, which cuts off the document",
        )
    if "array" in kinds and not _says(node, "maxItems") and not _closed_tuple(node):
        yield Hazard(
            pointer=pointer,
            code="unbounded-array",
            message="an array without maxItems can run to the token limit, which cuts off the document",
        )
    lowest, highest = _says(node, "minimum", "exclusiveMinimum"), _says(node, "maximum", "exclusiveMaximum")
    if kinds & {"number", "integer"} and not (lowest and highest):
        yield Hazard(
            pointer=pointer,
            code="unbounded-number",
            message="a number without minimum and maximum can have any number of digits",
        )


def _closed_tuple(node: Mapping[str, Any]) -> bool:
    """Whether an array has no items besides `prefixItems`."""
    return "prefixItems" in node and node.get("items") is False


def _one_of(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    options = node.get("oneOf")
    if not isinstance(options, list):
        return
    for (i, a), (j, b) in combinations(enumerate(options), 2):
        if may_overlap(dereference(a, whole), dereference(b, whole), whole):
            yield Hazard(
                pointer=f"{pointer}/oneOf",
                code="overlapping-one-of",
                message=f"a value may fit both option {i} and option {j}, and then it is not valid; "
                "anyOf is simpler, or a property with a const of its own in each",
            )
            return


def may_overlap(a: Node, b: Node, whole: Node) -> bool:
    """Whether two schemas may have a value in common, by types, constants, and properties with disjoint values. False
    only where they surely have none."""
    if a is False or b is False:
        return False
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return True
    shared = types(a) & types(b)
    if not shared or not _common(_values(a), _values(b)):
        return False
    if shared != {"object"}:
        return True
    return not (
        _have_disjoint_property(a, b, whole) or _requires_forbidden_name(a, b) or _requires_forbidden_name(b, a)
    )


def _values(node: Mapping[str, Any]) -> list[Any] | None:
    values = [node["const"]] if "const" in node else node.get("enum")
    return values if isinstance(values, list) else None


def _common(a: list[Any] | None, b: list[Any] | None) -> bool:
    """Whether two lists have a value in common; None stands for every value."""
    if a is None or b is None:
        return True
    return any(x == y and isinstance(x, bool) == isinstance(y, bool) for x in a for y in b)


def _have_disjoint_property(a: Mapping[str, Any], b: Mapping[str, Any], whole: Node) -> bool:
    """Whether both require a property whose values cannot be the same."""
    both = _required_names(a) & _required_names(b) & _properties(a).keys() & _properties(b).keys()
    pairs = ((dereference(_properties(a)[n], whole), dereference(_properties(b)[n], whole)) for n in both)
    return any(
        isinstance(x, Mapping)
        and isinstance(y, Mapping)
        and (not types(x) & types(y) or not _common(_values(x), _values(y)))
        for x, y in pairs
    )


def _requires_forbidden_name(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether `a` requires a property that `b` does not allow."""
    closed = b.get("additionalProperties") is False and "patternProperties" not in b
    return closed and bool(_required_names(a) - _properties(b).keys())


def _required_names(node: Mapping[str, Any]) -> frozenset[str]:
    names = node.get("required")
    return frozenset(names) if isinstance(names, list) else frozenset()


def _properties(node: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = node.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _patterns(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    places = {f"{pointer}/pattern": node.get("pattern")}
    if isinstance(node.get("patternProperties"), Mapping):
        places |= {f"{pointer}/patternProperties": text for text in node["patternProperties"]}
    for at, text in places.items():
        if isinstance(text, str):
            for code, message, engines in pattern_hazards(text):
                yield Hazard(pointer=at, code=code, message=f"{message}: {text[:60]}", engines=engines)
    if _says(node, "pattern", "format") and _says(node, "minLength", "maxLength"):
        yield Hazard(
            pointer=pointer,
            code="pattern-and-length",
            message="a length beside a pattern or format is dropped (llama-server) or refused (vLLM)",
            engines=("llama-server", "vllm"),
        )


def _keywords(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    for key in (key for key in node if node[key] is not False or key != "uniqueItems"):
        for code, verb in (("dropped-keyword", "ignored"), ("refused-keyword", "refused")):
            concerned = {n: e.drops if code == "dropped-keyword" else e.refuses for n, e in ENGINES.items()}
            names = tuple(name for name, table in concerned.items() if key in table and WHEN[table[key]](node))
            if names:
                yield Hazard(
                    pointer=f"{pointer}/{key}",
                    code=code,
                    message=f"`{key}` is {verb} by {', '.join(ENGINES[n].name for n in names)}",
                    engines=names,
                )
    name = node.get("format")
    if isinstance(name, str):
        names = tuple(n for n, e in ENGINES.items() if e.formats is not None and name not in e.formats)
        if names:
            yield Hazard(
                pointer=f"{pointer}/format",
                code="unknown-format",
                message=f"the format {name!r} is ignored or refused by {', '.join(ENGINES[n].name for n in names)}",
                engines=names,
            )
    if "$ref" in node and node.keys() - SILENT:
        yield Hazard(
            pointer=f"{pointer}/$ref",
            code="beside-reference",
            message="keywords beside a `$ref` are ignored",
            engines=("llama-server",),
        )
    if node.get("$ref") == "#":
        yield Hazard(
            pointer=f"{pointer}/$ref",
            code="refused-keyword",
            message="a reference to the whole schema is refused by llama-server; put the schema in $defs",
            engines=("llama-server",),
        )
    if "prefixItems" in node and isinstance(node.get("items"), Mapping):
        yield Hazard(
            pointer=f"{pointer}/prefixItems",
            code="dropped-keyword",
            message="`prefixItems` beside `items` is ignored by llama-server",
            engines=("llama-server",),
        )


def _boolean(pointer: str) -> Iterator[Hazard]:
    """`true` or `false` in place of a schema."""
    if not pointer.endswith(("/additionalProperties", "/unevaluatedProperties", "/unevaluatedItems")):
        yield Hazard(
            pointer=pointer,
            code="boolean-schema",
            message="`true` or `false` in place of a schema is refused by llama-server",
            engines=("llama-server",),
        )


def _objects(pointer: str, node: Mapping[str, Any], whole: Node) -> Iterator[Hazard]:
    if node.get("type") != "object" and "properties" not in node:
        return
    if not _says(node, "additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf"):
        yield Hazard(
            pointer=pointer,
            code="extra-names",
            message="additionalProperties is not stated: JSON Schema then allows any name, "
            "llama-server and vLLM allow none, and OpenAI wants it to be false",
        )
    undeclared = [n for n in node.get("required") or () if n not in _properties(node)]
    if undeclared and not _says(node, "patternProperties", "$ref", "allOf", "anyOf", "oneOf"):
        yield Hazard(
            pointer=f"{pointer}/required",
            code="undeclared-required",
            message=f"{undeclared[0]!r} is required and not declared: its value can be anything, it is written after "
            "the declared properties, and llama-server and vLLM do not enforce it",
        )
    optional = [n for n in _properties(node) if n not in _required_names(node)]
    if optional:
        yield Hazard(
            pointer=f"{pointer}/properties/{optional[0]}",
            code="optional-property",
            message="OpenAI's strict mode wants every property required; allow null instead",
            engines=("openai",),
        )


def _root(schema: Node) -> Iterator[Hazard]:
    """OpenAI's conditions on the whole schema."""
    if not isinstance(schema, Mapping):
        return
    top = dereference(schema, schema)
    if isinstance(top, Mapping) and (top.get("type") != "object" or "anyOf" in top):
        yield Hazard(pointer="", code="not-an-object", message="the schema is not of type object", engines=("openai",))
    nodes = list(subschemas(schema))
    count = sum(len(_properties(node)) for _, node in nodes if isinstance(node, Mapping))
    depth = max(pointer.count("/properties/") for pointer, _ in nodes)
    if count > PROPERTIES or depth > DEPTH:
        yield Hazard(
            pointer="",
            code="too-large",
            message=f"{count} properties on {depth} levels; OpenAI accepts {PROPERTIES} and {DEPTH}",
            engines=("openai",),
        )


FINDINGS: tuple[Finding, ...] = (_options, _find_unbounded, _one_of, _patterns, _keywords, _objects)

ONCE = frozenset({"unbounded-string", "unbounded-array", "unbounded-number", "extra-names", "optional-property"})
"""Codes that are reported once, as they would apply to half of a usual schema."""
