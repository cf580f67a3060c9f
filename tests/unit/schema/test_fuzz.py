"""A short run of the schema fuzzer, and each wrong acceptance that it found as a test of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

import espalier
from tests.examples import examples
from tests.fuzz.schema.oracle import parse, valid
from tests.fuzz.schema.run import SchemaFuzzer
from tests.fuzz.session import run

VOCAB = espalier.Vocab.bytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_accepted_that_jsonschema_refuses(seed: int) -> None:
    totals = run(SchemaFuzzer(), seed, cases=examples(50))
    assert totals.findings == []
    assert totals.counts["text: accepted"] > 10 * examples(50) / 4
    assert totals.counts["alone"]
    assert totals.counts["as a whole"]


def test_the_oracle_judges_decimals_as_they_are_written() -> None:
    value, twice = parse('{"a": 0.30, "a": 0.3}')
    assert twice
    assert valid({"properties": {"a": {"multipleOf": 0.1}}})(value)
    assert valid({"type": "integer"})(parse("1.0")[0])
    assert not valid({"type": "integer"})(parse("1.00000000000000000001")[0])
    assert not valid({"maximum": 0.1})(parse("0.1000000000000000000000001")[0])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r'^[^"]*$', 'a"b'),
        (r'^[^"\\]*$', 'a"b'),
        (r'^[^"\\]*$', "a\\b"),
        (r'^[^<>:"/\\|?*]+$', 'a"b'),
        (r'^[^<>:"/\\|?*]+$', "a\\b"),
        (r"^[&.A-Z\u0000-\u001f]{2}$", 'A"'),
        (r"^[0\x00-\x1f]{2,}\.", '0".'),
    ],
)
@pytest.mark.parametrize("where", ["pattern", "propertyNames", "patternProperties"])
def test_a_pattern_that_excludes_a_quotation_mark_or_a_backslash_excludes_it(
    pattern: str, text: str, where: str
) -> None:
    schemas: dict[str, Any] = {
        "pattern": {"type": "string", "pattern": pattern},
        "propertyNames": {"type": "object", "propertyNames": {"pattern": pattern}},
        "patternProperties": {"type": "object", "patternProperties": {pattern: {}}, "additionalProperties": False},
    }
    document = text if where == "pattern" else {text: 1}
    compiled = espalier.compile(espalier.JsonSchema(schemas[where]), vocab=VOCAB)
    assert not valid(schemas[where])(document)
    assert not compiled.accepts(json.dumps(document))


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"maximum": 0.01, "exclusiveMinimum": 0}, "0"),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 0.01}, "0"),
        ({"minimum": -0.01, "exclusiveMaximum": 0}, "-0"),
    ],
)
def test_zero_as_an_exclusive_bound_is_not_accepted(bounds: dict[str, Any], text: str) -> None:
    schema = {"type": "number"} | bounds
    assert not espalier.compile(espalier.JsonSchema(schema), vocab=VOCAB).accepts(text)
