"""Recorders in memory and in JSON lines: told by hand, and by engines that run."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.errors import InputError, OutputError
from espalier.trace.recorders.memory import JsonLinesRecorder, MemoryRecorder
from espalier.trace.recorders.protocol import Recorder, RunInfo
from espalier.trace.records import StepRecord
from tests.traces import sample_trace

INFO = RunInfo(request_id="req-1", model="fake", strategy="mask", output=1, seed=3)
TRACE = sample_trace(5)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_a_line_for_each_step_and_one_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with JsonLinesRecorder(path) as recorder:
        assert isinstance(recorder, Recorder)
        run = recorder.begin(INFO)
        for step in TRACE.steps:
            run.step(step)
        run.end(TRACE)
    *told, last = lines(path)
    front = {"run": 0, "request_id": "req-1", "output": 1}
    assert [one.items() >= front.items() for one in told] == [True] * 5
    read = [StepRecord.from_json({name: one[name] for name in one if name not in front}) for one in told]
    assert tuple(read) == TRACE.steps
    assert last == front | {
        "end": True,
        "model": "fake",
        "strategy": "mask",
        "seed": 3,
        "finish_reason": TRACE.finish_reason,
        "text": TRACE.text,
        "summary": json.loads(json.dumps(TRACE.summary())),
    }


def test_a_run_that_was_stopped_has_an_end_without_a_summary(tmp_path: Path) -> None:
    with JsonLinesRecorder(tmp_path / "runs.jsonl") as recorder:
        run = recorder.begin(INFO)
        run.step(replace(TRACE.steps[0], tax_nats=math.inf))
        run.end(None)
    first, last = lines(recorder.path)
    assert first["tax_nats"] is None
    assert (last["end"], last["summary"], last["finish_reason"]) == (True, None, None)


def test_lines_of_a_file_that_is_there_stay_and_a_cut_one_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"run": 0}\n{"run": 0, "st')
    with JsonLinesRecorder(path) as recorder:
        recorder.begin(INFO).end(None)
    found = path.read_text().splitlines()
    assert found[:2] == ['{"run": 0}', '{"run": 0, "st']
    assert json.loads(found[2])["end"]


def test_lines_of_many_threads_are_each_whole(tmp_path: Path) -> None:
    def record() -> None:
        run = recorder.begin(INFO)
        for step in TRACE.steps * 10:
            run.step(step)
        run.end(None)

    with JsonLinesRecorder(tmp_path / "runs.jsonl") as recorder:
        threads = [threading.Thread(target=record) for _ in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    found = lines(recorder.path)
    assert {run: sum(1 for one in found if one["run"] == run) for run in range(6)} == dict.fromkeys(range(6), 51)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*runs"):
        JsonLinesRecorder(tmp_path / "no" / "runs.jsonl")
    recorder = JsonLinesRecorder(tmp_path / "runs.jsonl")
    run = recorder.begin(INFO)
    recorder.close()
    with pytest.raises(OutputError, match="is closed"):
        run.step(TRACE.steps[0])


def test_memory_keeps_runs_with_their_steps_and_their_end() -> None:
    recorder = MemoryRecorder()
    assert isinstance(recorder, Recorder)
    run = recorder.begin(INFO)
    for step in TRACE.steps:
        run.step(step)
    (kept,) = recorder.runs
    assert (kept.info, tuple(kept.steps), kept.trace, kept.is_over) == (INFO, TRACE.steps, None, False)
    run.end(TRACE)
    assert (kept.trace, kept.is_over) == (TRACE, True)


def test_memory_is_bounded_and_what_is_over_goes_first() -> None:
    recorder = MemoryRecorder(max_runs=2, max_steps=3)
    runs = []
    for number in range(3):
        runs.append(recorder.begin(replace(INFO, output=number)))
        if number == 1:
            runs[1].end(None)
    assert [one.info.output for one in recorder.runs] == [0, 2]
    recorder.begin(replace(INFO, output=3))
    assert [one.info.output for one in recorder.runs] == [2, 3]
    for step in TRACE.steps:
        runs[2].step(step)
        runs[0].step(step)  # which is forgotten, and told all the same
    kept = recorder.runs[0]
    assert (tuple(kept.steps), kept.dropped) == (TRACE.steps[2:], 2)


@pytest.mark.parametrize("options", [{"max_runs": 0}, {"max_steps": 0}, {"level": "measures"}])
def test_limits_and_levels_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        MemoryRecorder(**options)
    assert found.value.field in options


@pytest.mark.parametrize("level", ["summary", "steps"])
def test_an_engine_tells_them_each_step_whatever_its_own_level_and_its_end(level: Any) -> None:
    recorder = MemoryRecorder(level=level)
    with espalier.load("fake") as engine:
        result = engine.generate("hi", max_tokens=6, temperature=0, trace="off", recorders=recorder, request_id="r")
        engine.stream("hi", max_tokens=6, recorders=recorder).close()  # nothing has happened: nothing is told
        events = engine.stream("hi", max_tokens=6, temperature=0, recorders=recorder)
        next(events)
        events.close()
    whole, stopped = recorder.runs
    assert tuple(one.token_id for one in whole.steps) == result.token_ids
    assert [bool(one.pre_masking) for one in whole.steps] == [level == "steps"] * len(whole.steps)
    assert (whole.info.request_id, whole.is_over, whole.trace) == ("r", True, None)
    assert (len(stopped.steps), stopped.is_over, stopped.trace) == (1, True, None)
