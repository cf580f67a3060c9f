"""`JsonModeProcessor` over texts: `update_state`, `current_state`, `apply_biases`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import espalier
from espalier import JsonModeProcessor, JsonState
from espalier.errors import InputError

CONTEXT = espalier.FilterContext(step=0, prompt=(), generated=())
TEXT = json.dumps({"a": [1, -2.5e3, 'x\\" é', True, None], "b": {}, "c": []}, ensure_ascii=False)


def test_the_text_gives_what_the_tokens_give() -> None:
    """The oracle is the filter as a chain runs it, byte by byte."""
    by_text, by_token = JsonModeProcessor(), JsonModeProcessor(espalier.Vocab.bytes())
    seen = b""
    for byte in TEXT.encode():
        row = np.zeros(257, np.float32)
        given = seen.decode(errors="ignore") if byte < 0x80 else ""
        seen = b"" if given else seen
        assert by_text.apply_biases(row, given) is row
        assert np.array_equal(row, by_token.apply(np.zeros(257, np.float32), CONTEXT)) or seen
        by_token.on_token(byte)
        seen += bytes([byte])
    by_text.update_state(seen.decode())
    assert by_text.current_state() is by_token.current_state() is JsonState.DONE


@pytest.mark.parametrize("cut", range(0, len(TEXT) + 1, 3))
def test_pieces_of_any_length_lead_to_one_state(cut: int) -> None:
    whole, pieces = JsonModeProcessor(), JsonModeProcessor()
    whole.update_state(TEXT)
    pieces.update_state(TEXT[:cut])
    assert pieces.update_state(TEXT[cut:]) is whole.current_state() is JsonState.DONE


def test_a_call_is_taken_back_as_one_step() -> None:
    mode = JsonModeProcessor()
    mode.update_state('{"a"')
    mode.update_state("")
    mode.update_state(": [")
    mode.rollback(1)
    assert mode.current_state() is JsonState.AFTER_KEY
    fork = mode.fork()
    fork.update_state(":")
    assert mode.current_state() is JsonState.AFTER_KEY
    mode.reset()
    assert mode.current_state() is JsonState.START


@pytest.mark.parametrize("width", [1, 91, 92, 200, 256, 257, 1000])
@pytest.mark.parametrize("text", ["", "{}", '{"a"'])
def test_rows_of_other_widths_are_biased_as_far_as_they_go(width: int, text: str) -> None:
    whole = JsonModeProcessor().apply_biases(np.zeros(257, np.float32), text)
    row = JsonModeProcessor().apply_biases(np.zeros(width, np.float32), text)
    assert np.array_equal(row[:257], whole[:width])
    assert not row[257:].any()


def test_a_list_is_changed_in_place() -> None:
    row: Any = [0.0] * 257
    assert JsonModeProcessor().apply_biases(row, "{") is row
    assert row[ord('"')] == 5.0
    assert row[ord("}")] == 2.5


def test_a_tokenizer_boosts_every_token_that_begins_so(demo_engine: espalier.LoadedEngine) -> None:
    vocab = demo_engine.vocab
    row = JsonModeProcessor(vocab).apply_biases(np.zeros(vocab.width, np.float32), '{"a"')
    boosted = {vocab.bytes_of(int(token)).lstrip()[:1] for token in np.flatnonzero(row)}
    assert boosted == {b":"}


WRONG: dict[str, tuple[Any, Any]] = {
    "two rows": (np.zeros((2, 257), np.float32), ""),
    "whole numbers": (np.zeros(257, np.int64), ""),
    "no numbers": (["x"], ""),
    "nothing": (None, ""),
    "no text": (np.zeros(257, np.float32), b"{"),
}


@pytest.mark.parametrize(("row", "text"), WRONG.values(), ids=WRONG)
def test_what_is_no_row_or_no_text_is_refused_and_changes_nothing(row: Any, text: Any) -> None:
    mode = JsonModeProcessor()
    with pytest.raises(InputError):
        mode.apply_biases(row, text)
    assert mode.current_state() is JsonState.START


def test_a_row_that_cannot_be_written_is_refused() -> None:
    row = np.zeros(257, np.float32)
    row.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        JsonModeProcessor().apply_biases(row, "")
