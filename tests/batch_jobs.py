"""Helpers for tests of batch jobs: stores, inputs, executors that answer without a model, a real PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.jobs.values import Batch, BatchPlan, InputFault, ItemAnswer, WorkItem
from espalier.store import migrate
from espalier.store.batches.open import BatchStore
from espalier.store.db import open_database
from tests.ports import free_port

ROUTE = "/v1/completions"


class Clock:
    """Unix seconds, as told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Echo:
    """An Executor that answers with the prompt. Bodies with `wrong` are refused when they are read; `status` is what
    an item is answered with."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def check(self, endpoint: str, body: Mapping[str, Any], options: Mapping[str, Any], kind: str) -> ItemAnswer | None:
        if "wrong" in body:
            return ItemAnswer(status=400, body={"error": {"message": "wrong", "code": "bad_request"}}, request_id="r")
        return None

    def check_job(self, endpoint: str, options: Mapping[str, Any], kind: str) -> InputFault | None:
        return None

    async def execute(self, item: WorkItem) -> ItemAnswer:
        self.seen.append(item.custom_id)
        return answer(item.body.get("prompt", ""), item.body.get("status", 200))


def answer(text: str = "", status: int = 200) -> ItemAnswer:
    body = {"text": text} if status < 300 else {"error": {"message": text, "code": "failed"}}
    return ItemAnswer(status=status, body=body, request_id="req", prompt_tokens=2, completion_tokens=3, valid=True)


def line(number: int, **body: Any) -> dict[str, Any]:
    given = {"prompt": f"p{number}", **body}
    return {"custom_id": f"c{number}", "method": "POST", "url": ROUTE, "body": given}


def jsonl(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def open_batches(url: str, folder: Path, **options: Any) -> BatchStore:
    database = open_database(url)
    migrate.upgrade(database)
    return BatchStore(database, folder, **options)


def upload(store: BatchStore, content: bytes, caller: str = "me") -> str:
    with store.files.writing() as file:
        file.write(content)
        return str(store.files.add(file, caller=caller, filename="in.jsonl")["id"])


def submit(store: BatchStore, lines: Sequence[Mapping[str, Any]] | bytes, **plan: Any) -> Batch:
    """A new batch, not validated yet."""
    content = lines if isinstance(lines, bytes) else jsonl(lines)
    given = {"caller": "me", "endpoint": ROUTE, "input_file": upload(store, content), **plan}
    return store.batches.create(BatchPlan(**given))


def found(store: BatchStore, batch_id: str) -> Batch:
    batch = store.batches.get(batch_id, caller=None)
    assert batch is not None
    return batch


def results(store: BatchStore, batch_id: str, wanted: Any = "all") -> list[dict[str, Any]]:
    return [json.loads(one) for one in store.results.lines(batch_id, wanted)]


def postgres_folder() -> Path | None:
    """The folder of PostgreSQL's programs, None where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if program := shutil.which("initdb"):
        folders.append(Path(program).resolve().parent)
    return next((one for one in folders if (one / "initdb").exists() and (one / "postgres").exists()), None)


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A PostgreSQL of a test, which can be stopped and started again."""

    #: Of an empty database.
    url: str
    #: How its program is run, its options, and where its log goes.
    command: list[str]
    options: str
    log: Path

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [*self.command, "-o", self.options, "start"]
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=self.log.parent)

    def stop(self) -> None:
        command = [*self.command, "-m", "immediate", "stop"]
        subprocess.run(command, check=False, capture_output=True, cwd=self.log.parent)


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that lives as long as the context."""
    programs = postgres_folder()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="espalier-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "log").touch()
        as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres")
            shutil.chown(folder / "log", "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = folder / "data"
        subprocess.run(
            [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "espalier", "-A", "trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        port = free_port()
        server = PostgresServer(
            url=f"postgresql://espalier@127.0.0.1:{port}/postgres",
            command=[*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w"],
            options=f"-h 127.0.0.1 -p {port} -k {folder} -F",
            log=folder / "log",
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database of a PostgreSQL that lives as long as the context."""
    with postgres_server() as server:
        yield server.url
