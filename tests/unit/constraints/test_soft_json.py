"""Soft JSON mode: the seed's own behaviour, and each of its faults by name."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler
from espalier.constraints.soft.spec import SOFT_KINDS, SoftJson, SoftSpec
from espalier.errors import SpecError
from espalier.grammar.json_position import JsonPosition, JsonState
from espalier.sampling.filters import Priority
from espalier.tokens.vocab import Vocab
from tests.soft_laws import CONTEXT, biases
from tests.tokenizers import byte_level_vocab, tekken_vocab

BYTES = Compiler(Vocab.bytes())
EOS = 256


def place(text):
    return JsonPosition().feed(text.encode() if isinstance(text, str) else text)


def state(text):
    return place(text).state


def after(text, compiler=BYTES, spec=SoftJson()):  # noqa: B008  # frozen
    """The filter after a text, a token a byte."""
    one = spec.filter(compiler)
    for byte in text.encode() if isinstance(text, str) else text:
        one.on_token(byte)
    return one


def boosted(text):
    """By token of the byte vocabulary, what is added after a text."""
    out = biases(after(text))
    return {chr(i) if i < 256 else "EOS": float(out[i]) for i in np.flatnonzero(out)}


# ---------------------------------------------------------------- the seed's own tests


def test_users_json_state_tracks_simple_json():
    assert state("") == "Start"
    assert state("{") == "ObjectStart"
    assert state('{"key"') == "AfterKey"
    assert state('{"key":') == "AfterColon"
    # The seed says AfterKey here and calls it simplified; a value that has ended is followed by `,` or `}`.
    assert state('{"key":"value"') == "AfterValue"


def test_users_json_state_tracks_nested_json():
    assert state('{"a":{"b":1}}') == "Done"


def test_users_json_state_done_after_closing_brace():
    assert state("{}") == "Done"


def test_users_json_bias_boosts_structural_tokens():
    assert boosted("") == {"{": 5.0, "[": 5.0}
    out = biases(after(""))
    assert out[123] == out[91] == 5.0


def test_users_json_reset_clears_state():
    one = after('{"a":1}')
    assert one.tracker.state == "Done"
    one.rollback(7)
    assert one.tracker.state == "Start"
    assert SoftJson().filter(BYTES).tracker.state == "Start"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", {'"': 5.0, "}": 2.5}),
        ('{"a":{', {'"': 5.0}),  # an empty document is encouraged a little, an empty part of one is not
        ('{"a"', {":": 5.0}),
        ('{"a":', {}),
        ('{"a":1,', {'"': 5.0}),
        ('{"a":"b"', {",": 5.0, "}": 5.0}),
        ('{"a":tru', {}),
        ('{"a":1', {}),
        ('{"a', {}),
    ],
)
def test_what_is_boosted_where(text, expected):
    assert boosted(text) == expected


def test_after_the_document_eos_goes_up_and_all_else_down():
    out = biases(after("{}"))
    assert out[EOS] == 5.0
    assert np.all(out[:256] == -3.0)


# ---------------------------------------------------------------- the seed's faults


def test_fault_double_feeding():
    """The seed reads the whole text again at each step; here each token counts once, and asking changes nothing."""
    one = SoftJson().filter(BYTES)
    for byte in b'{"a":[{"b":"c"}]':
        one.apply(np.zeros(257, dtype=np.float32), CONTEXT)
        one.apply(np.zeros(257, dtype=np.float32), CONTEXT)
        one.on_token(byte)
    assert (one.tracker.state, one.tracker.depth) == ("AfterValue", 1)


def test_fault_string_value_stuck_in_after_key():
    assert state('{"a":"b"}') == "Done"
    assert state('["a"]') == "Done"
    assert state('{"a":"b","c"') == "AfterKey"


def test_fault_escaped_quotes():
    assert state('{"a":"b\\"') == "InString"
    assert state('{"a\\"') == "InKey"
    assert state('["\\\\"') == "AfterValue"
    assert state('["\\u00e9\\ud83c\\udf33"]') == "Done"
    assert state('["\\u00') == "InString"
    assert place('["').fits(b"\\x") is None
    assert state('["\\u12"') == "AfterValue", "what is no escape after all does not hide the end of the string"


def test_fault_ids_that_are_not_ascii_codes():
    vocab = byte_level_vocab()
    out = biases(SoftJson().filter(Compiler(vocab)), vocab.width)
    up = {vocab.bytes_of(i) for i in np.flatnonzero(out)}
    assert {b"{", b"["} <= up
    assert all(data.lstrip()[:1] in (b"{", b"[") for data in up)
    assert vocab.tokens.index(b"{") != 123


def test_fault_numbers_and_literals_in_arrays():
    for text in ("[1", "[-2.5e+10", "[0"):
        assert state(text) == "InNumber"
        assert state(text + ",") == "AfterComma"
        assert state(text + "]") == "Done"
    for text in ("[true", "[1, false", '["a",null'):
        assert state(text) == "AfterValue"
        assert boosted(text) == {",": 5.0, "]": 5.0}
    assert boosted("[") == dict.fromkeys('"{[-0123456789tfn', 5.0) | {"]": 2.5}
    assert boosted("[[") == dict.fromkeys('"{[-0123456789tfn', 5.0)


def test_fault_a_comma_in_an_array_expects_a_value():
    assert (state("[1,"), place("[1,").is_in_object) == ("AfterComma", False)
    assert boosted("[1,") == dict.fromkeys('"{[-0123456789tfn', 5.0)
    assert (state('{"a":1,'), place('{"a":1,').is_in_object) == ("AfterComma", True)
    assert state('[1,"a"') == "AfterValue"
    assert state('{"a":1,"b"') == "AfterKey"
    assert state('{"a":[1,2],"b"') == "AfterKey"


def test_fault_bytes_of_128_and_more_in_strings():
    assert state('{"año":"日本🌳') == "InString"
    assert state('{"año":"日本🌳"}') == "Done"
    assert place('["').fits(bytes(range(128, 256))).state is JsonState.IN_STRING


def test_fault_top_level_scalars():
    for text in ('"a"', "true", " false", "null", "12 ", "-0.5\n"):
        assert state(text) == "Done"
    assert state("12") == "InNumber"
    assert boosted("12") == {"EOS": 5.0}, "it may end and it may go on"
    assert boosted("12.") == {}
    assert not place("12.").is_complete


def test_fault_eos_at_the_end_with_several_eos_ids():
    vocab = Vocab.from_tokens([b"{", b"}", b" ", b"", b"", b""], eos_ids=[4, 3], special_ids={5: "<user>"}, width=8)
    one = SoftJson(structural_bias=4, done_penalty=2).filter(Compiler(vocab))
    one.on_token(0)
    one.on_token(1)
    assert biases(one, 8).tolist() == [-2, -2, -2, 4, 4, -2, 0, 0]  # 6 and 7 are no tokens
    one.on_token(4)
    assert one.tracker.state == "Done"


def test_fault_t_f_n_count_as_whole_literals():
    assert state('{"a":t') == "InLiteral"
    assert state('{"a":tru') == "InLiteral"
    assert state('{"a":true') == "AfterValue"
    assert state('{"a":to') == "AfterColon", "it was another word"
    assert state('[to "b"') == "AfterValue"
    vocab = Vocab.from_tokens([b"t", b" true", b"the", b"nothing", b"null]", b"fal", b"["], eos_ids=[7], width=8)
    one = SoftJson().filter(Compiler(vocab))
    one.on_token(6)
    assert biases(one, 8).tolist() == [5, 5, 0, 0, 5, 5, 5, 0]


def test_fault_a_bracket_of_the_wrong_kind():
    assert boosted('{"a":1 ') == {",": 5.0, "}": 5.0}
    assert boosted("[[1] ") == {",": 5.0, "]": 5.0}
    assert (state('{"a":1]'), place('{"a":1]').depth) == ("AfterValue", 1)
    assert (state("[1}"), place("[1}").depth) == ("AfterValue", 1)


# ---------------------------------------------------------------- tolerance


PROSE = [
    "Sure! ",
    'Here is 1 "object" (true, not null): ',
    "12 apples: ",
    "```json\n",
    "日本",
    "the ",
    "true? ",
    "1. ",
    '"Well" she said ',
    "null-",
]


@pytest.mark.parametrize("prose", PROSE)
def test_prose_before_the_document_is_passed_over(prose):
    assert state(prose) == "Start"
    assert boosted(prose) == {"{": 5.0, "[": 5.0}
    assert state(prose + "{") == "ObjectStart"
    assert state(prose + '{"a": 1}') == "Done"


def test_what_follows_the_document_changes_nothing():
    assert state('{"a": 1}\n```\nThat was {"b":') == "Done"


def test_unknown_bytes_leave_the_place_as_it_is():
    for text in ("{", '{"a"', '{"a":', '{"a":1 ', "[", "[1,", '{"a":1,'):
        assert state(text + "?x ") == state(text)
    assert state("[1,]") == state('{"a":1,}') == "Done", "a closer after a comma closes, and is never boosted"


def test_a_token_counts_by_its_first_byte_after_whitespace_if_the_rest_fits():
    tokens = [b"{", b" {", b"\n\t[", b'{"', b"{}", b"{,", b"{ a", b"[[", b"[1", b"[}", b"{}\n", b"{}}", b" ", b"a{"]
    vocab = Vocab.from_tokens([*tokens, b""], eos_ids=[len(tokens)])
    out = biases(SoftJson().filter(Compiler(vocab)), vocab.width)
    assert [tokens[i] for i in np.flatnonzero(out == 5)] == [b"{", b" {", b"\n\t[", b'{"', b"{}", b"[[", b"[1", b"{}\n"]
    assert np.count_nonzero(out) == 8


def test_how_deep_a_token_closes_is_looked_at_and_no_deeper():
    tokens = [b"[", b"]]]", b"]]", b"]}", b"]", b",", b'{"a":', b"1"]
    vocab = Vocab.from_tokens([*tokens, b""], eos_ids=[8])

    def up(*spelled):
        one = SoftJson().filter(Compiler(vocab))
        for token in spelled:
            one.on_token(tokens.index(token))
        return {tokens[i] for i in np.flatnonzero(biases(one, 9))}

    assert up(b"[", b"[", b"1", b",", b"1", b"]") == {b"]", b","}
    assert up(*[b"["] * 5, b"1", b"]") == {b"]]]", b"]]", b"]", b","}
    assert up(b'{"a":', b"[", b"[", b"1", b"]") == {b"]}", b"]", b","}
    assert up(*[b"["] * 3, b'{"a":', *[b"["] * 4, b"1", b"]") == {b"]]]", b"]]", b"]", b","}


def test_a_hundred_thousand_open_brackets_are_no_trouble():
    one = after("[" * 100_000)
    assert one.fork().tracker.depth == 100_000
    assert biases(one)[ord("]")] == 0
    one.rollback(99_999)
    assert biases(one)[ord("]")] == 2.5


# ---------------------------------------------------------------- the filter


def test_over_a_hundred_thousand_tokens():
    vocab = tekken_vocab()
    one = SoftJson().filter(Compiler(vocab))
    out = biases(one, vocab.width)
    assert {b"{", b"[", b' {"'} <= {vocab.bytes_of(i) for i in np.flatnonzero(out)}
    one.on_token(vocab.tokens.index(b"{}"))
    out = biases(one, vocab.width)
    assert np.all(out[list(vocab.eos_ids)] == 5)
    assert np.all(out[~vocab.real_ids] == 0)


def test_rolling_back_more_than_there_was_is_refused():
    one = after("{")
    with pytest.raises(ValueError, match="cannot undo 2 of 1"):
        one.rollback(2)
    one.rollback(0)
    assert one.tracker.state == "ObjectStart"


def test_it_is_a_filter_of_high_priority():
    one = SoftJson().filter(BYTES)
    assert (one.name, one.priority) == ("json_mode", Priority.HIGH)


def test_an_infinite_logit_stays_one():
    logits = np.full(257, -np.inf, dtype=np.float32)
    logits[65] = 1.0
    out = SoftJson().filter(BYTES).apply(logits, CONTEXT)
    assert np.flatnonzero(out > -np.inf).tolist() == [65]


# ---------------------------------------------------------------- the spec


@given(*[st.floats(0, 1e6) | st.integers(0, 10)] * 3)
def test_the_spec_round_trips(structural, empty, done):
    spec = SoftJson(structural_bias=structural, empty_bias=empty, done_penalty=done)
    assert SoftSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert hash(spec) == hash(dataclasses.replace(spec))


def test_the_defaults_are_the_seed_s():
    assert SoftJson().to_json() == {"kind": "soft_json", "structural_bias": 5.0, "empty_bias": 2.5, "done_penalty": 3.0}
    assert SoftSpec.from_json({"kind": "soft_json"}) == SoftJson()


@pytest.mark.parametrize("name", ["structural_bias", "empty_bias", "done_penalty"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, True, "5", None, 10**400, 1e7])
def test_a_number_out_of_its_range_names_its_field(name, value):
    with pytest.raises(SpecError) as caught:
        SoftJson(**{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "kind"),
        ("soft_json", "kind"),
        ({"kind": "json_object"}, "kind"),
        ({"kind": ["soft_json"]}, "kind"),
        ({"kind": "soft_json", "bias": 1}, "bias"),
        ({"kind": "soft_json", "empty_bias": "much"}, "empty_bias"),
    ],
)
def test_what_is_no_soft_spec_names_the_field(data, field):
    with pytest.raises(SpecError) as caught:
        SoftSpec.from_json(data)
    assert caught.value.field == field


def test_every_kind_is_that_of_its_class():
    for kind in SOFT_KINDS:
        assert SOFT_KINDS.load(kind).spec.kind == kind
