"""`minProperties` and `maxProperties` beside declared names, in every order and place; against `jsonschema`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import jsonschema
import pytest

import tests.tokenizers as tokenizers
from espalier import AllOf, AnyOf, Free, Gbnf, JsonSchema, ToolCalls
from espalier.chat.tools import Tool
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.errors import EspalierError, SchemaError, SpecError, UnsupportedError
from espalier.schema.gbnf import to_gbnf
from espalier.schema.lazy.objects import KeyedChain
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.layout import layout
from espalier.schema.normal.expand import expand
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_matcher
from tests.tool_texts import written

BYTES = Compiler(Vocab.bytes())
PIECES = Compiler(tokenizers.byte_level_vocab())
NAMES = ("a", "b", "c", "y", "z")
"""a, b and c may be declared, y matches a pattern, z is any other name."""
ORDERS = ("schema", "any", "required-first")
PLACES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda inner: inner,
    "not not": lambda inner: {"type": "object", "not": {"not": inner}},
    "oneOf": lambda inner: {"oneOf": [inner, {"type": "object", "required": ["z"]}]},
    "anyOf": lambda inner: {"anyOf": [inner, {"type": "object", "required": ["z"], "maxProperties": 2}]},
    "if": lambda inner: {"type": "object", "if": inner, "then": {"required": ["a"]}, "else": {"maxProperties": 2}},
    "then": lambda inner: {"type": "object", "if": {"required": ["a"]}, "then": inner},
    "else": lambda inner: {"type": "object", "if": {"required": ["a"]}, "else": inner},
    "not": lambda inner: {"type": "object", "not": inner},
    "dependentSchemas": lambda inner: {"type": "object", "dependentSchemas": {"a": inner, "z": {"minProperties": 2}}},
    "$ref": lambda inner: {"$defs": {"x": inner}, "$ref": "#/$defs/x", "maxProperties": 3, "properties": {"y": {}}},
    "allOf": lambda inner: {"allOf": [inner, {"minProperties": 1, "properties": {"b": {}, "y": {}}}]},
}
NEGATED = ("not", "oneOf", "if")
"""Where the inner schema is negated too."""


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@cache
def schemas() -> tuple[dict[str, Any], ...]:
    """Every combination of bounds, declared and required names, other names and a pattern."""
    made: list[dict[str, Any]] = []
    others = (True, False, {"type": "integer"})
    for most, least, declared, more, pattern in product((None, 0, 1, 2, 3), range(4), range(4), others, (0, 1)):
        for required in range(declared + 1):
            schema: dict[str, Any] = {"type": "object", "properties": dict.fromkeys(NAMES[:declared], True)}
            schema |= {"required": list(NAMES[declared - required : declared]), "minProperties": least}
            schema |= {} if most is None else {"maxProperties": most}
            schema |= {} if more is True else {"additionalProperties": more}
            schema |= {"patternProperties": {"^y": {"type": "boolean"}}} if pattern else {}
            made.append(schema)
    return tuple(made)


@cache
def objects() -> tuple[dict[str, Any], ...]:
    """Every object of at most four of NAMES in every order, with values that fit and values that do not."""
    values = {"y": (1, True), "z": (1, True)}
    return tuple(
        dict(zip(names, chosen, strict=True))
        for count in range(5)
        for names in permutations(NAMES, count)
        for chosen in product(*(values.get(name, (1,)) for name in names))
    )


def compiled(schema: Any, order: str, compiler: Compiler = BYTES) -> Compiled | None:
    """None where no document satisfies the schema."""
    try:
        return compiler.compile(JsonSchema(schema, order=order, whitespace="compact"))
    except SchemaError:
        return None


def is_in_order(value: dict[str, Any], schema: dict[str, Any], order: str) -> bool:
    """Whether an object has the order that is promised for a plain schema."""
    declared, required = list(schema["properties"]), schema["required"]
    if order == "required-first":
        declared.sort(key=lambda name: name not in required)
    rank = {name: i for i, name in enumerate(declared)}
    ranks = [rank.get(name, len(rank)) for name in value]
    return order == "any" or ranks == sorted(ranks)


def drawn(seed: object, count: int) -> Iterator[tuple[dict[str, Any], str, list[dict[str, Any]]]]:
    """Schemas with an order and objects to be judged."""
    random = Random(str(seed))
    for schema in random.sample(schemas(), min(examples(count), len(schemas()))):
        yield schema, random.choice(ORDERS), random.sample(objects(), 60)


@pytest.mark.parametrize("whitespace", ["compact", "natural"])
def test_an_object_of_at_most_one_name_ends_after_it(whitespace: Any) -> None:
    """A second declared name was offered, and choosing it was an IndexError."""
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}
    for order in ORDERS:
        made = BYTES.compile(JsonSchema(schema, order=order, whitespace=whitespace))
        check_matcher(made, trie=BYTES.trie, accepted=['{"a":1}', '{"b":1}', "{}"], rejected=['{"a":1,"b":1}'])
    matcher = made.matcher()
    for token in b'{"a":1':
        matcher.advance(token)
    assert not matcher.allows(ord(","))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_object_is_judged_as_by_jsonschema_in_the_promised_order(part: int) -> None:
    for schema, order, values in drawn(part, 200):
        judge = jsonschema.Draft202012Validator(schema)
        made = compiled(schema, order)
        for value in values:
            accepted = made is not None and made.accepts(compact(value))
            assert accepted == (judge.is_valid(value) and is_in_order(value, schema, order)), (schema, order, value)


@pytest.mark.parametrize("place", PLACES)
def test_every_object_is_judged_as_by_jsonschema_in_every_place(place: str) -> None:
    for inner, order, values in drawn(place, 120):
        if place in NEGATED and inner.get("additionalProperties", True) is not True:
            continue
        schema = PLACES[place](inner)
        judge = jsonschema.Draft202012Validator(schema)
        try:
            made = compiled(schema, order)
        except UnsupportedError:  # a negated pattern: it says so
            assert "patternProperties" in inner
            continue
        for value in values:
            orders = [dict(names) for names in permutations(value.items())] if order != "any" else [value]
            accepted = made is not None and made.accepts(compact(value))
            assert judge.is_valid(value) or not accepted, (schema, order, value)
            if made is not None and judge.is_valid(value) and not accepted:
                assert any(made.accepts(compact(one)) for one in orders), (schema, order, value)
            assert made is not None or not judge.is_valid(value), (schema, order, value)


@pytest.mark.slow
def test_a_grammar_accepts_only_what_the_matcher_accepts() -> None:
    for schema, order, values in drawn("grammar", 120):
        made = compiled(schema, order)
        try:
            text = to_gbnf(expand(schema, order=order), whitespace="compact")
        except UnsupportedError:  # several undeclared names must come
            assert schema["minProperties"] - len(schema["properties"]) > 1
            continue
        except SchemaError:
            assert made is None
            continue
        grammar = BYTES.compile(Gbnf(text))
        for value in values:
            if grammar.accepts(compact(value)):
                assert made is not None, (schema, order, value)
                assert made.accepts(compact(value)), (schema, order, value)
            elif made is not None and made.accepts(compact(value)):  # it counts one undeclared name at most
                assert schema["minProperties"] > len(schema["properties"].keys() & value.keys()), (schema, order, value)


@pytest.mark.slow
@pytest.mark.parametrize("wire_format", ["hermes", "openai", "pythonic", "qwen_coder", "gemma4"])
def test_the_arguments_of_tools_keep_the_counts(wire_format: str) -> None:
    wire = ToolCalls({"f": {}}, format=wire_format).wire
    for schema, order, values in drawn(wire_format, 40):
        # In arguments one undeclared name counts at most, and the contract says so: more are only checked.
        enforced = schema if schema["minProperties"] < len(schema["properties"]) + 2 else schema | {"minProperties": 0}
        judge = jsonschema.Draft202012Validator(enforced)
        try:
            tool = Tool(name="f", parameters=json.dumps(schema), closed=False)
            made = BYTES.compile(ToolCalls([tool], format=wire_format, choice="required", order=order))
        except SpecError:  # no call satisfies it
            continue
        for value in values:
            if made.accepts(written(wire, ("f", value))):
                assert judge.is_valid(value), (schema, order, value)
            elif judge.is_valid(value) and is_in_order(value, schema, order) and wire_format == "openai":
                assert schema["minProperties"] > len(schema["properties"].keys() & value.keys()), (schema, order, value)


COMPOSED: dict[str, Callable[[JsonSchema], Any]] = {
    "alone": lambda spec: spec,
    "all of": lambda spec: AllOf(spec, JsonSchema({"type": "object"}, order="any", whitespace="compact")),
    "any of": lambda spec: AnyOf(spec, JsonSchema({"type": "null"})),
    "free": lambda spec: Free({"<x>": spec}),
    "tools": lambda spec: ToolCalls({"f": spec.schema}, format="hermes", choice="required", order=spec.order),
}


@pytest.mark.parametrize("composition", COMPOSED)
def test_a_walk_through_the_masks_raises_nothing_and_ends_in_a_valid_object(composition: str) -> None:
    """Every answer of a matcher is asked for at every step of random walks."""
    random = Random(composition)
    for inner, order, _ in drawn(composition, 30):
        schema = inner | {"properties": {name: {"enum": [1, True]} for name in inner["properties"]}}
        compiler = random.choice((BYTES, PIECES))
        try:
            made = compiler.compile(COMPOSED[composition](JsonSchema(schema, order=order, whitespace="compact")))
        except EspalierError:  # no document satisfies it, or the composition cannot count its names
            continue
        matcher, width = made.matcher(), made.vocab.width
        taken: list[int] = []
        for _ in range(40):
            mask = matcher.mask()
            allowed = masks.allowed_ids(mask, width).tolist()
            refused = sorted(set(range(width)) - set(allowed))
            assert allowed
            assert all(matcher.allows(token) for token in random.sample(allowed, min(5, len(allowed))))
            for token in random.sample(refused, min(3, len(refused))):
                assert not matcher.allows(token)
                assert matcher.explain(token).reason
            ahead = matcher.fork()
            for token in ahead.forced():
                ahead.advance(token)
            end = matcher.fork()
            for token in matcher.shortest_completion():
                end.advance(token)
            assert end.is_finished
            token = random.choice([one for one in allowed if one not in made.vocab.eos_ids] or allowed)
            matcher.advance(token)
            taken.append(token)
            if matcher.is_finished:
                break
            back = matcher.fork()
            back.rollback(1)
            assert (back.mask() == mask).all()
        if composition == "alone":
            if not matcher.is_finished:
                taken += matcher.shortest_completion()
            value = json.loads(made.vocab.decode(taken))
            assert jsonschema.Draft202012Validator(schema).is_valid(value), (schema, order, value)


def test_the_keys_that_are_offered_are_those_of_the_edges() -> None:
    """What a matcher explores and what a grammar is written from agree in every state, and each key has an end."""
    for schema in Random(0).sample(schemas(), examples(300)):
        spec = JsonSchema(schema, whitespace="compact")
        made = compiled(schema, "schema")
        for chain in chains_of(spec) if made is not None else ():
            states: list[Any] = [(0, 0)]
            for state in states:  # grows as states are met
                _, choice = chain.explore(state)
                by_edges, todo = set(), [state]
                while todo:  # properties are left out one by one
                    i, count = todo.pop()
                    if i < len(chain.members):
                        for _, target in chain.edges((i, count)):
                            if target == (i + 1, count) and not chain.members[i].required and target not in by_edges:
                                todo.append(target)
                            if target == (i + 1, chain.counted(count)):
                                by_edges.add(target)
                keys = () if choice is None else choice.keys
                offered = {chain.member(key, choice.place)[1] for key in keys if choice is not None}
                assert offered == by_edges, (schema, state)
                states += [target for target in offered if target not in states]


def chains_of(spec: JsonSchema) -> list[KeyedChain]:
    """The objects of a schema in its order."""
    rules = SchemaRules(expand(spec.schema), layout("compact"))
    return [body for rule in rules._queue for body in rule.bodies if isinstance(body, KeyedChain)]
