"""How large the logits are comes out of one more answer of the server, and what does not fit is no answer."""

from __future__ import annotations

import numpy as np
import pytest

from espalier.errors import UpstreamError
from espalier.upstream.xray.level import ALONE_OFF, DIVIDED, RAISED, Probe, level_of, probe_of
from tests.xray import reported

HISTORY = [5, 9, 7, 5, 3]
PIECES = [b"a"] * 200


def answered(row, probe, history, *, count=100):
    """llama.cpp's penalties and softmax over `(V,) float32` logits."""
    row = row.astype(np.float32).copy()
    row[probe.token] += np.float32(RAISED)
    for token in set(history[-probe.window :]):
        row[token] = row[token] * np.float32(DIVIDED) if row[token] <= 0 else row[token] / np.float32(DIVIDED)
    probs = np.exp(row - row.max())
    probs = (probs / np.cumsum(probs, dtype=np.float32)[-1]).astype(np.float32)
    best = np.argsort(-probs, kind="stable")[:count]
    return {"top_probs": [{"id": int(one), "prob": float(probs[one])} for one in best]}


@pytest.mark.parametrize("shift", [-40.0, -3.0, 0.0, 12.0, 30.0])
@pytest.mark.parametrize("count", [100, 200])
def test_the_level_is_found_within_what_it_may_be_off(shift, count):
    for seed in range(20):
        row = np.random.default_rng(seed).normal(shift, 3, 200).astype(np.float32)
        row[HISTORY[seed % 5]] = shift + 4
        given = reported(row, count, off=0.0)
        probe = probe_of(given, HISTORY, PIECES)
        assert probe is not None
        found = level_of(answered(row, probe, HISTORY), given, probe, HISTORY)
        assert found is not None
        assert abs(found.value - given.level.value) <= found.off < 1e-3


def test_another_distribution_is_no_answer():
    rows = np.random.default_rng(1).normal(0, 3, (2, 200)).astype(np.float32)
    given, probe = reported(rows[0]), Probe(5, 2)
    assert level_of(answered(rows[1], probe, HISTORY), given, probe, HISTORY) is None
    with pytest.raises(UpstreamError, match="cannot be read"):
        level_of({"top_probs": [{"id": 1}]}, given, probe, HISTORY)


def test_the_raised_token_is_the_best_listed_one_of_the_history_that_ends_whole():
    row = np.zeros(200, dtype=np.float32)
    row[[9, 5, 7]] = 3, 2, 1
    pieces = [b"a"] * 9 + [b"\xc3"] + [b"a"] * 190
    assert probe_of(reported(row, 3), HISTORY, pieces) == Probe(5, 2)
    assert probe_of(reported(row, 3), [8], pieces) is None


@pytest.mark.parametrize("others", [1, 2, 3, 12])
def test_how_far_the_level_may_be_off_is_by_how_far_tokens_tell_others(others):
    row = np.random.default_rng(3).normal(0, 3, 200).astype(np.float32)
    row[5] = 20
    given, probe = reported(row, others + 1, off=0.0), Probe(5, 2)
    answer = answered(row, probe, HISTORY, count=200)
    found = level_of(answer, given, probe, HISTORY)
    assert found.value == pytest.approx(given.level.value, abs=1e-4)
    assert (found.off == 3 * ALONE_OFF) == (others == 1)
    best = int(given.ids[1])
    for one in answer["top_probs"]:
        one["prob"] *= 1.009 if one["id"] == best else 1
    bent = level_of(answer, given, probe, HISTORY)
    off = np.log(1.009) / (1 - 1 / DIVIDED)
    middle = {1: off, 2: off / 2}.get(others, 0.0)
    assert bent.value == pytest.approx(found.value + middle, abs=1e-4)
    assert bent.off == pytest.approx(3 * (off - middle) if others > 1 else 3 * ALONE_OFF, abs=1e-4)
    assert level_of({"top_probs": answer["top_probs"][:1]}, given, probe, HISTORY) is None


def test_no_more_tokens_are_compared_than_decide_it_and_none_that_the_penalty_meets():
    row = np.random.default_rng(4).normal(0, 1, 200).astype(np.float32)
    row[[5, 3]] = 9, 8
    given, probe = reported(row, off=0.0), Probe(5, 2)
    answer = answered(row, probe, HISTORY, count=200)
    listed = given.ids.tolist()
    assert listed[:2] == [5, 3]
    found = level_of(answer, given, probe, HISTORY)
    wrong = {3, *listed[12:]}
    bent = {
        "top_probs": [one | {"prob": one["prob"] * (2 if one["id"] in wrong else 1)} for one in answer["top_probs"]]
    }
    assert level_of(bent, given, probe, HISTORY) == found
    wrong = {listed[11]}
    bent = {
        "top_probs": [one | {"prob": one["prob"] * (2 if one["id"] in wrong else 1)} for one in answer["top_probs"]]
    }
    assert level_of(bent, given, probe, HISTORY) is None


def test_the_position_is_asked_for_with_the_one_penalty_and_nothing_else():
    assert Probe(5, 2).settings() == {
        "samplers": ["penalties"],
        "repeat_last_n": 2,
        "repeat_penalty": DIVIDED,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": [[5, RAISED]],
        "mirostat": 0,
        "temperature": 1.0,
        "post_sampling_probs": True,
    }
