"""Masks where a token ends a string, an escape and an item at once: each agrees with what may come."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.tokens import mask as masks
from tests.examples import examples

PUNCTUATED = Vocab(
    tokens=(
        b"",
        *(bytes((byte,)) for byte in range(256)),
        *(bytes(pair) for pair in product(b'"\\,a1', repeat=2)),
        *(bytes(three) for three in product(b'"\\,a1', repeat=3)),
        *(b'"]', b'\\"]', b'{"a":', b'"},{"a":"', b"],[", b"null", b",null", b"e1", b"1e", b".0"),
    ),
    eos_ids=(0,),
    special_texts={0: "<end>"},
    width=417,
)
"""Pieces that end strings, escapes and items at once."""


@pytest.mark.parametrize(
    "items",
    [
        {"type": "string"},
        {"type": ["string", "integer"]},
        {"type": ["null", "boolean", "integer"]},
        {"type": "number"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": ["string", "object"], "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"enum": ["a", "aa", 1, 11, None]},
        {},
    ],
    ids=str,
)
def test_a_mask_allowed_a_repeated_string_that_a_token_ended_after_a_backslash(items: dict) -> None:
    rng, compiled = (
        Random(5),
        Compiler(PUNCTUATED).compile(JsonSchema({"type": "array", "items": items, "uniqueItems": True})),
    )
    begun = b'["a\\\\","a\\'
    marks = [token for token, data in enumerate(PUNCTUATED.tokens) if any(byte in b'"\\,]}' for byte in data)]
    for count in range(examples(40)):
        matcher = compiled.matcher()
        for byte in begun if count == 0 and compiled.accepts(begun + b'b"]') else b"":
            matcher.advance(byte + 1)
        for _ in range(12):
            mask = matcher.mask()
            for token in marks if count == 0 else rng.sample(marks, 60):
                assert masks.test(mask, token) == matcher.allows(token), PUNCTUATED.tokens[token]
            longer = [
                token
                for token in masks.allowed_ids(mask, PUNCTUATED.width).tolist()
                if PUNCTUATED.tokens[token].strip(b" \t\r\n")
            ]
            likely = [token for token in longer if len(PUNCTUATED.tokens[token]) > 1 or token - 1 in b'"\\,a1[]{}']
            if not likely:
                break
            matcher.advance(rng.choice(likely))


WHOLE = (
    b"[1,1",
    b"[1,1]",
    b"[1,2",
    b"[1,2]",
    b'["a","a"',
    b'["a","b"',
    b'["a","a"]',
    b"],[1,1",
    b"],[1,2]",
    b':["a","a"',
)
LISTS = Vocab(
    tokens=(b"", *(bytes((byte,)) for byte in range(256)), *WHOLE),
    eos_ids=(0,),
    special_texts={0: "<end>"},
    width=257 + len(WHOLE),
)
"""Tokens with several items of an array that opens in them."""
REPEATED = (b"[1,1]", b'["a","a"', b'["a","a"]', b':["a","a"')


@pytest.mark.parametrize("items", [{"type": "integer"}, {"type": "string"}, {}], ids=str)
@pytest.mark.parametrize("before", [b"", b"[", b'{"a"', b'{"a":', b"[[3]", b"[[3,4"], ids=str)
def test_a_token_that_opens_an_array_and_repeats_an_item_in_it_is_refused(items: dict, before: bytes) -> None:
    unique = {"type": "array", "items": items, "uniqueItems": True}
    schema = {"anyOf": [unique, {"type": "array", "items": unique}, {"type": "object", "properties": {"a": unique}}]}
    compiled = Compiler(LISTS).compile(JsonSchema(schema, whitespace="compact"))
    matcher = compiled.matcher()
    for byte in before:
        if not matcher.allows(byte + 1):
            return
        matcher.advance(byte + 1)
    mask = matcher.mask()
    for token, data in enumerate(LISTS.tokens):
        assert masks.test(mask, token) == matcher.allows(token), data
        assert not (data in REPEATED and masks.test(mask, token)), data
