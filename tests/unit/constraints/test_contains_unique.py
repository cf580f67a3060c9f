"""`contains` with counts beside `uniqueItems`: the same work as without counts, the same arrays as `jsonschema`."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from random import Random
from typing import Any

import jsonschema
import pytest

import tests.tokenizers as tokenizers
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.constraints.unique.arrays import watched_items
from espalier.constraints.unique.search import CompletionSearch
from espalier.errors import SchemaError
from espalier.schema.normal.expand import expand
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples

BYTES = Compiler(Vocab.bytes())
PIECES = Compiler(tokenizers.byte_level_vocab())
UNIQUE = {"type": "array", "uniqueItems": True}
MATCHED: dict[str, tuple[Any, Any, str]] = {
    "integers of anything": (True, {"type": "integer"}, '["abc",1,{"a":1},2,[3]]'),
    "strings by their beginning": ({"type": "string"}, {"pattern": "^a"}, '["abc","xyz","alpha"]'),
    "an enum of anything": (True, {"enum": ["a", "b", 1, 2]}, '["a",3,1,{"a":1},2]'),
    "booleans of anything": (True, {"type": "boolean"}, '[1,true,false,"x"]'),
    "objects with a name": (True, {"required": ["k"]}, '[{"k":1},{"k":2},3]'),
    "an enum of integers": ({"type": ["integer", "null"]}, {"enum": [1, 2]}, "[1,null,2,5]"),
}
"""By name: the items, what two of them match, and a text."""
MOST_TRIES = 200
"""Completions that are tried for one mask. Up to 13,250 were."""


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("name", MATCHED)
def test_a_mask_tries_few_completions_where_two_items_must_match(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask took 0.1 to 4.3 seconds with `minContains: 2`, 25 ms without."""
    tries = 0
    tried = CompletionSearch._try_lead

    def counting(*options: Any) -> Any:
        nonlocal tries
        tries += 1
        return tried(*options)

    monkeypatch.setattr(CompletionSearch, "_try_lead", counting)
    items, matched, text = MATCHED[name]
    schema = UNIQUE | {"items": items, "contains": matched, "minContains": 2}
    matcher = PIECES.compile(JsonSchema(schema, whitespace="compact")).matcher()
    for token in PIECES.trie.segment(text.encode()) or ():
        tries = 0
        assert masks.test(matcher.mask(), token)
        assert tries <= MOST_TRIES
        matcher.advance(token)
    assert matcher.is_accepting


@pytest.mark.parametrize(
    ("more", "is_easy"),
    [
        ({"contains": {"type": "integer"}, "minContains": 2}, True),
        ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3}, True),
        ({"contains": {"type": "integer"}, "minContains": 2, "maxItems": 4}, True),
        ({"contains": {"type": "integer"}, "minContains": 2, "prefixItems": [{"type": "string"}]}, True),
        ({"allOf": [{"contains": {"type": "integer"}, "minContains": 2}, {"contains": {"type": "string"}}]}, True),
        ({"contains": {"type": "boolean"}, "minContains": 2}, False),
        ({"contains": {"type": "integer"}, "minContains": 2, "prefixItems": [{"type": "boolean"}]}, False),
        ({"contains": {"type": "integer"}, "minContains": 2, "items": {"type": ["integer", "null"]}}, True),
        (
            {
                "contains": {"type": "integer"},
                "minContains": 2,
                "maxContains": 3,
                "items": {"type": ["integer", "null"]},
                "minItems": 5,
            },
            False,
        ),
    ],
    ids=compact,
)
def test_no_completion_is_sought_where_there_are_numbers_or_strings_without_end(
    more: dict[str, Any], is_easy: bool
) -> None:
    found = watched_items(expand(UNIQUE | more))
    assert found is not None
    assert found.is_easy is is_easy


VALUES = (0, 1, 2, "a", "b", None, True, {"k": 1})
ITEMS = (
    True,
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "object"},
    {"enum": [0, 1, 2, "a", "b"]},
    {"type": ["integer", "null"]},
    {"type": ["string", "boolean"]},
    {"const": 1},
    {"enum": [1, {"k": 1}, {"k": 2}]},
)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_every_array_is_judged_as_by_jsonschema_and_every_walk_comes_to_an_end(seed: int) -> None:
    random = Random(seed)
    schema: dict[str, Any] = UNIQUE | {"contains": random.choice(ITEMS), "minContains": random.randint(0, 3)}
    options = {
        "maxContains": random.randint(1, 3),
        "items": random.choice(ITEMS),
        "prefixItems": random.sample(ITEMS, random.randint(1, 2)),
        "minItems": random.randint(0, 3),
        "maxItems": random.randint(1, 4),
    }
    schema |= {name: value for name, value in options.items() if random.random() < 0.5}
    judge = jsonschema.Draft202012Validator(schema)
    arrays = [
        list(items) for count in range(5) for chosen in combinations(VALUES, count) for items in permutations(chosen)
    ]
    arrays += [[*items, items[0]] for items in permutations(VALUES, 2)]
    arrays = random.sample(arrays, 300)
    try:
        compiled = BYTES.compile(JsonSchema(schema, whitespace="compact"))
    except SchemaError:  # no document satisfies it
        assert not any(map(judge.is_valid, arrays)), schema
        return
    for array in arrays:
        assert compiled.accepts(compact(array)) == judge.is_valid(array), (schema, array)
    for array in [array for array in arrays if judge.is_valid(array)][:3]:
        matcher = compiled.matcher()
        for token in compact(array).encode():
            assert masks.test(matcher.mask(), token), (schema, array)
            matcher.advance(token)
            end = matcher.fork()
            for following in matcher.shortest_completion():
                end.advance(following)
            assert end.is_finished
        assert matcher.is_accepting
