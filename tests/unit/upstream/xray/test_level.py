"""How large the logits are comes out of one more answer of the server, and what does not fit is no answer."""

from __future__ import annotations

import numpy as np
import pytest

from espalier.errors import UpstreamError
from espalier.upstream.xray.level import DIVIDED, RAISED, Probe, level_of, probe_of
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
