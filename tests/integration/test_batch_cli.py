"""`espalier batch` on the fake engine: files in, files out, interruptions, faults, and the commands over a store."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from espalier.cli.main import main_code
from espalier.errors import OutputError
from espalier.jobs.formats.rows import read_rows
from espalier.store.batches.queue import ItemQueue

ROOT = Path(__file__).resolve().parents[2]
CHAT = "/v1/chat/completions"
WISHED = '{"name": "Ada Lovelace", "age": 36}'
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    return tmp_path


def request(number: int, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": f"{number}"}], "temperature": 0, "max_tokens": 80, **more}
    return {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def batch(*arguments: str) -> int:
    return main_code(["batch", *arguments])


def run(*arguments: str) -> int:
    return batch("run", "-m", "fake", *arguments)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text().splitlines()]


def test_a_file_of_requests_is_answered_in_its_order_with_a_report(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "in.jsonl", *(request(one) for one in range(6)), request(6, temperature="red"))
    assert run("-i", "in.jsonl", "-o", "out.jsonl", "--schema", json.dumps(SCHEMA)) == 1
    found = lines(here / "out.jsonl")
    assert [one["custom_id"] for one in found] == [f"c{one}" for one in range(7)]
    for one in found[:6]:
        answer = json.loads(one["response"]["body"]["choices"][0]["message"]["content"])
        assert set(answer) == {"name", "age"}
    assert found[6]["response"]["body"]["error"]["param"] == "temperature"
    assert sorted(one.name for one in here.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.report.json"]
    capsys.readouterr()
    assert batch("report", "out.jsonl", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdicts"] == {"valid": 6}
    assert report["items"] == {"done": 6, "failed": 1}
    assert "/name" in report["by_path"]
    assert batch("report", "out.jsonl", "--html", "r.html") == 0
    assert "Cost by JSON path" in (here / "r.html").read_text()
    assert batch("report", "out.jsonl") == 0
    assert "6 valid" in capsys.readouterr().out


def test_a_table_comes_back_with_its_answers(here: Path) -> None:
    (here / "t.csv").write_text('id,text\n1,hello\n2,"a, ""b"""\n')
    body = json.dumps({"structured_outputs": {"choice": ["good", "bad"]}})
    assert run("-i", "t.csv", "-o", "o.csv", "--template", "Classify: {text}", "--body", body) == 0
    with (here / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [one["text"] for one in rows] == ["hello", 'a, "b"']
    assert all(one["output"] in ("good", "bad") for one in rows)


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
def test_broken_json_is_counted_shown_in_columns_and_fails(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A run whose answers are all cut said "3 answered, 0 failed", and ended with 0."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (here / "t.csv").write_text("text\nhello\nthere\nyou\n")
    options = ("--template", "Classify: {text}", "--schema", json.dumps(SCHEMA), "--max-tokens", "3", "--seed", "1")
    assert run("-i", "t.csv", "-o", name, *options) == 1
    assert "3 answered: 0 valid, 3 cut at max_tokens" in capsys.readouterr().err
    rows = list(read_rows(here / name))
    assert [(str(row["valid"]), row["finish_reason"]) for row in rows] == [("False", "length")] * 3
    assert batch("report", name) == 0
    assert capsys.readouterr().out.startswith("answers   3 answered: 0 valid, 3 cut at max_tokens\n")
    assert batch("report", name, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdicts"], report["cut"]) == ({"valid": 0, "cut": 3}, 3)


def test_what_is_wrong_is_said_and_nothing_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "in.jsonl", request(1), {**request(2), "method": "GET"})
    assert run("-i", "in.jsonl", "-o", "out.jsonl") == 2
    assert "line 2" in capsys.readouterr().err
    assert [one.name for one in here.iterdir()] == ["in.jsonl"]
    assert run("-i", "none.jsonl", "-o", "out.jsonl") == 2
    assert run("-i", "in.jsonl", "-o", "out.txt") == 2
    (here / "t.csv").write_text("a\n1\n")
    assert run("-i", "t.csv", "-o", "o.csv") == 2
    assert run("-i", "t.csv", "-o", "o.csv", "--template", "{b}") == 2
    assert batch("report", "nothing") == 2


@pytest.mark.slow  # it waits for the shortest lease
def test_a_run_that_a_full_disk_ended_goes_on_with_the_same_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "in.jsonl", *(request(one) for one in range(12)))
    record, kept = ItemQueue.record, 0

    def full(self: ItemQueue, *given: Any) -> Any:
        nonlocal kept
        if kept > 1:
            raise OutputError("the database cannot be written: the disk is full", hint="free some space")
        recorded = record(self, *given)
        kept += len(recorded)
        return recorded

    monkeypatch.setenv("BATCH_LEASE_SECONDS", "5")
    with monkeypatch.context() as patched:
        patched.setattr(ItemQueue, "record", full)
        assert run("-i", "in.jsonl", "-o", "out.jsonl", "--pipeline", "1") == 1
    assert "full" in capsys.readouterr().err
    assert not (here / "out.jsonl").exists()
    assert batch("report", "out.jsonl") == 0
    write(here / "other.jsonl", request(1))
    assert run("-i", "other.jsonl", "-o", "out.jsonl") == 2
    assert run("-i", "in.jsonl", "-o", "out.jsonl") == 0
    assert 1 < kept < 12
    assert f"going on: {kept} of 12" in capsys.readouterr().err
    assert [one["custom_id"] for one in lines(here / "out.jsonl")] == [f"c{one}" for one in range(12)]


def test_traces_of_a_run_are_kept_where_the_report_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "in.jsonl", request(1))
    assert run("-i", "in.jsonl", "-o", "out.jsonl", "--schema", json.dumps(SCHEMA), "--traces") == 0
    report = json.loads((here / "out.jsonl.report.json").read_text())
    trace_id = report["outliers"][0]["trace_id"]
    capsys.readouterr()
    assert main_code(["trace", "show", trace_id, "--database", f"sqlite:///{here}/out.jsonl.traces.db"]) == 0
    assert "nats" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_read_only_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "in.jsonl", request(1))
    (here / "shut").mkdir(mode=0o500)
    assert run("-i", "in.jsonl", "-o", "shut/out.jsonl") == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "in.jsonl", request(1))
    (here / "file").write_text("")
    assert run("-i", "in.jsonl", "-o", "file/out.jsonl") == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_batch_of_the_store_is_submitted_worked_on_and_fetched(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "in.jsonl", *(request(one, max_tokens=3) for one in range(3)))
    store = ["--database", f"sqlite:///{here}/s.db"]
    assert batch("submit", "in.jsonl", *store) == 0
    first = capsys.readouterr().out.strip()
    assert batch("submit", "in.jsonl", "--priority", "5", *store) == 0
    second = capsys.readouterr().out.strip()
    assert batch("cancel", second, *store) == 0
    assert batch("pause", first, *store) == 0
    assert batch("resume", first, *store) == 0
    assert batch("worker", "-m", "fake", "--until-idle", *store) == 0
    capsys.readouterr()
    assert batch("list", "--json", *store) == 0
    shown = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [(one["id"], one["status"]) for one in shown] == [(second, "cancelled"), (first, "completed")]
    assert batch("status", first, *store) == 0
    assert "3/3 ended" in capsys.readouterr().out
    assert batch("results", first, "-o", "r.jsonl", *store) == 0
    assert len(lines(here / "r.jsonl")) == 3
    assert batch("report", first, "--json", *store) == 0
    assert batch("status", "batch_none", *store) == 2


def recorded(path: Path) -> int:
    """How many results a run has in its database."""
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM batch_results").fetchone()[0])
        except sqlite3.OperationalError:  # its tables are not made yet
            return 0


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_runs_nothing_again(here: Path) -> None:
    write(here / "in.jsonl", *(request(one) for one in range(300)))
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "BATCH_LEASE_SECONDS": "5"}
    command = [sys.executable, "-m", "espalier", "batch", "run", "-m", "fake", "-i", "in.jsonl", "-o", "out.jsonl"]
    for number, how in enumerate((signal.SIGINT, signal.SIGKILL)):
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 120
        while time.monotonic() < until and recorded(here / "out.jsonl.batch" / "jobs.db") < 40 * (number + 1):
            time.sleep(0.05)
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode in (130, -signal.SIGKILL)
        if number == 0:
            assert "goes on" in said
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=240)
    assert "300 answered" in done.stderr
    found = lines(here / "out.jsonl")
    assert [one["custom_id"] for one in found] == [f"c{one}" for one in range(300)]
    assert all(one["response"]["status_code"] == 200 for one in found)
