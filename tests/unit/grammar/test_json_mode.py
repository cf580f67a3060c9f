"""JSON mode against the json module, both ways."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import SpecError
from espalier.grammar.check import validate
from espalier.grammar.json_mode import KINDS, json_grammar
from espalier.grammar.sample import sample
from tests.unit.grammar.oracle import Recogniser

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ANY = {kind: Recogniser(json_grammar(whitespace=kind)) for kind in ("natural", "compact", "flexible", "indented")}


def depth(value):
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES, st.booleans())
def test_what_json_writes_is_accepted(value, ascii_only):
    natural = json.dumps(value, ensure_ascii=ascii_only)
    compact = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    indented = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    assert ANY["natural"].accepts(natural)
    assert ANY["natural"].accepts(compact)
    assert ANY["compact"].accepts(compact)
    assert ANY["indented"].accepts(indented)
    assert all(ANY["flexible"].accepts(text) for text in (natural, compact, indented))


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(ANY)), st.none() | st.integers(1, 4))
def test_what_is_sampled_is_json_within_its_depth(random, whitespace, max_depth):
    text = sample(json_grammar(whitespace=whitespace, max_depth=max_depth), random, max_size=80)
    value = json.loads(text)
    if max_depth is not None:
        assert depth(value) <= max_depth
    text.encode()  # lone surrogates cannot be written, in escapes either
    json.dumps(value, ensure_ascii=False).encode()


@given(st.lists(st.sampled_from(KINDS), min_size=1), VALUES)
def test_only_the_kinds_asked_for_are_documents(kinds, value):
    names = {dict: "object", list: "array", str: "string", int: "number", bool: "boolean", type(None): "null"}
    accepted = Recogniser(json_grammar(kinds=kinds)).accepts(json.dumps(value))
    assert accepted == (names[type(value)] in kinds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nul",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "--1",
        "0x1",
        "NaN",
        "Infinity",
        '"',
        '"a',
        '"\\x"',
        '"\\u12"',
        '"\t"',
        '"\x00"',
        '"\\ud800"',
        '"\\udc00"',
        '"\\ud800\\u0041"',
        "[1,]",
        "[,1]",
        "[1 2]",
        '{"a"}',
        '{"a":}',
        "{a:1}",
        '{"a":1,}',
        "{,}",
        "[1]]",
        "tru e",
        "'a'",
        '{"a" "b"}',
        "[1,  2]",
        '{"a":  1}',
        " 1",
        "1 ",
    ],
)
def test_what_is_not_json_is_refused(text):
    assert not ANY["natural"].accepts(text)
    if text.strip() == text and "  " not in text:
        assert not ANY["flexible"].accepts(text)


@pytest.mark.parametrize(
    "text", ['"\\ud83d\\ude00"', '"\\uD83D\\uDE00"', '"😀"', "-0.5e-10", '"\\/\\b\\f"', "[[],{}]", "1E5"]
)
def test_what_is_json_is_accepted(text):
    assert ANY["natural"].accepts(text)


def test_a_depth_limit_is_exact():
    limited = Recogniser(json_grammar(max_depth=2))
    assert limited.accepts('[{"a": 1}]')
    assert not limited.accepts('[{"a": []}]')


def test_whitespace_has_an_end():
    assert ANY["flexible"].accepts("[" + " " * 40 + "]")
    assert not ANY["flexible"].accepts("[" + " " * 41 + "]")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kinds": []}, "kinds"),
        ({"kinds": ["map"]}, "kinds"),
        ({"whitespace": "wide"}, "whitespace"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_depth": 10**6}, "max_depth"),
        ({"indent": -1}, "indent"),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(options, field):
    with pytest.raises(SpecError) as caught:
        json_grammar(**options)
    assert caught.value.field == field


def test_every_variant_passes_the_checks():
    for whitespace in ANY:
        for max_depth in (None, 1, 5):
            validate(json_grammar(whitespace=whitespace, max_depth=max_depth))
