"""Steps that a kernel wrote as rows are those that are recorded one by one, and are stored and read as they were."""

from __future__ import annotations

import json

import pytest

import espalier
from espalier.errors import OutputError
from espalier.sampling.fast.candidates import DRAWS
from espalier.store.costs.answer import sums_of
from espalier.store.packing import ARRAYS, pack, unpack
from espalier.store.trace_columns import columns_of
from espalier.trace.packed_steps import PackedSteps
from espalier.trace.records import Trace
from espalier.wiring import demo_model

SCHEMA = espalier.JsonSchema(
    {"type": "array", "items": {"type": "object", "properties": {"é": {"type": "string"}}, "required": ["é"]}}
)
REQUESTS = {
    "a schema": {"constraint": SCHEMA},
    "a regular expression": {"constraint": espalier.Regex("[a-z é]{20,40}")},
    "free": {"ignore_eos": True},
    "greedy": {"constraint": SCHEMA, "temperature": 0},
    "hot": {"constraint": SCHEMA, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "penalties": {"constraint": SCHEMA, "repetition_penalty": 1.3, "dry_multiplier": 0.8, "top_p": 0.7},
    "at its end": {"constraint": espalier.Choice(["yes", "no"])},
}
OTHERS = {
    "drawn twice": {"constraint": SCHEMA, "strategy": "rejection"},
    "members": {"constraint": espalier.AllOf([espalier.Regex("[a-z]{9,20}"), espalier.Ban(["e"])])},
    "bans": {"logit_bias": ((300, -float("inf")),), "ignore_eos": True},
    "many candidates": {"trace_top_k": 60, "ignore_eos": True},
}


@pytest.fixture(scope="module")
def engine():
    DRAWS.load()
    with espalier.load(str(demo_model())) as loaded:
        yield loaded


def trace_of(engine, asked, seed=1):
    return engine.generate("A list, please.", seed=seed, max_tokens=40, trace="steps", **asked).trace


def in_json(trace):
    return json.loads(json.dumps(trace.to_json()))


def arguments(stored):
    columns = columns_of(stored, request_id="r", caller="anna", index=0, route=None, total=1.0)
    return columns, sums_of(stored, columns, has_texts=True)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_step_in_a_row_is_recorded_as_by_itself(engine, name, monkeypatch):
    trace = trace_of(engine, REQUESTS[name])
    assert trace.steps
    assert all(step.origin is not None for step in trace.steps)
    monkeypatch.setattr("espalier.engines.local.run_maker._step_table", lambda request: None)
    alone = trace_of(engine, REQUESTS[name])
    assert all(step.origin is None for step in alone.steps)
    assert trace.packed()["summary"] == alone.summary()
    assert trace.to_json() == alone.to_json()


@pytest.mark.parametrize("name", {**REQUESTS, **OTHERS})
def test_a_trace_is_read_from_the_store_as_it_was(engine, name):
    for seed in range(3):
        trace = trace_of(engine, {**REQUESTS, **OTHERS}[name], seed)
        packed = trace.packed()
        read = unpack(pack(packed, what="trace"), what="trace")
        assert read == in_json(trace)
        assert [list(step) for step in read["steps"]] == [list(step) for step in in_json(trace)["steps"]]
        assert Trace.from_json(read).steps == trace.steps
        assert [*packed["steps"]] == trace.to_json()["steps"]


@pytest.mark.parametrize("name", {**REQUESTS, **OTHERS})
def test_packed_steps_add_to_the_sums_what_their_json_adds(engine, name):
    trace = trace_of(engine, {**REQUESTS, **OTHERS}[name])
    columns, sums = arguments(trace.packed())
    expected_columns, expected = arguments(trace.to_json())
    assert columns == expected_columns
    assert sums == expected


def test_steps_of_several_kinds_keep_their_order(engine):
    steps = [*trace_of(engine, REQUESTS["free"]).steps, *trace_of(engine, OTHERS["drawn twice"]).steps]
    mixed = [step for pair in zip(steps[:20], steps[40:60], strict=True) for step in pair]
    packed = PackedSteps(mixed)
    read = unpack(pack({"steps": packed}, what="trace"), what="trace")["steps"]
    assert read == json.loads(json.dumps([step.to_json() for step in mixed]))
    assert len(packed) == 40
    assert packed[3] == mixed[3].to_json()
    assert packed[1:3] == [step.to_json() for step in mixed[1:3]]


def test_damaged_arrays_are_an_error_of_ours(engine):
    body = pack(trace_of(engine, REQUESTS["a schema"]).packed(), what="trace")
    assert body.startswith(ARRAYS)
    for damaged in (body[:-100], body[: len(ARRAYS) + 3], body[: len(ARRAYS) + 8] + body[len(ARRAYS) + 20 :]):
        with pytest.raises(OutputError, match="damaged in the database"):
            unpack(damaged, what="trace")


def test_a_description_that_does_not_fit_its_arrays_is_an_error_of_ours(engine):
    steps = trace_of(engine, REQUESTS["free"]).packed()["steps"]
    description, arrays = steps.write()

    class Other(PackedSteps):
        def write(self):
            return self.changed, arrays

    for field, value in {"width": 10**9, "ids": [], "blames": [], "arrays": {}, "bytes": {"0": [999]}}.items():
        other = Other(())
        other.changed = {**description, field: value}
        with pytest.raises(OutputError, match="damaged in the database"):
            unpack(pack({"steps": other}, what="trace"), what="trace")
