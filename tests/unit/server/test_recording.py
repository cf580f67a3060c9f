"""A server's rejection log: which runs it has, which strategy fills it, and that its failures end no generation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.errors import InputError, OutputError
from espalier.server.observe.guarded import GuardedRecorder
from espalier.trace.recorders.protocol import RunInfo, RunRecorder
from espalier.trace.records import StepRecord, Trace, TraceLevel
from tests.server_app import CountingMeter, client, make_app, settings
from tests.traces import sample_trace

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0}
REFUSES = ASK | {"structured_outputs": {"choice": ["yellow"]}}
"""The model wishes for green."""


def logged(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["events"]
    return found


def test_every_refusal_is_in_the_log_with_the_id_of_its_request(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with client("green", config=settings(rejection_log=str(path))) as c:
        for name in ("first", "second"):
            reply = c.post(CHAT, json=REFUSES | {"n": 2, "espalier": {}}, headers={"x-request-id": name})
            assert {one["strategy"] for one in reply.json()["espalier"]["outputs"]} == {"rejection"}
        found = logged(path)
        assert found  # while the server runs
    assert logged(path) == found
    assert sorted((one["request_id"], one.get("output", 0)) for one in found if one["step"] == 0) == [
        ("first", 0),
        ("first", 1),
        ("second", 0),
        ("second", 1),
    ]
    first = next(one for one in found if one["step"] == 0)
    assert (first["rejected"]["text"], first["resampled"]["text"]) == ("g", "y")
    assert len(first["pre_masking"]) == 11  # ten, and the token that was taken
    assert len({one["task_id"] for one in found}) == 4


def test_it_holds_for_the_other_routes_too_and_not_for_who_names_a_strategy(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with client("green", config=settings(rejection_log=str(path))) as c:
        c.post("/completion", json={"prompt": "x", "n_predict": 8, "temperature": 0, "grammar": 'root ::= "red"'})
        c.post("/v1/completions", json={"prompt": "x", "temperature": 0, "guided_regex": "red"})
        told = [(one["task_id"], one["rejected"]["text"]) for one in logged(path) if one["step"] == 0]
        assert told == [(0, "g"), (1, "g")]
        assert c.post(CHAT, json=REFUSES | {"espalier": {"strategy": "mask"}}).status_code == 200
        assert c.post(CHAT, json=REFUSES | {"num_beams": 2}).status_code == 200
        assert len({one["task_id"] for one in logged(path)}) == 2


def test_as_many_candidates_as_there_is_room_for(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with client("green", config=settings(rejection_log=str(path), max_candidates="40")) as c:
        assert c.post(CHAT, json=REFUSES).status_code == 200
    assert len(logged(path)[0]["pre_masking"]) in (3, 4)  # 40 // 12, and the token that was taken


def test_a_server_without_a_log_masks(tmp_path: Path) -> None:
    with client("green") as c:
        reply = c.post(CHAT, json=REFUSES | {"espalier": {}})
    assert reply.json()["espalier"]["outputs"][0]["strategy"] == "mask"


def test_a_log_that_another_has_stops_the_start_with_its_path(tmp_path: Path) -> None:
    config = settings(rejection_log=str(tmp_path / "log.json"))
    with client(config=config), pytest.raises(OutputError, match=r"log\.json is being written by another"):
        TestClient(make_app(config=config)).__enter__()


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"rejection_log": "x.json", "workers": "2"}, "REJECTION_LOG"),
        ({"rejection_log_bytes": "10"}, "REJECTION_LOG_BYTES"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, str], name: str) -> None:
    with pytest.raises(InputError) as found:
        settings(**values)
    assert found.value.field == name
    assert settings(rejection_log_bytes="none").rejection_log_bytes is None


class Broken:
    """A Recorder that fails at one of its three calls."""

    level: TraceLevel = "steps"

    def __init__(self, where: str) -> None:
        self.where = where

    def begin(self, info: RunInfo) -> RunRecorder:
        self.fail("begin")
        return self

    def step(self, record: StepRecord) -> None:
        self.fail("step")

    def end(self, trace: Trace | None) -> None:
        self.fail("end")

    def fail(self, where: str) -> None:
        if where == self.where:
            raise OutputError(f"cannot write {where}")


@pytest.mark.parametrize(("where", "count"), [("begin", 2), ("step", 6), ("end", 2)])
def test_a_recorder_that_fails_is_said_once_and_counted(
    where: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    meter = CountingMeter()
    guard = GuardedRecorder(Broken(where), failed=meter.unrecorded)
    for _ in range(2):
        run = guard.begin(RunInfo(request_id="r", model="fake", strategy="mask"))
        for step in sample_trace(3).steps:
            run.step(step)
        run.end(None)
    assert meter.faults == count
    assert [one.getMessage() for one in caplog.records] == [f"not recorded: cannot write {where}"]


def test_a_full_disk_ends_no_generation_and_is_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.json"
    with client("green", config=settings(rejection_log=str(path), metrics_public="true")) as c:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            reply = c.post(CHAT, json=REFUSES)
            assert reply.json()["choices"][0]["message"]["content"] == "yellow"
        lines = c.get("/metrics").text.splitlines()
        counted = next(line for line in lines if line.startswith("espalier:recorder_errors_total"))
        assert float(counted.split()[-1]) >= 1
        before = len(logged(path)) if path.stat().st_size > 100 else 0
        assert c.post(CHAT, json=REFUSES).status_code == 200
        assert len(logged(path)) > before
    said = [one.getMessage() for one in caplog.records if "not recorded" in one.getMessage()]
    assert len(said) == 1
    assert "No space left" in said[0]
