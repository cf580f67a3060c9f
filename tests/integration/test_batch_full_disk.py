"""Batches on a disk that is really full, a small tmpfs: the failure says so, and what was done is kept for later."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from espalier.cli.main import main_code
from espalier.errors import OutputError
from espalier.jobs.states import BatchState
from espalier.jobs.worker import Worker
from espalier.store.batches.open import BatchStore
from espalier.store.batches.queue import ItemQueue
from espalier.store.batches.results import Results
from tests.batch_jobs import Clock, Echo, found, line, open_batches, results, submit
from tests.server_app import client, settings
from tests.small_disk import MIB, fill, mounted

CHAT = "/v1/chat/completions"
LATER = 1000.0
"""Seconds after which every lease has ended."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path)


def chat(number: int) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": f"{number}"}], "temperature": 0, "max_tokens": 80}
    return {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}


def fill_at(monkeypatch: pytest.MonkeyPatch, disk: Path, call: int) -> Path:
    """Fill the disk before that call of `record`, whose own write then fails. The path of what fills it."""
    record, count = ItemQueue.record, 0

    def counted(self: ItemQueue, *given: Any) -> Any:
        nonlocal count
        count += 1
        if count == call:
            fill(disk)
        return record(self, *given)

    monkeypatch.setattr(ItemQueue, "record", counted)
    return disk / "filler"


async def run(store: BatchStore, echo: Echo) -> None:
    await Worker(queue=store.queue, executor=echo, pipeline=2, window=1, until_idle=True, idle=0.05).run()


@pytest.mark.slow
def test_a_full_folder_of_uploads_is_said_over_http_and_nothing_is_left_there(disk: Path, tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", batch_job_temp_dir=str(disk))
    with client(config=config) as web:

        def post(content: bytes) -> Any:
            return web.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})

        reply = post(bytes(20 * MIB))
        assert reply.status_code == 507, reply.text
        assert "No space left" in reply.text
        assert str(disk) not in reply.text
        assert list(disk.iterdir()) == []
        assert web.get("/v1/files").json()["data"] == []
        kept = post(bytes(MIB))
        assert kept.status_code == 200
        assert web.get(f"/v1/files/{kept.json()['id']}/content").content == bytes(MIB)


def test_a_full_folder_of_uploads_is_said_by_submit(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCH_JOB_TEMP_DIR", str(disk))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(chat(one)) + "\n" for one in range(12_000)))  # 2 MB
    filler = fill(disk)
    os.truncate(filler, 15 * MIB)
    command = ["batch", "submit", str(tmp_path / "in.jsonl"), "--database", f"sqlite:///{tmp_path}/e.db"]
    assert main_code(command) == 1
    said = capsys.readouterr().err
    assert "No space left" in said
    assert "cannot read" not in said
    filler.unlink()
    assert list(disk.iterdir()) == []
    assert main_code(command) == 0


def test_a_full_disk_below_the_database_ends_the_worker_and_the_batch_goes_on(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    store = open_batches(f"sqlite:///{disk}/e.db", tmp_path / "files", clock=clock)
    batch = submit(store, [line(one, pad="x" * 200) for one in range(1, 301)])
    with monkeypatch.context() as patched:
        filler = fill_at(patched, disk, 20)
        echo = Echo()
        with pytest.raises(OutputError, match="the disk is full"):
            asyncio.run(run(store, echo))
    done = found(store, batch.id).counts.completed
    assert 0 < done < 300
    with pytest.raises(OutputError, match="the disk is full"):
        store.batches.pause(batch.id, caller=None, paused=True)
    filler.unlink()
    clock.now += LATER
    later = Echo()
    asyncio.run(run(store, later))
    assert found(store, batch.id).state == BatchState.COMPLETED
    assert [one["custom_id"] for one in results(store, batch.id)] == [f"c{one}" for one in range(1, 301)]
    assert len(later.seen) == 300 - done
    store.database.close()


@pytest.mark.slow
def test_an_input_that_a_full_disk_did_not_take_is_read_again(disk: Path, tmp_path: Path) -> None:
    clock = Clock()
    store = open_batches(f"sqlite:///{disk}/e.db", tmp_path / "files", clock=clock)
    batch = submit(store, [line(one, pad="x" * 200) for one in range(1, 401)])
    filler = fill(disk)
    with pytest.raises(OutputError, match="the disk is full"):
        asyncio.run(run(store, Echo()))
    filler.unlink()
    assert found(store, batch.id).state == BatchState.VALIDATING
    clock.now += LATER
    asyncio.run(run(store, Echo()))
    assert found(store, batch.id).counts.completed == 400
    store.database.close()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "meanwhile", "output"])
def test_a_run_on_a_full_disk_goes_on_with_the_same_command(
    moment: str, disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(disk)
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    monkeypatch.setenv("BATCH_LEASE_SECONDS", "5")
    (disk / "in.jsonl").write_text("".join(json.dumps(chat(one)) + "\n" for one in range(40)))
    command = ["batch", "run", "-m", "fake", "-i", "in.jsonl", "-o", "out.jsonl", "--pipeline", "2"]
    with monkeypatch.context() as patched:
        if moment == "before":
            fill(disk)
        elif moment == "meanwhile":
            fill_at(patched, disk, 5)
        else:
            fill_at_output(patched, disk)
        assert main_code(command) == 1
    said = capsys.readouterr().err
    assert "full" in said or "No space left" in said
    assert "Traceback" not in said
    assert not (disk / "out.jsonl").exists()
    (disk / "filler").unlink()
    assert main_code(command) == 0
    if moment != "before":
        assert "going on" in capsys.readouterr().err
    lines = [json.loads(one) for one in (disk / "out.jsonl").read_text().splitlines()]
    assert [one["custom_id"] for one in lines] == [f"c{one}" for one in range(40)]
    assert all(one["response"]["status_code"] == 200 for one in lines)
    assert sorted(one.name for one in disk.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.report.json"]


def fill_at_output(monkeypatch: pytest.MonkeyPatch, disk: Path) -> None:
    """Fill the disk when the output is about to be written."""
    lines = Results.lines

    def filled(self: Results, batch_id: str, wanted: Any) -> Iterator[bytes]:
        if wanted == "all":
            fill(disk)
        yield from lines(self, batch_id, wanted)

    monkeypatch.setattr(Results, "lines", filled)
