"""Traces of runs that a recorder keeps: whole, under their caller, and none where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import espalier
from espalier.errors import InputError, OutputError
from espalier.store.open import Store
from espalier.store.recording import StoreRecorder
from espalier.trace.recorders.protocol import Recorder, RunInfo
from espalier.trace.records import Trace
from tests.traces import sample_trace

INFO = RunInfo(request_id="req-1", model="fake", strategy="mask", output=2)


def test_a_finished_run_is_kept_whole_under_its_caller(store: Store) -> None:
    recorder = StoreRecorder(store, caller="me", route="cli")
    assert isinstance(recorder, Recorder)
    trace = sample_trace(5)
    recorder.begin(INFO).end(trace)
    (kept,) = recorder.ids
    assert store.trace(kept, caller="other") is None
    found = store.trace(kept, caller="me")
    assert found is not None
    assert Trace.from_json(found).steps == trace.steps
    (row,) = store.traces(caller="me", limit=5, after=None)
    assert (row["request_id"], row["output_index"], row["route"]) == ("req-1", 2, "cli")


def test_a_run_without_a_trace_is_not_kept(store: Store) -> None:
    recorder = StoreRecorder(store)
    recorder.begin(INFO).end(None)
    assert recorder.ids == ()
    assert store.traces(caller=None, limit=5, after=None) == []


def test_an_engine_fills_it(store: Store) -> None:
    recorder = StoreRecorder(store, level="steps")
    options: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "recorders": recorder}
    with espalier.load("fake") as engine:
        result = engine.generate("hi", trace="summary", request_id="r", **options)
        engine.generate("hi", trace="off", **options)
    (kept,) = recorder.ids
    found = store.trace(kept, caller="local")
    assert found is not None
    assert found["text"] == result.text
    assert all(step["pre_masking"] for step in found["steps"])


def test_what_cannot_be_kept_is_an_output_error(store: Store) -> None:
    recorder = StoreRecorder(store)
    run = recorder.begin(replace(INFO, request_id="late"))
    store.close()
    with pytest.raises(OutputError):
        run.end(sample_trace(2))
    with pytest.raises(InputError):
        StoreRecorder(store, level="measures")  # type: ignore[arg-type]
