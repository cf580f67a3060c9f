"""JSON mode against llguidance's JSON, byte by byte, and its options as a user meets them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import espalier
from benchmarks.schema.llguidance_peer import ESCAPES
from benchmarks.schema.peers import llguidance_alone
from espalier.errors import SpecError
from espalier.tokens import mask as masks
from tests.examples import examples

VOCAB = espalier.Vocab.bytes()
OURS = espalier.compile(espalier.JsonObject())
THEIRS = llguidance_alone(escapes=ESCAPES)({"type": "object"})
DEL = 0x7F  # RFC 8259 lets it stand in strings; llguidance does not
PLAIN = st.text(st.characters(min_codepoint=32, exclude_characters='"\\\x7f', exclude_categories=("Cs",)), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6).map(lambda v: round(v, 3)) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(PLAIN, VALUES, max_size=3), st.booleans())
@settings(max_examples=examples(60))
def test_the_masks_of_json_mode_equal_llguidances_at_every_byte(value, compact):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)
    ours, theirs = OURS.matcher(), THEIRS.matcher()
    for byte in text.encode():
        mine, his = masks.unpack(ours.mask(), VOCAB.width).copy(), masks.unpack(theirs.mask(), VOCAB.width)
        mine[DEL] = his[DEL]
        assert np.array_equal(mine, his), (np.flatnonzero(mine & ~his), np.flatnonzero(his & ~mine))
        ours.advance(byte)
        theirs.advance(byte)
    assert ours.is_accepting
    assert theirs.is_accepting


@pytest.mark.parametrize(
    ("options", "accepted", "refused"),
    [
        ({}, ["{}", '{"a": [1]}'], ["[]", "1", "null"]),
        ({"kinds": ["array", "null"]}, ["[]", "null", '[{"a":1}]'], ["{}", "1"]),
        ({"kinds": "string"}, ['"x"'], ["{}"]),
        ({"max_depth": 1}, ['{"a": 1}'], ['{"a": {}}']),
        ({"whitespace": "compact"}, ['{"a":1}'], ['{"a": 1}']),
        ({"whitespace": "flexible"}, ['{ "a" :\n1 }'], ['{"a":' + " " * 50 + "1}"]),
        ({"whitespace": "indented"}, ['{\n  "a": 1\n}', "{}"], ['{"a": 1}', '{\n "a": 1\n}']),
        ({"whitespace": "indented", "indent": 4}, ['{\n    "a": [\n        1\n    ]\n}'], ['{\n  "a": 1\n}']),
    ],
)
def test_the_options_of_json_mode(options, accepted, refused):
    compiled = espalier.compile(espalier.JsonObject(**options))
    assert all(compiled.accepts(text) for text in accepted)
    assert not any(compiled.accepts(text) for text in refused)


@pytest.mark.parametrize(
    "options", [{"kinds": []}, {"kinds": ["map"]}, {"max_depth": 0}, {"indent": True}, {"max_depth": 1.5}]
)
def test_an_option_of_json_mode_out_of_its_range_is_refused(options):
    with pytest.raises(SpecError, match=next(iter(options))):
        espalier.JsonObject(**options)


def test_json_mode_is_closed_by_its_shortest_completion_wherever_it_was_left():
    text = '{"a": [true, {"b": "x\\u00e9'
    matcher = OURS.matcher()
    for byte in text.encode():
        matcher.advance(byte)
        completion = bytes(matcher.shortest_completion()[:-1])
        done = matcher.fork()
        for token in matcher.shortest_completion():
            done.advance(token)
        assert done.is_finished
    json.loads(text.encode() + completion)
