"""Whole distributions beside a trace: how exact they are, and files that are missing, foreign or broken."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import espalier
from espalier.errors import InputError, OutputError
from espalier.trace.records import Trace
from espalier.trace.sidecar import beside, distribution
from tests.traces import sample_trace


def softmax(row):
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    return weights / weights.sum()


@pytest.fixture(scope="module")
def full():
    """A run of a random model, at level full."""
    with espalier.load("fake") as engine:
        return engine.generate(
            "hi", constraint=espalier.Regex(r"[0-9]{6} [a-z]{6}"), temperature=1.3, seed=7, trace="full"
        ).trace


@pytest.mark.parametrize("scale", [1.0, 3.0, 8.0])
def test_probabilities_are_as_exact_as_half_precision_is(scale):
    rng = np.random.default_rng(int(scale))
    for shift in (0.0, 40.0, -300.0):
        row = (rng.standard_normal(50_000) * scale + shift).astype(np.float32)
        p, found = softmax(row), distribution(row, None).probs()
        down = float(row.max()) - row.astype(np.float64)
        bound = np.exp((down + float(p @ down)) / 2048) - 1
        tall = p > 1e-12
        assert bool((np.abs(found[tall] / p[tall] - 1) <= bound[tall] + 1e-6).all())
        likely = p > 1e-4
        if likely.any():
            assert float(np.abs(found[likely] / p[likely] - 1).max()) < 0.005
    assert float(np.abs(distribution(row, None).probs().sum() - 1)) < 1e-12


def test_what_is_impossible_or_out_of_range_has_no_probability():
    row = np.array([3.0, -np.inf, -1e9, 1.0], dtype=np.float32)
    found = distribution(row, np.array([True, False, True, False]))
    assert found.probs().tolist() == [
        pytest.approx(softmax(row)[0], rel=2e-3),
        0.0,
        0.0,
        pytest.approx(0.1192, rel=1e-2),
    ]
    assert found.allowed().tolist() == [True, False, True, False]
    assert found.top == 3.0


def test_a_saved_trace_comes_back_with_every_distribution(full, tmp_path):
    path = tmp_path / "run.json"
    full.save(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.json", "run.npz"]
    with np.load(tmp_path / "run.npz", allow_pickle=False) as found:
        count, width = len(full.steps), 257
        assert (found["logits"].shape, found["logits"].dtype) == ((count, width), np.float16)
        assert (found["masks"].shape, found["masks"].dtype) == ((count, (width + 31) // 32), np.int32)
    again = Trace.load(path)
    assert again == full
    for one, two in zip(again.steps, full.steps, strict=True):
        assert np.array_equal(one.distribution.logits, two.distribution.logits)
        assert np.array_equal(one.distribution.mask, two.distribution.mask)
        assert one.distribution.top == two.distribution.top
        # The sidecar alone gives the step's numbers again.
        p, inside = one.distribution.probs(), one.distribution.allowed()
        assert int(inside.sum()) == one.allowed_count
        assert float(p[inside].sum()) == pytest.approx(math.exp(-one.tax_nats), rel=2e-2)
        assert p[one.token_id] == pytest.approx(math.exp(one.logprob), rel=1e-2)


def test_no_distribution_is_in_the_json_or_in_a_comparison(full):
    text = json.dumps(full.to_json())
    assert "distribution" not in text
    bare = dataclasses.replace(full, steps=tuple(dataclasses.replace(step, distribution=None) for step in full.steps))
    assert bare == full
    assert "float16" not in repr(full)


def test_a_trace_without_its_sidecar_or_from_before_there_was_one_is_read_all_the_same(full, tmp_path):
    path = tmp_path / "run.json"
    full.save(path)
    beside(path).unlink()
    again = Trace.load(path)
    assert again == full
    assert all(step.distribution is None for step in again.steps)
    old = sample_trace(12).to_json()
    del old["metadata"]["level"]
    for step in old["steps"]:
        del step["was_changed"], step["rule"]
    path.write_text(json.dumps(old))
    found = Trace.load(path)
    assert found.level == "steps"
    assert found.changed_steps == sample_trace(12).changed_steps


def test_only_json_of_a_full_trace_has_a_sidecar(full, tmp_path):
    full.save(tmp_path / "run.html")
    sample_trace(12).save(tmp_path / "other.json")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other.json", "run.html"]


def test_a_sidecar_of_another_trace_or_no_sidecar_at_all_is_refused(full, tmp_path):
    path = tmp_path / "run.json"
    full.save(path)
    with np.load(beside(path)) as found:
        rows = dict(found)
    rows["tokens"] = rows["tokens"] + 1
    np.savez_compressed(beside(path), **rows)
    with pytest.raises(InputError, match="another trace"):
        Trace.load(path)
    np.savez_compressed(beside(path), **(rows | {"masks": rows["masks"][:, :1]}))
    with pytest.raises(InputError, match="masks of the wrong shape"):
        Trace.load(path)
    for content in (b"", b"PK\x03\x04 no more", b"text"):
        beside(path).write_bytes(content)
        with pytest.raises(InputError, match="sidecar"):
            Trace.load(path)
    np.savez_compressed(beside(path), logits=np.zeros(3))
    with pytest.raises(InputError, match="sidecar"):
        Trace.load(path)


def test_what_is_no_saved_trace_is_refused(tmp_path):
    path = tmp_path / "x.json"
    for content in ("", "{", "[]", "{}", '{"metadata": 3, "steps": []}', '"text"'):
        path.write_text(content)
        with pytest.raises(InputError, match=r"x\.json"):
            Trace.load(path)
    with pytest.raises(InputError, match="missing"):
        Trace.load(tmp_path / "missing.json")


def test_where_the_sidecar_cannot_be_written_the_old_trace_stays(full, tmp_path):
    path = tmp_path / "run.json"
    path.write_text("old")
    beside(path).mkdir()
    with pytest.raises(OutputError, match=r"run\.npz"):
        full.save(path)
    assert path.read_text() == "old"
