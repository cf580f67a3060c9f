"""`contains` in every company: several at once, beside a prefix, counted, with unique items; against `jsonschema`."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import jsonschema
import pytest

import espalier
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.errors import LimitExceeded, SchemaError, UnsupportedError
from espalier.schema.gbnf import to_gbnf
from espalier.schema.normal.expand import expand
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_matcher

COMPILER = Compiler(Vocab.bytes())
VALUES = (0, 1, 2, "a", "b", None)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def check(schema: dict[str, Any], *, most: int = 4) -> None:
    """Every array of up to `most` of VALUES is judged as by jsonschema."""
    judge = jsonschema.Draft202012Validator(schema)
    arrays = [list(items) for count in range(most + 1) for items in product(VALUES, repeat=count)]
    try:
        compiled = COMPILER.compile(JsonSchema(schema, whitespace="compact"))
    except SchemaError:  # no document satisfies it
        assert not any(map(judge.is_valid, arrays)), schema
        return
    for array in arrays:
        assert compiled.accepts(compact(array)) == judge.is_valid(array), (schema, array)


SCHEMAS: dict[str, dict[str, Any]] = {
    "several": {"allOf": [{"contains": one} for one in ({"type": "string"}, {"const": 1}, {"type": "null"})]},
    "that overlap": {"allOf": [{"contains": {"type": "integer"}}, {"contains": {"minimum": 1}, "maxContains": 1}]},
    "beside a prefix": {"prefixItems": [{"type": "string"}, {"type": "integer"}], "contains": {"const": 1}},
    "only in a prefix": {"prefixItems": [{}, {}], "items": False, "contains": {"const": "a"}, "minContains": 2},
    "at least and at most": {"contains": {"type": "string"}, "minContains": 2, "maxContains": 3, "maxItems": 3},
    "at most none": {"contains": {"type": "string"}, "minContains": 0, "maxContains": 0},
    "with counts of items": {"contains": {"const": 0}, "minContains": 2, "minItems": 3, "items": {"enum": [0, "a"]}},
    "that contradict": {"allOf": [{"contains": {"const": 1}}, {"items": {"type": "string"}}]},
    "and none of another": {"contains": {"type": "integer"}, "not": {"contains": {"type": "string"}}},
    "unique": {"contains": {"type": "integer"}, "minContains": 2, "uniqueItems": True},
    "unique and few": {
        "items": {"enum": [0, 1, "a"]},
        "contains": {"type": "integer"},
        "maxContains": 1,
        "uniqueItems": True,
        "minItems": 2,
    },
    "unique and too few": {"contains": {"const": 1}, "minContains": 2, "uniqueItems": True},
    "unique beside a prefix": {
        "prefixItems": [{"enum": [1, 2]}, {"enum": [1, 2]}],
        "contains": {"const": "a"},
        "uniqueItems": True,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_arrays_that_contain(name: str) -> None:
    check({"type": "array"} | SCHEMAS[name])


@pytest.mark.parametrize("seed", range(examples(40)))
def test_random_contains_agree_with_jsonschema(seed: int) -> None:
    random = Random(seed)

    def part() -> Any:
        return random.choice(
            [
                {"type": "integer"},
                {"type": "string"},
                {"const": 1},
                {"enum": [0, "a"]},
                {"minimum": 1},
                {"not": {"const": 0}},
                {"type": ["integer", "null"]},
                True,
                False,
                {"maxLength": 0},
            ]
        )

    def contains() -> dict[str, Any]:
        counts = {name: random.randint(0, 2) for name in ("minContains", "maxContains") if random.random() < 0.4}
        return {"contains": part(), **counts}

    schema: dict[str, Any] = {"type": "array", "allOf": [contains() for _ in range(random.randint(1, 3))]}
    options: dict[str, Any] = {
        "prefixItems": [part() for _ in range(random.randint(1, 2))],
        "items": part(),
        "minItems": random.randint(0, 3),
        "maxItems": random.randint(0, 3),
        "uniqueItems": True,
    }
    check(schema | {name: value for name, value in options.items() if random.random() < 0.35}, most=3)


@pytest.mark.parametrize("name", ["several", "beside a prefix", "unique and few", "unique beside a prefix"])
def test_the_laws_hold_where_arrays_contain(name: str) -> None:
    schema = {"type": "array"} | SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(schema)
    arrays = [list(items) for count in range(4) for items in product(VALUES, repeat=count)]
    valid = [compact(one) for one in arrays if judge.is_valid(one)]
    wrong = [compact(one) for one in arrays if not judge.is_valid(one)]
    random = Random(1)
    compiled = COMPILER.compile(JsonSchema(schema, whitespace="compact"))
    check_matcher(
        compiled, trie=COMPILER.trie, accepted=random.sample(valid, 2), rejected=random.sample(wrong, 20), walks=2
    )


def test_the_contract_says_that_contains_is_enforced_and_when_it_is_too_many() -> None:
    for name, more in SCHEMAS.items():
        if name in ("that contradict", "unique and too few"):
            continue
        found = espalier.contract({"type": "array"} | more)
        assert not found.by_verdict("checked", "refused"), name
    many = {"type": "array", "allOf": [{"contains": {"const": i}} for i in range(5)]}
    with pytest.raises(UnsupportedError, match="5 of them are too many to count at a time"):
        COMPILER.compile(JsonSchema(many))
    large = {"type": "array", "contains": {"const": 1}, "minContains": 6_000}
    with pytest.raises((UnsupportedError, LimitExceeded), match="too many to count"):
        COMPILER.compile(JsonSchema(large))


def test_several_contains_can_be_written_as_gbnf() -> None:
    schema = {"type": "array", "allOf": [{"contains": {"const": 1}}, {"contains": {"const": "a"}}]}
    compiled = COMPILER.compile(espalier.Gbnf(to_gbnf(expand(schema), whitespace="compact")))
    assert compiled.accepts('["a",true,1]')
    assert not compiled.accepts('["a",true]')
