"""The samplers against transformers' processors at the same settings; and where the two fields differ."""

import numpy as np
import pytest

from espalier.sampling.samplers import penalties, truncations
from espalier.sampling.samplers import temperature as heat
from espalier.sampling.samplers.context import count_window

torch = pytest.importorskip("torch")
process = pytest.importorskip("transformers.generation.logits_process")

WIDTHS = (32, 1000, 32000)


def run(processor, row, history=(0,)):
    ids = torch.tensor([list(history)], dtype=torch.int64)
    return processor(ids, torch.from_numpy(row[None].copy()))[0].numpy()


def rows(width):
    rng = np.random.default_rng(width)
    for scale in (1.0, 4.0):
        yield (rng.standard_normal(width) * scale).astype(np.float32)
    banned = (rng.standard_normal(width) * 3).astype(np.float32)
    banned[rng.random(width) < 0.3] = -np.inf
    yield banned


def assert_same(ours, other, row):
    both = (ours > -np.inf) & (other > -np.inf)
    assert np.allclose(ours[both], other[both], rtol=1e-5, atol=1e-5)
    differing = (ours > -np.inf) != (other > -np.inf)
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    assert float(weights[differing].sum() / weights.sum()) < 1e-3  # an edge, where float32 sums are rounded


CASES = {
    "temperature": (lambda row: heat.temperature(row, 0.6), lambda: process.TemperatureLogitsWarper(0.6)),
    "top_k": (lambda row: truncations.top_k(row, 17), lambda: process.TopKLogitsWarper(17)),
    "top_p": (lambda row: truncations.top_p(row, 0.8), lambda: process.TopPLogitsWarper(0.8)),
    "top_p min_keep": (
        lambda row: truncations.top_p(row, 0.05, 9),
        lambda: process.TopPLogitsWarper(0.05, min_tokens_to_keep=9),
    ),
    "min_p": (lambda row: truncations.min_p(row, 0.1), lambda: process.MinPLogitsWarper(0.1)),
    "min_p min_keep": (
        lambda row: truncations.min_p(row, 0.9, 9),
        lambda: process.MinPLogitsWarper(0.9, min_tokens_to_keep=9),
    ),
    "typical_p": (lambda row: truncations.typical_p(row, 0.6), lambda: process.TypicalLogitsWarper(0.6)),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_each_sampler_equals_transformers(name, width):
    ours, theirs = CASES[name]
    for row in rows(width):
        assert_same(ours(row), run(theirs(), row), row)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_the_repetition_penalty_equals_transformers(penalty, width):
    for row in rows(width):
        history = [int(i) for i in np.random.default_rng(1).integers(0, width, 50)]
        seen, said = count_window(history, 0, -1)
        ours = penalties.penalties(row, penalty, 0.0, 0.0, seen, said)
        assert np.array_equal(ours, run(process.RepetitionPenaltyLogitsProcessor(penalty), row, history))


@pytest.mark.parametrize("seed", range(20))
def test_sequences_of_them_equal_transformers(seed):
    rng = np.random.default_rng(seed)
    row = (rng.standard_normal(1000) * 3).astype(np.float32)
    ours = other = row
    for name in rng.permutation(list(CASES)):
        mine, theirs = CASES[name]
        ours, other = mine(ours), run(theirs(), other)
    assert_same(ours, other, row)


def test_difference_transformers_keeps_ties_at_the_edge_of_top_k():
    row = np.array([1, 0, 0, 0], dtype=np.float32)
    assert int((truncations.top_k(row, 2) > -np.inf).sum()) == 2
    assert int((run(process.TopKLogitsWarper(2), row) > -np.inf).sum()) == 4


def test_difference_transformers_keeps_the_last_of_tied_tokens_in_top_p():
    row = np.zeros(4, dtype=np.float32)
    assert np.flatnonzero(truncations.top_p(row, 0.3) > -np.inf).tolist() == [0, 1]
    assert np.flatnonzero(run(process.TopPLogitsWarper(0.3), row) > -np.inf).tolist() != [0, 1]


def test_difference_transformers_keeps_all_that_are_as_typical_as_the_last():
    row = np.zeros(4, dtype=np.float32)
    assert int((truncations.typical_p(row, 0.3) > -np.inf).sum()) == 2
    assert int((run(process.TypicalLogitsWarper(0.3), row) > -np.inf).sum()) == 4
