"""Room and difference: what lets a mask under `uniqueItems` be the automaton's own is never wrong.

The masks are compared with those of a matcher that knows neither and looks for a completion after each token, which is
slow and was there first; what `differs_from_all` claims, with each way to go on.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.constraints.unique.earlier import NO_ITEMS, EarlierItems, differs_from_all, with_item
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests import tokenizers
from tests.examples import examples
from tests.oracle import validator

COMPILERS = {"bytes": Compiler(Vocab.bytes()), "sentencepiece": Compiler(tokenizers.spm_vocab())}
ITEMS: dict[str, dict[str, Any]] = {
    "objects": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"enum": ["a", "b"]}},
        "required": ["name", "kind"],
        "additionalProperties": False,
    },
    "objects whose last members are few": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y", 1]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "open objects": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "integers": {"type": "integer"},
    "few integers": {"type": "integer", "minimum": -3, "maximum": 12},
    "numbers": {"type": "number"},
    "short strings": {"type": ["string", "null"], "maxLength": 2},
    "patterns": {"type": "object", "properties": {"a": {"pattern": "^[ab]+$", "type": "string"}}, "required": ["a"],
                 "additionalProperties": False},
    "lists": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    "unique lists": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
    "mixed": {"type": ["string", "integer", "boolean", "null"]},
    "short and mixed": {"type": ["string", "number", "boolean", "null"], "maxLength": 1, "minimum": -2, "maximum": 2},
    "unique lists of mixed items": {"type": "array", "items": {"type": ["string", "integer", "null"]},
                                    "uniqueItems": True},
    "unique lists of unique lists": {"type": "array", "uniqueItems": True, "maxItems": 2, "items": {
        "type": "array", "items": {"enum": [1, 12, None]}, "uniqueItems": True, "maxItems": 2}},
    "objects of unique lists": {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {
        "a": {"type": "array", "items": {"type": ["integer", "string"]}, "uniqueItems": True}}},
    "nulls and words": {"enum": [None, "null", "a", "ab", "b", 0, 1, 12, True, [], [1], {}, {"a": 1}]},
    "anything": {},
}  # fmt: skip
LETTERS = frozenset(b'[]{},:" abnmekidx01.-\\')


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_the_mask_is_the_one_that_is_found_without_room(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = COMPILERS[kind]
    schema = {"type": "array", "items": ITEMS[name], "uniqueItems": True}
    quick = compiler.compile(JsonSchema(schema, whitespace="flexible"))
    assert isinstance(quick, CompiledUniqueItems)
    assert isinstance(quick.tracker, DocumentTracker)
    tracker = DocumentTracker(quick.tracker.spots)
    monkeypatch.setattr(tracker, "open_item", lambda point: None)
    plain = CompiledUniqueItems(quick.inner, tracker, quick.tokens, is_easy=quick.is_easy)
    rng = random.Random(f"{name} {kind}")
    for _ in range(examples(8)):
        ours, theirs = quick.matcher(), plain.matcher()
        for _ in range(30):
            mask = ours.mask()
            assert np.array_equal(mask, theirs.mask())
            ids = masks.allowed_ids(mask, quick.vocab.width).tolist()
            # Short tokens of few letters, so that items are often alike.
            ids = [token for token in ids if set(quick.text_of(token)) <= LETTERS and token not in quick.vocab.eos_ids]
            if not ids:
                break
            token = rng.choice(ids)
            ours.advance(token)
            theirs.advance(token)


values = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, 0.1, 10**20, 1e20, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(values, max_size=4), values, st.integers(0, 60))
def test_an_item_that_differs_from_all_is_equal_to_none(earlier: list[Any], item: Any, length: int) -> None:
    begun = json.dumps(item).encode()[:length]
    if differs_from_all(begun, items_of(earlier), [b"a", b"b", b"c"]):
        assert is_new(item, earlier)


def items_of(values: list[Any]) -> EarlierItems:
    items = NO_ITEMS
    for value in values:
        items = with_item(items, json.dumps(value).encode())
    return items


def is_new(item: Any, earlier: list[Any]) -> bool:
    unique = validator({"uniqueItems": True})
    return all(unique([item, value]) for value in earlier)


@pytest.mark.parametrize(
    ("begun", "earlier", "differs"),
    [
        ('{"a": 1, ', '{"a": 2},', True),
        ('{"a": 1', '{"a": 2},', False),  # it may go on as 12, or be 2 in another member of that name
        ('{"a": 1, "b": 1, ', '{"a": 1, "b": 2}, {"a": 2, "b": 1},', True),
        ('{"a": 1, "b": 1, ', '{"a": 1, "b": 2}, {"b": 1, "a": 1},', False),
        ('{"a": 1, ', '{"a": 1}, {"b": 2}, {"a": 3},', False),
        ('{"a": 1.0, "b"', '{"a": 1, "b": 2},', False),
        ('{"z": 1, ', '{"z": 2},', False),  # an undeclared name may come again
        ("[1, ", "[2], [1],", False),
        ("[3, ", "[2], [1],", True),
        ('"a', "1, null,", True),
        ("1", '"1", 2.5,', False),
        ('{"a": [1, 2], "b": "x, y', '{"a": [1]},', True),
    ],
)
def test_an_item_differs_once_a_whole_part_does(begun: str, earlier: str, differs: bool) -> None:
    items = items_of(json.loads(f"[{earlier.rstrip(',')}]"))
    assert differs_from_all(begun.encode(), items, [b"a", b"b"]) == differs
