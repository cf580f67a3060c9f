"""The rejection log while it is written: whole after each event, one writer, cut, continued, moved away by size."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from espalier.automata.reasons.blame import Blame
from espalier.errors import EspalierError, InputError, OutputError
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.recorders import log_file
from espalier.trace.recorders.protocol import Recorder, RunInfo
from espalier.trace.recorders.rejection_log import VERSION, RejectionLog
from espalier.trace.records import Candidate, StepRecord
from tests.traces import sample_trace

INFO = RunInfo(request_id="req-1", model="fake", strategy="rejection")
PLAIN = replace(sample_trace(4).steps[0], was_rejected=False, rejected=None)
REFUSED = Candidate(id=7, text="-inf ñ", bytes="-inf ñ".encode(), prob=0.9, logit=-math.inf, allowed=False)
HALF = Candidate(id=8, text="\ufffd", bytes=b"\xe2\x82", prob=0.1, logit=1.5)


def rejected(step: int = 0) -> StepRecord:
    return replace(
        PLAIN,
        step=step,
        was_rejected=True,
        rejected=REFUSED,
        pre_masking=(REFUSED, HALF),
        post_grammar=(HALF,),
        post_chain=(HALF,),
        resampled=HALF,
        blame=Blame(member="grammar", reason="ban"),
    )


def read(path: Path) -> dict[str, Any]:
    """With Python's own reader, which takes a whole document and nothing else."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return found


def steps(path: Path) -> list[tuple[int, int]]:
    return [(one["task_id"], one["step"]) for one in read(path)["events"]]


def write(path: Path, count: int, **options: Any) -> None:
    with RejectionLog(path, **options) as log:
        run = log.begin(INFO)
        for step in range(count):
            run.step(rejected(step))
        run.end(None)


def test_an_event_has_the_fields_that_readers_of_llama_cpps_log_look_for(tmp_path: Path) -> None:
    with RejectionLog(tmp_path / "log.json", clock=lambda: 0.0) as log:
        assert isinstance(log, Recorder)
        run = log.begin(replace(INFO, output=2))
        run.step(PLAIN)
        run.step(rejected(5))
        assert log.events == 1
    candidate = {"id": 8, "text": "\ufffd", "prob": 0.1, "logit": 1.5, "bytes": [0xE2, 0x82]}
    refused = {"id": 7, "text": "-inf ñ", "prob": 0.9}
    assert read(log.path) == {
        "log_version": VERSION,
        "timestamp": "1970-01-01T00:00:00Z",
        "events": [
            {
                "task_id": 0,
                "slot_id": 0,
                "request_id": "req-1",
                "output": 2,
                "step": 5,
                "number": 0,
                "rejected": refused,
                "pre_masking": [refused, candidate],
                "post_grammar": [candidate],
                "post_chain": [candidate],
                "resampled": candidate,
                "blame": Blame(member="grammar", reason="ban").to_json(),
            }
        ],
    }


def test_a_run_has_the_lowest_slot_that_is_free_and_a_number_of_its_own(tmp_path: Path) -> None:
    with RejectionLog(tmp_path / "log.json") as log:
        first, second, third = (log.begin(INFO) for _ in range(3))
        second.end(None)
        second.end(None)
        fourth, fifth = log.begin(INFO), log.begin(INFO)
        for run in (first, third, fourth, fifth):
            run.step(rejected())
    found = [(one["task_id"], one["slot_id"]) for one in read(log.path)["events"]]
    assert found == [(0, 0), (2, 2), (3, 1), (4, 3)]


def test_it_is_a_whole_document_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with RejectionLog(path) as log:
        assert read(path)["events"] == []
        run = log.begin(INFO)
        for step in range(5):
            run.step(rejected(step))
            assert steps(path) == [(0, one) for one in range(step + 1)]
    assert steps(path) == [(0, one) for one in range(5)]


def test_each_event_is_written_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: calls.append(bytes(data)) or pwrite(file, data, at))
    write(tmp_path / "log.json", 3)
    assert len(calls) == 5  # the beginning, three events, and the note that the run is over
    assert all(call.endswith(b"}\n") for call in calls)


