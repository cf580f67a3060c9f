"""Records survive JSON, and the sums over them are sums."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import Trace
from espalier.automata.reasons.blame import Blame
from espalier.trace.records import Candidate, StepRecord
from tests.traces import sample_trace

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
CANDIDATES = st.builds(
    Candidate,
    id=st.integers(0, 10**6),
    text=TEXT,
    bytes=st.binary(max_size=6),
    prob=st.floats(0, 1),
    logit=st.none() | FINITE,
    allowed=st.booleans(),
)
LISTS = st.lists(CANDIDATES, max_size=3).map(tuple)
BLAMES = st.none() | st.builds(
    Blame, member=TEXT, reason=TEXT, rule=st.none() | TEXT, offset=st.none() | st.integers(0, 9)
)
STEPS = st.builds(
    StepRecord,
    step=st.integers(0, 10**4),
    token_id=st.integers(0, 10**6),
    text=TEXT,
    bytes=st.binary(max_size=6),
    logprob=FINITE | st.just(-math.inf),
    pre_masking=LISTS,
    post_grammar=LISTS,
    post_chain=LISTS,
    resampled=CANDIDATES,
    allowed_count=st.integers(0, 10**6),
    removed_mass=st.floats(0, 1),
    tax_nats=st.floats(0, 1e6),
    z_sampled=st.none() | st.floats(0, 1),
    entropy_before=st.floats(0, 20),
    entropy_after=st.floats(0, 20),
    was_rejected=st.booleans(),
    rejected=st.none() | CANDIDATES,
    was_forced=st.booleans(),
    is_special=st.booleans(),
    blame=BLAMES,
    removed_by=st.dictionaries(TEXT, st.floats(0, 1), max_size=3).map(lambda d: tuple(d.items())),
    exactness=st.sampled_from(["exact", "bounded"]),
)
TRACES = st.builds(
    Trace,
    steps=st.lists(STEPS, max_size=4).map(tuple),
    text=TEXT,
    finish_reason=st.sampled_from(["stop", "length"]),
    model=TEXT,
    prompt=TEXT,
    asked=TEXT,
    constraint=st.none() | st.just({"kind": "regex", "pattern": "a"}),
    sampling=st.just({"seed": 2**62}),
    verdict=st.none() | st.just({"valid": True, "judge": "re", "errors": []}),
)


@given(TRACES)
def test_a_trace_survives_strict_json(trace):
    text = json.dumps(trace.to_json(), allow_nan=False)
    assert Trace.from_json(json.loads(text)) == trace


@given(TRACES)
def test_the_summary_is_the_sum_of_the_steps(trace):
    summary = trace.summary()
    assert summary["total_steps"] == len(trace.steps)
    assert summary["total_tax_nats"] == pytest.approx(sum(s.tax_nats for s in trace.steps))
    assert summary["rejected_steps"] == sum(s.was_rejected for s in trace.steps)
    shares = summary["removed_by"]
    assert (shares is None) == (not any(s.removed_by for s in trace.steps)), "not measured is not nothing"
    for name, mean in (shares or {}).items():
        assert mean * len(trace.steps) == pytest.approx(sum(dict(s.removed_by).get(name, 0) for s in trace.steps))
    assert {*(shares or {})} == {name for s in trace.steps for name, _ in s.removed_by}
    if trace.steps:
        assert summary["mean_removed_mass"] == pytest.approx(
            sum(s.removed_mass for s in trace.steps) / len(trace.steps)
        )


def test_a_trace_of_before_has_no_shares_of_removed_mass():
    data = json.loads(json.dumps(sample_trace(3).to_json()))
    for step in data["steps"]:
        del step["removed_by"]
    assert Trace.from_json(data) == sample_trace(3)


def test_the_sample_used_by_other_tests_is_a_true_trace():
    trace = sample_trace(60)
    assert len(trace.steps) == 60
    assert trace.changed_steps > 0
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
