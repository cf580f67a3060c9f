"""The Rust processor of JSON mode, row by row: its tests, states, biases and names, in Python under the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import espalier
from espalier import JsonModeProcessor, JsonState, Priority
from tests.acceptance.users_documents.rows import rows_of

row = rows_of("json-mode")


def logits(width: int = 257) -> np.ndarray[Any, Any]:
    return np.zeros(width, np.float32)


def after(text: str) -> JsonModeProcessor:
    mode = JsonModeProcessor()
    mode.update_state(text)
    return mode


STATES = {
    "Start": ("", "before any output, { or [ is expected"),
    "ObjectStart": ("{", "inside an object, a key or } is expected"),
    "AfterKey": ('{"key"', "after a key, : is expected"),
    "AfterColon": ('{"key":', "after :, a value is expected"),
    "AfterValue": ('{"key": {}', "after a value, a comma or a closing bracket is expected"),
    "InString": ('{"key": "val', "inside a string"),
    "ArrayStart": ("[", "inside an array, a value or ] is expected"),
    "Done": ("{}", "the document is complete"),
}


@pytest.mark.parametrize(
    ("state", "text"),
    [
        pytest.param(name, text, id=name, marks=row(f"1.{place}", f"`JsonState::{name}`: {meaning}"))
        for place, (name, (text, meaning)) in enumerate(STATES.items(), 1)
    ],
)
def test_a_state(state: str, text: str) -> None:
    assert after(text).current_state() is JsonState(state)
    assert after(text).current_state() == state


@row("2.1", "`JsonModeProcessor::new()` and `Default`: without arguments")
def test_new() -> None:
    assert JsonModeProcessor().current_state() is JsonState.START


@row("2.2", "`current_state()`")
def test_current_state() -> None:
    assert after("[").current_state() is JsonState.ARRAY_START


@row("2.3", "`reset()`: a new generation begins at Start and depth 0 (test `reset_clears_state`)")
def test_reset() -> None:
    mode = after('{"a":1}')
    assert mode.current_state() is JsonState.DONE
    mode.reset()
    assert mode.current_state() is JsonState.START
    assert mode.tracker.depth == 0


@row("2.4", "`apply_biases(&mut logits, text)`: follows the text, then adds biases in place")
def test_apply_biases_follows_and_adds() -> None:
    mode, values = JsonModeProcessor(), logits()
    assert mode.apply_biases(values, '{"a"') is values
    assert mode.current_state() is JsonState.AFTER_KEY
    assert values[ord(":")] == 5.0


@row("2.5", "`update_state(text)`: feeding text piece by piece")
def test_update_state() -> None:
    mode = JsonModeProcessor()
    assert [mode.update_state(piece) for piece in ("{", '"key"', ":")] == ["ObjectStart", "AfterKey", "AfterColon"]


@row("3.1", "Start boosts `{` (123) and `[` (91) by 5.0 (test `bias_boosts_structural_tokens`, 256 logits)")
def test_start() -> None:
    values = logits(256)
    JsonModeProcessor().apply_biases(values, "")
    assert values[123] == values[91] == 5.0
    assert np.count_nonzero(values) == 2


@row("3.2", 'ObjectStart boosts `"` (34) by 5.0 and, in the outermost object, `}` (125) by half of it')
def test_object_start() -> None:
    values = JsonModeProcessor().apply_biases(logits(), "{")
    assert (values[34], values[125]) == (5.0, 2.5)
    inner = JsonModeProcessor().apply_biases(logits(), '{"a":{')
    assert (inner[34], inner[125]) == (5.0, 0.0)


@row("3.3", "AfterKey boosts `:` (58)")
def test_after_key() -> None:
    values = JsonModeProcessor().apply_biases(logits(), '{"a"')
    assert [*np.flatnonzero(values)] == [58]


@row("3.4", "AfterValue boosts `,` (44) and the closing bracket", differs="only the bracket that closes what is open")
def test_after_value() -> None:
    in_object = JsonModeProcessor().apply_biases(logits(), '{"a": ""')
    in_array = JsonModeProcessor().apply_biases(logits(), '[""')
    assert [*np.flatnonzero(in_object)] == [44, 125]
    assert [*np.flatnonzero(in_array)] == [44, 93]


@row("3.5", "Done boosts EOS and penalises content by 0.3 of 10", differs="the vocabulary's EOS, not token 0")
def test_done() -> None:
    values = JsonModeProcessor().apply_biases(logits(), "{}")
    assert values[256] == 5.0
    assert {*values[:256]} == {-3.0}


@row("3.6", "InString, AfterColon: no bias")
def test_no_bias() -> None:
    for text in ('{"a": "b', '{"a":'):
        assert not JsonModeProcessor().apply_biases(logits(), text).any()


@row("3.7", "`bias_token`: an id that the row does not have is left out")
def test_a_short_row() -> None:
    values = logits(100)
    JsonModeProcessor().apply_biases(values, "")
    assert [*np.flatnonzero(values)] == [91]


@row("3.8", "Nothing is forbidden: all biases are finite, invalid outputs stay possible")
def test_all_biases_are_finite() -> None:
    for text, _ in STATES.values():
        assert np.isfinite(JsonModeProcessor().apply_biases(logits(), text)).all()


SIMPLE = (("{", "ObjectStart"), ('"key"', "AfterKey"), (":", "AfterColon"))


@row(
    "4.1",
    'test `state_tracks_simple_json`: `{`, `"key"`, `:`, then `"value"`',
    differs="a string after a colon is a value: AfterValue, not AfterKey, which the document calls simplified",
)
def test_state_tracks_simple_json() -> None:
    mode = JsonModeProcessor()
    for piece, state in SIMPLE:
        assert mode.update_state(piece) == state
    assert mode.update_state('"value"') is JsonState.AFTER_VALUE


@row("4.2", 'test `state_tracks_nested_json`: `{"a":{"b":1}}` is Done')
def test_state_tracks_nested_json() -> None:
    assert after('{"a":{"b":1}}').current_state() is JsonState.DONE


@row("4.3", "test `state_done_after_closing_brace`: `{}` is Done")
def test_state_done_after_closing_brace() -> None:
    assert after("{}").current_state() is JsonState.DONE


@row("4.4", "An escape in a string is part of it", differs='followed exactly, also `\\"`, which the original skips')
def test_escapes() -> None:
    assert after('{"a": "x\\"y').current_state() is JsonState.IN_STRING
    assert after('{"a": "x\\\\"').current_state() is JsonState.AFTER_VALUE


@row("4.5", "Numbers, true, false, null are values", differs="InNumber and InLiteral until they end")
def test_scalars() -> None:
    assert after('{"a": 12').current_state() is JsonState.IN_NUMBER
    assert after('{"a": tru').current_state() is JsonState.IN_LITERAL
    assert after('{"a": true,').current_state() is JsonState.AFTER_COMMA
    assert after("[1, true, null]").current_state() is JsonState.DONE


@row("4.6", "Whitespace and unknown characters leave the state as it is")
def test_what_does_not_fit() -> None:
    assert after('Sure: {  ?\n "a"  ').current_state() is JsonState.AFTER_KEY


@row("5.1", '`name()` is "json_mode"')
def test_name() -> None:
    assert JsonModeProcessor().name == "json_mode"


@row("5.2", "`priority()` is High: before temperature and top-k")
def test_priority() -> None:
    assert JsonModeProcessor().priority is Priority.HIGH


@row(
    "5.3",
    "`process(ctx)` of the trait LogitsProcessor: from the tokens so far",
    differs="`apply(logits, context)` and `on_token(token)` in a FilterChain; each token is followed once",
)
def test_process() -> None:
    chain = espalier.FilterChain([JsonModeProcessor()])
    text: list[int] = []
    for byte in b'{"a"':
        chain.on_token(byte)
        text.append(byte)
    context = espalier.FilterContext(step=len(text), prompt=(), generated=tuple(text))
    assert int(chain.apply(logits(), context).argmax()) == ord(":")


@row(
    "5.4",
    "The three biases: structural 5.0, invalid -10.0 (of which 0.3 count), half for an empty object",
    differs="`structural_bias`, `done_penalty` and `empty_bias` can be set",
)
def test_the_biases_can_be_set() -> None:
    mode = JsonModeProcessor(structural_bias=1.0, empty_bias=0.5, done_penalty=2.0)
    assert mode.apply_biases(logits(), "{")[34] == 1.0
    assert mode.apply_biases(logits(), "}")[65] == -2.0


@pytest.mark.slow
@row("6.1", "For production: tokenizer integration, ids mapped to bytes")
def test_tokenizer_integration(demo_engine: espalier.LoadedEngine) -> None:
    vocab = demo_engine.vocab
    values = JsonModeProcessor(vocab).apply_biases(logits(vocab.width), "")
    boosted = {vocab.bytes_of(int(token)).lstrip()[:1] for token in np.flatnonzero(values)}
    assert boosted == {b"{", b"["}
    assert len(np.flatnonzero(values)) > 2  # tokens that begin so, not two guessed ids


@row("6.2", "For production: the full JSON grammar and a bitset mask over the vocabulary")
def test_the_full_grammar(demo_engine: espalier.LoadedEngine) -> None:
    result = demo_engine.generate(
        "Generate user info", constraint=espalier.JsonObject(), on_budget="close", max_tokens=48
    )
    assert result.verdict.valid
    assert isinstance(result.parsed, dict)


@row("6.3", "The processor makes a model write JSON: SoftJson in a request to an engine")
def test_soft_json_in_a_request(demo_engine: espalier.LoadedEngine) -> None:
    plain = demo_engine.generate("Generate user info", temperature=0, max_tokens=8).text
    soft = demo_engine.generate(
        "Generate user info", soft=[espalier.SoftJson(structural_bias=30)], temperature=0, max_tokens=8
    ).text
    assert soft.lstrip()[:1] in ("{", "[")
    assert soft != plain or plain.lstrip()[:1] in ("{", "[")
