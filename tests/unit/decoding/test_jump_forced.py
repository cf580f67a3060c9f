"""What a schema's matcher says is forced, against a walk over masks byte by byte; asking changes nothing."""

from __future__ import annotations

from random import Random

import pytest

from espalier import JsonSchema, Vocab
from espalier.automata.ends.forced import FORCED_BYTES
from espalier.constraints.compiler import Compiler
from espalier.tokens import mask as masks

SCHEMAS = (
    {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": ["xx", "xxy", "xz"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 12}, "c": {"const": "é日本"}},
        "required": ["c"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": [1, 10, 100, 'x"y']}, "minItems": 2, "maxItems": 3},
    {"type": "string", "pattern": "^ab{2,4}c$"},
    {"enum": ["ññ", "ñá", None]},
    {"const": "x" * (FORCED_BYTES + 50)},
)


def walked(matcher, vocab):
    """The bytes that are the only ones allowed, one after another, until the text may end."""
    probe, data = matcher.fork(), bytearray()
    while len(data) < FORCED_BYTES and not probe.is_accepting:
        first = {vocab.bytes_of(int(token))[0] for token in masks.allowed_ids(probe.mask(), vocab.width)}
        if len(first) != 1:
            break
        data += bytes(first)
        probe.advance(data[-1])
    return bytes(data)


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("place", range(len(SCHEMAS)))
def test_what_is_forced_is_what_the_masks_leave(place, whitespace):
    vocab = Vocab.bytes()
    compiled = Compiler(vocab).compile(JsonSchema(SCHEMAS[place], whitespace=whitespace))
    random = Random(place)
    for _ in range(3):
        matcher = compiled.matcher()
        for _ in range(25):
            before = matcher.mask().tobytes()
            forced = matcher.forced()
            assert vocab.decode(forced) == (b"" if matcher.is_finished else walked(matcher, vocab))
            assert matcher.mask().tobytes() == before
            allowed = masks.allowed_ids(matcher.mask(), vocab.width)
            if not len(allowed):
                break
            matcher.advance(int(random.choice(list(allowed))))
