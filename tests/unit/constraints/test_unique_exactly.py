"""Arrays of a few unique items: every mask holds exactly the tokens that lead to a valid document."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

import pytest

from espalier import JsonSchema, Vocab
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.tokens import mask as masks
from tests.oracle import validator
from tests.unit.constraints.test_unique_items import BYTES, SWITCH, unique

FINITE = {
    "integers": unique({"type": "integer", "minimum": 8, "maximum": 17}, minItems=1, maxItems=2),
    "strings": unique({"type": "string", "pattern": "^[ab]{0,3}$"}, maxItems=2),
    "all strings": unique({"type": "string", "pattern": "^[a-c]{1,2}$|^x$"}, minItems=1, maxItems=2),
    "objects": unique(SWITCH, minItems=2, maxItems=3),
    "arrays": unique({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, maxItems=2),
    "unique arrays": unique(unique({"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8]}, minItems=1, maxItems=2), minItems=2,
                            maxItems=2) | {"items": unique({"enum": list(range(9))}, maxItems=1)},
    "halves": unique({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 1}, minItems=2, maxItems=2),
    "first items": {"type": "array", "prefixItems": [{"type": "string", "pattern": "^[ab]{1,2}$"},
                                                     {"enum": ["a", "b"]}, {"enum": ["a", "ab"]}],
                    "items": False, "minItems": 3, "uniqueItems": True},
    "constants": unique({"enum": [1, 2, "1", "2", [1], [2], {"a": 1}, {"a": 2}, None, True]}, minItems=1, maxItems=2),
    "contains": unique({"type": "integer", "minimum": 1, "maximum": 12}, maxItems=2, contains={"minimum": 12}),
    "eight values and null": unique({"anyOf": [{"enum": list("abcdefgh")}, {"type": "null"}]}, maxItems=2),
    "strings of one end": unique({"type": "string", "pattern": "^[ab]x$"}, maxItems=2),
    "one option unique": {"anyOf": [unique({"type": "integer", "minimum": 0, "maximum": 12}, maxItems=2),
                                    {"const": "a"}]},
}  # fmt: skip


def _texts(made: Compiled, text: bytes, matcher: Matcher) -> Iterator[bytes]:
    if matcher.is_accepting:
        yield text
    for byte in masks.allowed_ids(matcher.mask(), made.vocab.width).tolist():
        if byte < 256:
            ahead = matcher.fork()
            ahead.advance(byte)
            yield from _texts(made, text + bytes((byte,)), ahead)


def pieces_of(texts: Iterable[bytes], rng: random.Random) -> list[bytes]:
    """Some pieces of several bytes."""
    pieces: set[bytes] = set()
    for text in rng.choices(sorted(texts), k=60):
        begin = rng.randrange(len(text))
        pieces.add(text[begin : begin + rng.randint(2, 7)])
    return sorted(piece for piece in pieces if len(piece) > 1)


@pytest.mark.parametrize("name", FINITE)
def test_every_mask_is_exactly_what_leads_to_a_valid_document(name: str) -> None:
    """Over tokens of one byte, and some pieces of valid and invalid documents."""
    spec = JsonSchema(FINITE[name], whitespace="compact")
    made = BYTES.compile(spec)
    assert isinstance(made, CompiledUniqueItems)
    valid = validator(FINITE[name])
    every = {text: valid(json.loads(text)) for text in _texts(made.inner, b"", made.inner.matcher())}
    good = {text for text, is_good in every.items() if is_good}
    assert good
    assert {text for text in every if made.accepts(text)} == good
    assert len(good) < len(every)
    begun = {text[:end] for text in good for end in range(len(text) + 1)}
    tokens = [*(bytes((byte,)) for byte in range(256)), *pieces_of(every, random.Random(name))]
    compiled = Compiler(Vocab.from_tokens([*tokens, b""], eos_ids=[len(tokens)])).compile(spec)
    level, met = [(b"", compiled.matcher())], {b""}
    while level:
        text, matcher = level.pop()
        allowed = masks.allowed_ids(matcher.mask(), compiled.vocab.width).tolist()
        following = [token for token, piece in enumerate(tokens) if text + piece in begun]
        assert [token for token in allowed if token < len(tokens)] == following, text
        assert matcher.is_accepting == (text in good)
        assert text + compiled.vocab.decode(matcher.shortest_completion()) in good
        for token in following:
            longer = text + tokens[token]
            if longer not in met:
                met.add(longer)
                ahead = matcher.fork()
                ahead.advance(token)
                level.append((longer, ahead))