def test_many_runs_of_many_threads_share_it_while_others_read(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    faults: list[BaseException] = []

    def record(log: RejectionLog, number: int) -> None:
        run = log.begin(replace(INFO, request_id=str(number)))
        for step in range(30):
            run.step(rejected(step))
        run.end(None)

    def follow(log: RejectionLog, done: threading.Event) -> None:
        try:
            while not done.is_set():
                with path.open("rb") as file:
                    found = list(LogReader(file))
                assert all(one["resampled"]["id"] == 8 for one in found)
        except (AssertionError, EspalierError, OSError) as error:
            faults.append(error)

    done = threading.Event()
    with RejectionLog(path) as log:
        readers = [threading.Thread(target=follow, args=(log, done)) for _ in range(2)]
        writers = [threading.Thread(target=record, args=(log, number)) for number in range(8)]
        for one in (*readers, *writers):
            one.start()
        for one in writers:
            one.join()
        done.set()
        for one in readers:
            one.join()
    assert not faults
    found = read(path)["events"]
    by_task: dict[int, list[int]] = {}
    for event in found:
        by_task.setdefault(event["task_id"], []).append(event["step"])
    assert by_task == {task: list(range(30)) for task in range(8)}
    assert len({(one["task_id"], one["request_id"]) for one in found}) == 8


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with RejectionLog(path) as log:
        with pytest.raises(OutputError, match=r"log\.json is being written by another"):
            RejectionLog(path)
        (tmp_path / "link").symlink_to(path)
        with pytest.raises(OutputError, match="another"):
            RejectionLog(tmp_path / "link")
        assert log.events == 0
    write(path, 1)
    assert steps(path) == [(0, 0)]


def test_a_log_has_one_writer_among_processes(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    code = "import sys; from espalier.trace.recorders.rejection_log import RejectionLog; RejectionLog(sys.argv[1])"
    with RejectionLog(path):
        other = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True, timeout=60
        )
    assert other.returncode == 1
    assert f"{path} is being written by another" in other.stderr


def test_a_log_that_is_there_is_continued_and_its_tasks_go_on(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    write(path, 2)
    before = read(path)["timestamp"]
    write(path, 1, clock=lambda: 0.0)
    assert steps(path) == [(0, 0), (0, 1), (1, 0)]
    assert read(path)["timestamp"] == before


def test_killed_in_mid_write_it_loses_at_most_the_last_event(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    write(path, 3)
    data = path.read_bytes()
    second = data.index(b',\n{"task_id":0', data.index(b',\n{"task_id":0') + 1)  # where the third event begins
    for end in range(second, len(data)):
        path.write_bytes(data[:end])
        kept = [one["step"] for one in LogReader(io.BytesIO(data[:end]))]
        assert kept in ([0, 1], [0, 1, 2])
        write(path, 1)
        assert steps(path) == [*((0, step) for step in kept), (1, 0)]


def test_killed_before_the_first_event_it_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    write(path, 1)
    data = path.read_bytes()
    for end in range(data.index(b'{"task_id"')):
        path.write_bytes(data[:end])
        write(path, 1)
        assert steps(path) == [(0, 0)]


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "[]",
        "{}",
        '{"log_version":"b6790"}',
        '{"log_version":"b6790","events":[{"step":0}]}',
        '{"events":[3]}',
        '{"log_version":"espalier-1","notes":"' + "x" * 100,
        "\0\0\0",
    ],
)
def test_what_is_there_and_is_no_log_of_ours_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(OutputError, match=r"mine\.json is there"):
        RejectionLog(path)
    assert path.read_text() == text


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_beyond_its_size_the_file_is_moved_away_between_two_events(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "log.json"
    write(path, 40, max_bytes=4096, keep=keep)
    files = [path, *(tmp_path / f"log.json.{number}" for number in range(1, keep + 1))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    found = [step for one in reversed(files) for _, step in steps(one)]
    assert found == list(range(found[0], 40))
    assert found[0] > 0
    assert all(one.stat().st_size <= 4096 for one in files)


def test_an_event_larger_than_the_limit_is_whole_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with RejectionLog(path, max_bytes=4096) as log:
        for length in (10, 9000, 10):
            log.write({"step": 0, "text": "x" * length})
    assert [len(read(tmp_path / name)["events"]) for name in ("log.json.2", "log.json.1", "log.json")] == [1, 1, 1]


def test_no_other_writer_comes_between_while_it_is_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.json"
    refused = []
    link = os.link

    def meanwhile(old: Path, new: Path) -> None:
        for when in (lambda: None, lambda: link(old, new)):
            when()
            with pytest.raises(OutputError, match="another"):
                RejectionLog(path)
            refused.append(True)

    with RejectionLog(path, max_bytes=4096) as log:
        log.write({"step": 0, "text": "x" * 4000})
        monkeypatch.setattr(os, "link", meanwhile)
        log.write({"step": 1, "text": "x" * 4000})
        with pytest.raises(OutputError, match="another"):
            RejectionLog(path)
    assert len(refused) == 2
    assert steps_alone(path) == [1]


def steps_alone(path: Path) -> list[int]:
    return [one["step"] for one in read(path)["events"]]


@pytest.mark.parametrize("written", [0, 1, 30])
def test_a_full_disk_is_said_and_leaves_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    path = tmp_path / "log.json"
    pwrite = os.pwrite

    tried: list[int] = []

    def full(file: int, data: bytes, at: int) -> int:
        tried.append(at)
        if written and len(tried) == 1:
            return pwrite(file, data[:written], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with RejectionLog(path) as log:
        run = log.begin(INFO)
        run.step(rejected(0))
        with monkeypatch.context() as patched:
            # The brackets find their place again, since the file is cut first.
            patched.setattr(
                os, "pwrite", lambda f, d, at: pwrite(f, d, at) if d == log_file.CLOSING else full(f, d, at)
            )
            with pytest.raises(OutputError, match=r"cannot write .*log\.json: No space left"):
                run.step(rejected(1))
            assert steps(path) == [(0, 0)]
        run.step(rejected(2))
    assert steps(path) == [(0, 0), (0, 2)]


def test_what_could_not_be_undone_is_put_right_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.json"

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with RejectionLog(path) as log:
        log.write({"step": 0})
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", broken)
            with pytest.raises(OutputError, match="Input/output error"):
                log.write({"step": 1})
        assert [one["step"] for one in LogReader(io.BytesIO(path.read_bytes()))] == [0]
        log.write({"step": 2})
    assert steps_alone(path) == [0, 2]


def test_closed_it_takes_nothing_more(tmp_path: Path) -> None:
    log = RejectionLog(tmp_path / "log.json")
    run = log.begin(INFO)
    log.close()
    log.close()
    with pytest.raises(OutputError, match=r"log\.json is closed"):
        run.step(rejected())
    run.end(None)


@pytest.mark.parametrize("path", [".", "missing/log.json"])
def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*"):
        RejectionLog(tmp_path / path)


@pytest.mark.parametrize("options", [{"max_bytes": 10}, {"max_bytes": -1}, {"keep": -1}])
def test_limits_that_are_none_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        RejectionLog(tmp_path / "log.json", **options)
    assert found.value.field in options
    assert not (tmp_path / "log.json").exists()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    write(tmp_path / "log.json", 1)
    assert (tmp_path / "log.json").stat().st_mode & 0o777 == 0o600
