"""Numbers that need more digits than are usual are written, or the error names the limit: neither is called empty."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random
from typing import Any

import jsonschema
import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.errors import LimitExceeded, SchemaError
from espalier.grammar.sample import SentenceSampler
from espalier.schema.contract import Contract
from espalier.schema.form import NumberForm
from espalier.tokens.vocab import Vocab
from tests.unit.schema.hand_shapes import accepts, one

HUGE = 10**24
WHOLE: list[dict[str, Any]] = [
    {"multipleOf": HUGE, "minimum": 1},
    {"multipleOf": HUGE, "maximum": -1},
    {"multipleOf": HUGE, "not": {"const": 0}},
    {"multipleOf": HUGE, "not": {"multipleOf": 7}, "minimum": 1},
    {"multipleOf": 7 * 10**19, "minimum": 8 * 10**19},
    {"minimum": 10**20 - 1, "not": {"const": 10**20 - 1}},
    {"multipleOf": 123456789012345678901, "exclusiveMinimum": 0},
]
COMPILER = Compiler(Vocab.bytes())
NARROW = {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.000000000000001}


@pytest.mark.slow
@pytest.mark.parametrize("keywords", WHOLE, ids=map(str, WHOLE))
def test_integers_beyond_twenty_digits_are_written(keywords: dict[str, Any]) -> None:
    schema = {"type": "integer", **keywords}
    compiled = COMPILER.compile(JsonSchema(schema))
    shortest = bytes(compiled.matcher().shortest_completion()[:-1])
    jsonschema.validate(json.loads(shortest), schema)
    sampler = SentenceSampler(LoweredSchema(JsonSchema(schema)).converted.grammar)
    for seed in range(20):
        text = sampler.draw(Random(seed), max_size=60)
        jsonschema.validate(json.loads(text), schema)
        assert compiled.accepts(text)


@pytest.mark.parametrize("places", [25, 60, 300])
def test_numbers_close_to_zero_are_written(places: int) -> None:
    least = float(f"1e-{places}")
    schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": least}
    value = json.loads(bytes(COMPILER.compile(JsonSchema(schema)).matcher().shortest_completion()[:-1]))
    assert 0 < value < least


@pytest.mark.parametrize("places", [15, 17, 20, 25])
def test_multiples_with_many_places_are_exact(places: int) -> None:
    step = Fraction(3, 10**places)
    test = accepts(one(NumberForm(multiples=(step,), minimum=Fraction(0), maximum=step * 40_000)))
    for count in range(300):
        text = f"0.{count:0{places}d}"
        assert test(text) == (count % 3 == 0), text


def test_a_range_that_floats_do_not_tell_apart_names_the_limit() -> None:
    for schema in (NARROW, {"type": "array", "items": NARROW, "minItems": 1}):
        for lower in (COMPILER.compile, lambda spec: LoweredSchema(spec).converted):
            with pytest.raises(LimitExceeded, match="more than 15 digits"):
                lower(JsonSchema(schema))


def test_beside_other_values_such_a_range_is_left_out_and_the_contract_says_so() -> None:
    spec = JsonSchema({"anyOf": [NARROW, {"type": "null"}]})
    assert COMPILER.compile(spec).accepts("null")
    contract: Contract = LoweredSchema(spec).contract("alone")
    assert any("more than 15 digits" in (entry.note or "") for entry in contract.by_verdict("narrowed"))


def test_what_no_number_satisfies_stays_empty() -> None:
    for schema in ({"multipleOf": 4, "not": {"multipleOf": 2}}, {"minimum": 10**25, "maximum": 10**24}):
        with pytest.raises(SchemaError):
            COMPILER.compile(JsonSchema({"type": "integer", **schema}))
