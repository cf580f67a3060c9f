"""Sums over a run: against sums by hand, and the same at every level, with and without a recorder that wants more."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import espalier
from espalier.trace.measure import costs_by, cumulative
from espalier.trace.recorders.memory import MemoryRecorder
from espalier.trace.records import Trace
from espalier.trace.summary import WORST
from tests.traces import sample_trace

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= word " " number\nword ::= [a-z]{3,6}\nnumber ::= [0-9]{2,4}'
ASKED = {
    "schema": {"constraint": espalier.JsonSchema(SCHEMA)},
    "grammar": {"constraint": espalier.Gbnf(GRAMMAR)},
    "composition": {"constraint": espalier.AllOf([espalier.Regex("[a-z ]{4,9}"), espalier.Regex("[^e]*")])},
    "bans": {"constraint": espalier.Regex("[a-z]{4}"), "logit_bias": {97: -math.inf}, "min_tokens": 2},
    "free": {"max_tokens": 12},
}


@pytest.fixture(scope="module")
def engine():
    with espalier.load("fake") as loaded:
        yield loaded


def ask(engine, kind, level, strategy="mask", **more):
    options = {"seed": 11, "max_tokens": 40, "temperature": 1.0} | ASKED[kind] | more
    return engine.generate("hi", trace=level, strategy=strategy, **options)


@pytest.mark.parametrize("strategy", ["mask", "rejection"])
@pytest.mark.parametrize("kind", ASKED)
def test_the_sums_are_the_same_at_every_level_and_summary_keeps_no_step(engine, kind, strategy):
    summed, steps, full = (ask(engine, kind, level, strategy).trace for level in ("summary", "steps", "full"))
    assert summed.steps == ()
    assert [one.level for one in (summed, steps, full)] == ["summary", "steps", "full"]
    assert summed.summary() == steps.summary() == full.summary()
    for name in ("total_tax_nats", "mean_removed_mass", "removed_by", "changed_steps"):
        assert getattr(summed, name) == getattr(steps, name)
    assert (summed.by_path(), summed.by_rule()) == (steps.by_path(), steps.by_rule())
    has_rules = kind in ("grammar", "bans", "schema", "composition")
    assert (steps.by_path() is None, steps.by_rule() is None) == (kind != "schema", not has_rules)
    assert (steps.removed_by is None) == (kind in ("schema", "grammar", "free"))
    assert ask(engine, kind, "off", strategy).trace is None


def test_the_numbers_of_a_summary_are_those_of_its_steps(engine):
    trace = ask(engine, "schema", "steps", "rejection").trace
    found, steps = trace.summary(), trace.steps
    assert found["total_steps"] == len(steps)
    assert found["rejected_steps"] == sum(s.was_rejected for s in steps) > 0
    assert found["rejected_rate"] == found["rejected_steps"] / len(steps)
    assert (found["forced_steps"], found["forced_share"]) == (0, 0.0)
    assert found["changed_steps"] == sum(not s.pre_masking[0].allowed for s in steps)
    assert found["total_tax_nats"] == math.fsum(s.tax_nats for s in steps)
    assert found["mean_removed_mass"] == pytest.approx(sum(s.removed_mass for s in steps) / len(steps))
    assert found["mean_entropy_before"] == pytest.approx(sum(s.entropy_before for s in steps) / len(steps))
    assert found["mean_entropy_after"] == pytest.approx(sum(s.entropy_after for s in steps) / len(steps))
    worst = sorted((s for s in steps if s.tax_nats > 0), key=lambda s: (-s.tax_nats, s.step))[:WORST]
    assert [one["step"] for one in found["worst_tokens"]] == [s.step for s in worst]
    assert [one["text"] for one in found["worst_tokens"]] == [s.text for s in worst]
    rows = trace.by_token()
    assert [row.tax_nats for row in rows] == [s.tax_nats for s in steps]
    assert [row.cumulative_tax_nats for row in rows] == trace.cumulative_tax_nats
    assert rows[-1].cumulative_tax_nats == trace.total_tax_nats
    paths = {row.step: row.path for row in rows}
    assert all(paths[one["step"]] == one["path"] for one in found["worst_tokens"])
    for path, sums in trace.by_path().items():
        mine = [row for row in rows if row.path == path]
        assert sums["tokens"] == len(mine)
        assert sums["tax_nats"] == pytest.approx(sum(row.tax_nats for row in mine))
        assert sums["removed_mass"] == pytest.approx(sum(row.removed_mass for row in mine) / len(mine))


def test_forced_tokens_are_no_draws():
    trace = sample_trace(60)
    found = trace.summary()
    forced = sum(s.was_forced for s in trace.steps)
    assert found["forced_steps"] == forced > 0
    assert found["forced_share"] == forced / 60
    assert found["rejected_rate"] == found["rejected_steps"] / (60 - forced)


def test_each_token_belongs_to_the_rule_in_which_its_first_byte_stands(engine):
    trace = ask(engine, "grammar", "steps").trace
    for step in trace.steps:
        kind = (
            "word" if step.text.isalpha() else "number" if step.text.isdigit() else None if step.is_special else "root"
        )
        assert step.rule == kind
    sums = trace.by_rule()
    assert sum(one["tokens"] for one in sums.values()) == len(trace.steps) - 1  # the end is in no rule


def test_the_rule_of_an_ambiguous_place_is_the_one_that_reads_the_byte(engine):
    grammar = "root ::= (low | high){20}\nlow ::= [a-m]\nhigh ::= [n-z]"
    trace = engine.generate("hi", constraint=espalier.Gbnf(grammar), seed=3, temperature=3.0, max_tokens=30).trace
    kinds = {step.rule for step in trace.steps if not step.is_special}
    assert kinds == {"low", "high"}
    assert all(step.rule == ("low" if step.text <= "m" else "high") for step in trace.steps if not step.is_special)


def test_a_recorder_that_wants_more_changes_nothing_of_the_request_s_own_trace(engine):
    for level in ("off", "summary", "steps"):
        recorder = MemoryRecorder(level="full")
        alone = ask(engine, "schema", level, "rejection")
        told = ask(engine, "schema", level, "rejection", recorders=(recorder,))
        assert told == alone
        assert told.records == alone.records
        assert all(step.distribution is None for step in told.records)
        assert all(step.distribution is not None for step in recorder.runs[0].steps)
        assert len(recorder.runs[0].steps) == len(alone.token_ids)


def test_events_of_a_summary_carry_measures_without_candidates(engine):
    events = list(
        engine.stream("hi", trace="summary", seed=2, max_tokens=5, recorders=(MemoryRecorder(level="steps"),))
    )
    records = [event.record for event in events[:-1]]
    assert all(record.pre_masking == () and record.logprob < 0 for record in records)
    assert tuple(records) == events[-1].result.records
    assert events[-1].result.trace.steps == ()
    events = list(engine.stream("hi", trace="off", seed=2, max_tokens=5, recorders=(MemoryRecorder(),)))
    assert all(event.record is None for event in events[:-1])


def test_a_summary_survives_the_way_through_json(engine):
    for kind in ASKED:
        trace = ask(engine, kind, "summary", "rejection").trace
        again = Trace.from_json(json.loads(json.dumps(trace.to_json())))
        assert again == trace
        assert again.summary() == trace.summary()


def test_a_run_without_steps_has_a_summary_of_nothing():
    found = Trace(steps=(), text="", finish_reason="length").summary()
    assert (found["total_steps"], found["rejected_rate"], found["total_tax_nats"]) == (0, 0.0, 0.0)
    assert (found["by_rule"], found["worst_tokens"]) == (None, [])


def test_a_document_after_a_marker_has_its_paths_in_a_summary_too(engine):
    spec = espalier.After("JSON:", espalier.JsonSchema(SCHEMA))
    made = [
        engine.generate("hi", constraint=spec, trace=level, seed=5, max_tokens=120).trace
        for level in ("summary", "steps")
    ]
    assert made[0].summary() == made[1].summary()


values = st.lists(st.floats(-1e9, 1e9), max_size=30)


@given(values)
def test_cumulative_sums_are_rounded_once(numbers):
    assert cumulative(numbers) == [math.fsum(numbers[: end + 1]) for end in range(len(numbers))]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.floats(0, 50), st.floats(0, 1)), max_size=30))
def test_costs_by_key_leave_nothing_out_but_what_has_none(rows):
    found = costs_by([k for k, _, _ in rows], [t for _, t, _ in rows], [m for _, _, m in rows])
    for key in {k for k, _, _ in rows} - {None}:
        mine = [(t, m) for k, t, m in rows if k == key]
        assert found[key] == (len(mine), math.fsum(t for t, _ in mine), math.fsum(m for _, m in mine) / len(mine))
    assert None not in found
