"""Negations as a grid: each keyword with values at the bounds, beside other keywords, in each place that negates, on
each road. Every small document in every order, and walks through the mask; `jsonschema` is the oracle. Nothing invalid
may pass, and a valid document that is refused must be one that the contract says is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, permutations, product
from random import Random
from typing import Any

import pytest

import espalier
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import JsonSchema
from espalier.errors import SchemaError, UnsupportedError
from espalier.schema.gbnf import printed, to_gbnf
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.objects import LAST
from espalier.schema.normal.expand import expand
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.fuzz.texts import walk
from tests.laws import check_matcher
from tests.oracle import validator

COMPILER = Compiler(Vocab.bytes())
INT, STR = {"type": "integer"}, {"type": "string"}
CLOSED = {"properties": {"q": {}}, "additionalProperties": False}
NAMES = ("q", "r", "qr")
LIKED = b'{}[]":,qr1'

OBJECTS: dict[str, dict[str, Any]] = {
    "additionalProperties false": {"additionalProperties": False},
    "additionalProperties false, a name": CLOSED,
    "additionalProperties false, a pattern": {"patternProperties": {"^q": {}}, "additionalProperties": False},
    "additionalProperties false, a pattern's values": {"patternProperties": {"^q": INT}, "additionalProperties": False},
    "additionalProperties false, required": {**CLOSED, "required": ["q"]},
    "additionalProperties false, minProperties": {**CLOSED, "minProperties": 1},
    "additionalProperties": {"additionalProperties": INT},
    "additionalProperties, a name": {"properties": {"q": {}}, "additionalProperties": INT},
    "additionalProperties, both": {
        "properties": {"r": STR},
        "patternProperties": {"^q": INT},
        "additionalProperties": STR,
    },
    "patternProperties": {"patternProperties": {"^q": INT}},
    "patternProperties, two": {"patternProperties": {"^q": INT, "r$": STR}},
    "patternProperties false": {"patternProperties": {"^q": False}},
    "propertyNames, length": {"propertyNames": {"maxLength": 1}},
    "propertyNames, pattern": {"propertyNames": {"pattern": "^q"}},
    "propertyNames, values": {"propertyNames": {"enum": ["q", "r"]}},
    "propertyNames, all but values": {"propertyNames": {"not": {"enum": ["q", "r"]}}},
    "propertyNames false": {"propertyNames": False},
    "propertyNames, additionalProperties": {"propertyNames": {"pattern": "^q"}, "additionalProperties": INT},
    "unevaluatedProperties false": {"properties": {"q": {}}, "unevaluatedProperties": False},
    "unevaluatedProperties": {"allOf": [{"properties": {"q": {}}}], "unevaluatedProperties": INT},
    "unevaluatedProperties, anyOf": {
        "anyOf": [{"properties": {"q": INT}}, {"properties": {"r": INT}}],
        "unevaluatedProperties": False,
    },
    "unevaluatedProperties, if": {
        "if": {"required": ["q"]},
        "then": {"properties": {"q": INT, "r": {}}},
        "unevaluatedProperties": STR,
    },
    "minProperties 0": {"minProperties": 0},
    "minProperties 1": {"minProperties": 1},
    "minProperties 2": {"minProperties": 2},
    "maxProperties 0": {"maxProperties": 0},
    "maxProperties 1": {"maxProperties": 1},
    "maxProperties 2": {"maxProperties": 2},
    "required": {"required": ["q"]},
    "required, two": {"required": ["q", "r"]},
    "required, none": {"required": []},
    "dependentRequired": {"dependentRequired": {"q": ["r"], "r": ["qr"]}},
    "dependentSchemas": {"dependentSchemas": {"q": CLOSED}},
    "properties": {"properties": {"q": INT, "r": STR}},
    "properties false": {"properties": {"q": False}},
    "not": {"not": {"additionalProperties": INT}},
    "not, twice": {"not": {"not": CLOSED}},
    "enum": {"enum": [{"q": 1}, {}]},
}
ARRAYS: dict[str, dict[str, Any]] = {
    "items": {"items": INT},
    "items false, prefixItems": {"prefixItems": [{}], "items": False},
    "items, prefixItems": {"prefixItems": [STR], "items": INT},
    "items, two prefixItems": {"prefixItems": [{}, STR], "items": STR},
    "unevaluatedItems false": {"prefixItems": [INT], "unevaluatedItems": False},
    "unevaluatedItems": {"allOf": [{"prefixItems": [{}]}], "unevaluatedItems": STR},
    "unevaluatedItems, contains": {"contains": INT, "unevaluatedItems": STR},
    "contains": {"contains": INT},
    "contains, minContains 2": {"contains": INT, "minContains": 2},
    "contains, maxContains 1": {"contains": INT, "maxContains": 1},
    "contains, maxContains 0": {"contains": INT, "minContains": 0, "maxContains": 0},
    "minItems 1": {"minItems": 1},
    "maxItems 0": {"maxItems": 0},
    "maxItems 2": {"maxItems": 2},
}
BESIDE_OBJECTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a name": {"properties": {"q": INT}},
    "names": {"properties": {"q": {}, "r": STR}, "required": ["r"]},
    "maxProperties 1": {"maxProperties": 1},
    "maxProperties 2": {"maxProperties": 2},
    "minProperties 2": {"minProperties": 2},
    "one": {"minProperties": 1, "maxProperties": 1, "properties": {"q": {}}},
    "values": {"additionalProperties": INT},
    "closed": {"properties": {"q": {}, "r": INT}, "additionalProperties": False},
    "patterns": {"patternProperties": {"^q": INT}},
    "closed patterns": {"patternProperties": {"^q": {}}, "additionalProperties": False},
    "short names": {"propertyNames": {"maxLength": 1}},
    "few names": {"propertyNames": {"enum": ["q", "qr"]}},
    "another negation": {"not": {"additionalProperties": STR}},
}
BESIDE_ARRAYS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "maxItems": {"maxItems": 2},
    "prefixItems": {"prefixItems": [STR]},
    "items": {"items": {"type": ["integer", "string"]}},
    "contains": {"contains": STR},
    "closed": {"prefixItems": [{}, INT], "items": False},
}
PLACES: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "not": lambda negated, kind: {"not": negated},
    "oneOf": lambda negated, kind: {"oneOf": [negated, {"type": kind}]},
    "anyOf": lambda negated, kind: {"anyOf": [{"not": negated}, {"const": {"q": 1, "r": 1}}, {"const": [1]}]},
    "then": lambda negated, kind: {"if": negated, "then": {"required": ["q"], "minItems": 2}},
    "else": lambda negated, kind: {"if": negated, "else": {"maxProperties": 1, "maxItems": 1}},
    "dependentSchemas": lambda negated, kind: {"dependentSchemas": {"r": {"not": negated}}},
    "$ref": lambda negated, kind: {"$defs": {"n": negated}, "not": {"$ref": "#/$defs/n"}},
    "$ref to itself": lambda negated, kind: {
        "$defs": {"n": {"anyOf": [negated, {"properties": {"k": {"$ref": "#/$defs/n"}}, "required": ["k"]}]}},
        "not": {"$ref": "#/$defs/n"},
    },
    "twice": lambda negated, kind: {"not": {"not": negated}},
    "deeper": lambda negated, kind: {
        "properties": {"q": {"anyOf": [INT, {"type": kind, "not": negated}]}},
        "prefixItems": [{"not": negated}],
    },
}
SAID = ("undeclared name", LAST)
"""What the contract says of valid objects that a grammar leaves out."""
REFUSED = ("other names may come twice", "could be one name")
"""Why a grammar is refused; alone, all these schemas are enforced."""


def objects() -> Iterator[dict[str, Any]]:
    yield {}
    for count, values in ((1, (1, "a", None)), (2, (1, "a", None)), (3, (1, "a"))):
        for names in combinations(NAMES, count):
            for some in product(values, repeat=count):
                yield dict(zip(names, some, strict=True))
    yield from ({"q": {"q": 1}}, {"q": {}}, {"q": {"r": "a"}}, {"k": {"q": 1}}, {"k": {"r": "a"}}, {"k": {}})


def arrays() -> Iterator[list[Any]]:
    for count in range(4):
        for items in product((1, "a", None) if count < 3 else (1, "a"), repeat=count):
            yield list(items)
    yield from ([[1]], [["a", 1]], [[]], [[1, 1], 1])


def in_every_order(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [json.dumps(value)]
    return [json.dumps(dict(pairs)) for pairs in permutations(value.items())]


def twice() -> Iterator[str]:
    """Objects in which an undeclared name comes twice: the last value counts."""
    for name, first, second in product(NAMES, ("1", '"a"', "null"), ("1", '"a"', "null")):
        yield f'{{"{name}": {first}, "{name}": {second}}}'


def schemas(negated: dict[str, Any], kind: str, seed: str, count: int) -> Iterator[dict[str, Any]]:
    """Some schemas of the grid with this negation."""
    beside = BESIDE_OBJECTS if kind == "object" else BESIDE_ARRAYS
    grid = list(product(beside.values(), PLACES))
    for others, place in Random(seed).sample(grid, min(count, len(grid))):
        keywords = PLACES[place](negated, kind)
        definitions = {"$defs": keywords.pop("$defs")} if "$defs" in keywords else {}
        parts = {**others, **keywords} if not others.keys() & keywords else {"allOf": [others, keywords]}
        yield {"type": kind, **parts, **definitions}


def as_a_whole(spec: JsonSchema) -> Any:
    return compile_automaton(COMPILER.language(spec, wanted_by="a test"), spec, COMPILER.vocab, COMPILER.trie)


def as_gbnf(spec: JsonSchema) -> Any:
    text = to_gbnf(expand(spec.schema, order=spec.used_order))
    return COMPILER.compile(espalier.Gbnf(text))


ROADS: dict[str, tuple[Callable[[JsonSchema], Any], str]] = {
    "alone": (COMPILER.compile, "schema"),
    "any order": (COMPILER.compile, "any"),
    "as a whole": (as_a_whole, "schema"),
    "as a whole, any order": (as_a_whole, "any"),
    "GBNF": (as_gbnf, "schema"),
}


def check(schema: dict[str, Any], road: str, documents: Iterable[Any]) -> None:
    """Nothing invalid passes on this road, and what is refused is said to be."""
    valid = validator(schema)
    compile_spec, order = ROADS[road]
    is_alone = compile_spec == COMPILER.compile
    documents = list(documents)
    spec = JsonSchema(schema, order=order)  # type: ignore[arg-type]  # a name of an order
    try:
        compiled = compile_spec(spec)
    except SchemaError:
        assert not any(map(valid, documents)), "a schema that some value satisfies was called unsatisfiable"
        return
    except UnsupportedError as error:
        if is_alone or not any(text in str(error) for text in REFUSED):
            raise
        return
    is_said = False
    if not is_alone:
        grammar = convert(expand(schema, order=order))  # type: ignore[arg-type]  # a name of an order
        is_said = any(text in note.text for note in grammar.notes for text in SAID)
    for document in documents:
        texts = in_every_order(document)
        accepted = [text for text in texts if compiled.accepts(text)]
        if not valid(document):
            assert not accepted, f"accepted: {accepted[0]}"
        elif road == "any order":
            assert accepted == texts, f"refused: {set(texts) - set(accepted)}"
        else:
            assert accepted or (is_said and len(document) > 1), f"refused, which is not said: {document}"
    for text in (*twice(), *walks(compiled, str(schema))):
        assert valid(json.loads(text)) or not compiled.accepts(text), f"accepted: {text}"


def walks(compiled: Any, seed: str) -> Iterator[str]:
    random = Random(seed)
    for _ in range(3):
        if (text := walk(compiled, random, liked=LIKED, longest=40)) is not None:
            assert compiled.accepts(text)
            yield text


@pytest.mark.parametrize("name", OBJECTS)
def test_negated_objects(name: str) -> None:
    """The roads in turn."""
    documents = list(objects())
    for i, schema in enumerate(schemas(OBJECTS[name], "object", name, examples(24))):
        check(schema, list(ROADS)[i % len(ROADS)], documents)


@pytest.mark.parametrize("name", ARRAYS)
def test_negated_arrays(name: str) -> None:
    documents = list(arrays())
    for i, schema in enumerate(schemas(ARRAYS[name], "array", name, examples(16))):
        check(schema, list(ROADS)[i % len(ROADS)], documents)


# Faults that were met


@pytest.mark.parametrize("place", PLACES)
def test_a_negated_closed_object_refuses_the_names_that_only_it_declares(place: str) -> None:
    schema = {"type": "object", **PLACES[place](CLOSED, "object")}
    check(schema, "alone", objects())
    if place == "not":
        assert not COMPILER.compile(JsonSchema(schema)).accepts('{"q": 1}')
        assert COMPILER.compile(JsonSchema(schema)).accepts('{"q": 1, "r": 1}')


CALL = '<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>'
COMPOSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "AllOf": (lambda schema: espalier.AllOf(JsonSchema(schema), espalier.Regex(r"[^\n]*")), "{}"),
    "AnyOf": (lambda schema: espalier.AnyOf(JsonSchema(schema), espalier.Choice(["no"])), "{}"),
    "After": (lambda schema: espalier.After("JSON:", JsonSchema(schema)), "JSON:{}"),
    "Free": (lambda schema: espalier.Free({"N:": JsonSchema(schema)}), "N:{}"),
    "ToolCalls": (
        lambda schema: espalier.ToolCalls(
            [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True, "closed": False}}],
            choice="required",
            format="hermes",
        ),
        CALL,
    ),
}


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize(
    "negated",
    [
        "additionalProperties false, a name",
        "additionalProperties",
        "patternProperties",
        "propertyNames, length",
        "unevaluatedProperties",
    ],
)
def test_negated_objects_in_compositions(name: str, negated: str) -> None:
    schema = {"type": "object", "not": OBJECTS[negated]}
    valid = validator(schema)
    make, frame = COMPOSED[name]
    compiled = COMPILER.compile(make(schema))
    for document in objects():
        accepted = any(compiled.accepts(frame.format(text)) for text in in_every_order(document))
        assert accepted == valid(document), document
    for text in twice():
        assert valid(json.loads(text)) or not compiled.accepts(frame.format(text)), text


def test_a_region_with_a_negated_object_may_be_a_scalar_too() -> None:
    schema = {"anyOf": [STR, {"type": "object", "not": {"additionalProperties": INT}}]}
    compiled = COMPILER.compile(espalier.Free({"N:": JsonSchema(schema)}))
    assert compiled.accepts('N:"a"')
    assert compiled.accepts('N:{"q": 1, "r": "a"}')
    assert not compiled.accepts('N:{"q": 1}')
    assert not compiled.accepts('N:{"q": "a", "q": 1}')


@pytest.mark.parametrize("style", ["python", "json"])
def test_negated_objects_as_arguments(style: str) -> None:
    grammar = convert(expand({"type": "object", "not": {"additionalProperties": INT}}), style=style)  # type: ignore[arg-type]
    compiled = COMPILER.compile(espalier.Gbnf(printed(grammar)))
    text = '(q=1, r="a")' if style == "python" else '{"q": 1, "r": "a"}'
    assert compiled.accepts(text)
    assert not compiled.accepts(text.replace('"a"', "1"))
    assert LAST in [note.text for note in grammar.notes]


def test_a_later_member_of_the_same_name_does_not_undo_what_a_negation_asks_for() -> None:
    schema = {"type": "object", "not": {"additionalProperties": INT}}
    for road, (compile_spec, order) in ROADS.items():
        compiled = compile_spec(JsonSchema(schema, order=order))  # type: ignore[arg-type]  # a name of an order
        assert not compiled.accepts('{"q": "a", "q": 1}'), road
        assert compiled.accepts('{"q": 1, "r": "a"}'), road


@pytest.mark.parametrize("name", ["additionalProperties", "patternProperties", "propertyNames, length", "$ref"])
def test_matchers_of_negated_objects_keep_the_laws(name: str) -> None:
    negated = {"additionalProperties": False, "patternProperties": {"^q": INT}} if name == "$ref" else OBJECTS[name]
    schema = {"type": "object", "maxProperties": 2, "not": negated}
    compiled, valid = COMPILER.compile(JsonSchema(schema)), validator(schema)
    accepted = [json.dumps(document) for document in objects() if valid(document)]
    rejected = [json.dumps(document) for document in objects() if not valid(document)]
    check_matcher(compiled, trie=COMPILER.trie, accepted=accepted[:12], rejected=rejected[:12], walks=2)


def test_negations_that_grammars_keep_only_by_order_say_so() -> None:
    both = {"allOf": [{"not": {"additionalProperties": INT}}, {"not": {"additionalProperties": STR}}], "type": "object"}
    assert espalier.contract(both).worst == "narrowed"
    assert all(LAST not in entry.note for entry in espalier.contract(both).entries)
    grammar = convert(expand(both))
    assert {note.pointer for note in grammar.notes if note.text == LAST} == {"/allOf/0", "/allOf/1"}


@pytest.mark.parametrize("factor", [1, 2, 3, 7, 10, 1000, 0.5, 0.1, 0.01, 1.5, 1e-7])
@pytest.mark.parametrize("beside", [{}, {"minimum": 0}, {"maximum": 100.5}, {"minimum": 10**12}, {"multipleOf": 0.5}])
def test_numbers_that_are_no_multiples(factor: float, beside: dict[str, Any]) -> None:
    schema = {"type": "number", "not": {"multipleOf": factor}, **beside}
    valid = validator(schema)
    try:
        compiled = COMPILER.compile(JsonSchema(schema))
    except SchemaError:
        assert not any(map(valid, map(json.loads, NUMBERS)))
        return
    for text in NUMBERS:
        if valid(json.loads(text)):
            assert compiled.accepts(text), text
        else:
            assert not compiled.accepts(text), text


NUMBERS = [
    *("0", "1", "2", "3", "-3", "5", "7", "10", "100", "1000", "1234567890", "-12345678901", "12345678901234567891"),
    *("1.5", "0.25", "-0.5", "1234567890.5", "12345678901.25", "12345678901234.5", "-123456789.123456", "99.999"),
    *("1000000000001", "1000000000000.5", "21", "0.1", "0.01"),
]


LARGE: dict[str, dict[str, Any]] = {
    "five demands": {"allOf": [{"not": {"patternProperties": {name: INT}}} for name in "abcde"]},
    "eight names": {"allOf": [{"not": {"properties": {name: {}}, "additionalProperties": INT}} for name in "abcdefgh"]},
    "patterns": {"not": {"patternProperties": {f"x{i}": INT for i in range(41)}, "additionalProperties": False}},
    "uniqueItems": {"not": {"uniqueItems": True}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_negations_that_are_too_many_to_tell_apart_are_left_to_the_judge(name: str) -> None:
    schema = LARGE[name]
    assert "/not" in espalier.contract(schema).by_verdict("checked")[0].pointer
    with pytest.raises(UnsupportedError, match="/not"):
        COMPILER.compile(JsonSchema(schema))
    compiled, valid = COMPILER.compile(JsonSchema(schema, allow="checked")), validator(schema)
    for value in (*objects(), *arrays(), {"abcde": "x"}, {"x40": 1}, {"x40": "a"}, {"y": 1}, {"abcdefgh": None}):
        assert not valid(value) or any(map(compiled.accepts, in_every_order(value))), value
