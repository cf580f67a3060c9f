"""A server, its worker inside, is killed with SIGKILL at random moments of a batch that came over HTTP, and started
again: one result for each item, in order, nothing run again after it was recorded, and uploads whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import func, select

from espalier.store.batches import ATTEMPTS, RESULTS
from tests.batch_jobs import open_batches
from tests.examples import examples
from tests.server_process import ROOT, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")]

CHAT = "/v1/chat/completions"
LEASE = 2.0
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ENDED = ("completed", "failed", "expired", "cancelled")


class Servers:
    """One server after the other on the same folder."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid, self.url = 0, ""

    def _line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = self._line()
        self.pid, self.url = found["pid"], found["url"]
        assert httpx2.get(f"{self.url}/ready", timeout=60).status_code == 200  # it listens before it has started

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self._line() == {"signal": signal.SIGKILL}, "the server had ended by itself"
        self.pid = 0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.batch_server", str(tmp_path), str(LEASE)],
        text=True,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(ESPALIER_CACHE_DIR="off"),
    )
    made = Servers(process)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield made
    finally:
        if made.pid:
            os.kill(made.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def items(count: int) -> bytes:
    def line(number: int) -> dict[str, Any]:
        body = {
            "model": "fake",
            "messages": [{"role": "user", "content": f"q {number}"}],
            "temperature": 0,
            "max_tokens": 40,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        }
        return {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}

    return b"".join(json.dumps(line(one)).encode() + b"\n" for one in range(1, count + 1))


def upload(url: str, content: bytes) -> str:
    made = httpx2.post(f"{url}/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"}, timeout=60)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def status(url: str, batch_id: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{url}/v1/batches/{batch_id}", timeout=60).json()
    return found


def test_a_server_killed_at_random_moments_leaves_one_result_for_each_item(servers: Servers, tmp_path: Path) -> None:
    """12 kills and 480 items; BATCH_KILLS=50 makes them 50 and 2,000."""
    kills = int(os.environ.get("BATCH_KILLS") or examples(12))
    rng, count, began = random.Random(5), 40 * kills, time.monotonic()
    servers.start()
    batch = httpx2.post(
        f"{servers.url}/v1/batches",
        timeout=60,
        json={"input_file_id": upload(servers.url, items(count)), "endpoint": CHAT, "completion_window": "24h"},
    ).json()
    big, kept, open_kills = os.urandom(8_000_000), [], 0

    def upload_meanwhile(url: str) -> None:
        with contextlib.suppress(httpx2.HTTPError):  # the server dies meanwhile, at some moment or other
            while True:
                kept.append(upload(url, big))

    for _ in range(kills):
        uploading = threading.Thread(target=upload_meanwhile, args=(servers.url,))
        uploading.start()
        time.sleep(rng.uniform(0.0, 1.2))
        with contextlib.suppress(httpx2.HTTPError):
            open_kills += status(servers.url, batch["id"])["status"] not in ENDED
        servers.kill()
        uploading.join()
        servers.start()
    until = time.monotonic() + 240
    while (found := status(servers.url, batch["id"]))["status"] not in ENDED and time.monotonic() < until:
        time.sleep(0.2)
    took = time.monotonic() - began
    sys.stdout.write(f"{kills} kills, {open_kills} in mid-batch, {count} items, {len(kept)} uploads, {took:.0f} s\n")
    assert found["status"] == "completed"
    assert found["request_counts"] == {"total": count, "completed": count, "failed": 0}
    text = httpx2.get(f"{servers.url}/v1/files/{found['output_file_id']}/content", timeout=60).text
    lines = [json.loads(one) for one in text.splitlines()]
    assert [one["custom_id"] for one in lines] == [f"c{one}" for one in range(1, count + 1)]
    for one in lines:
        jsonschema.validate(json.loads(one["response"]["body"]["choices"][0]["message"]["content"]), SCHEMA)
    assert open_kills >= kills // 2, "the batch ended too early to be killed"
    check_attempts(tmp_path, count)
    kept.append(upload(servers.url, big))  # on a slow machine each one before may have been cut
    check_uploads(servers.url, kept, big)


def check_attempts(folder: Path, count: int) -> None:
    """One result for each item, and no attempt that began after it."""
    store = open_batches(f"sqlite:///{folder}/e.db", folder / "files")
    try:
        with store.database.reading() as connection:
            assert connection.execute(select(func.count()).select_from(RESULTS)).scalar_one() == count
            created = {row[0]: row[1] for row in connection.execute(select(RESULTS.c.line, RESULTS.c.created))}
            attempts = connection.execute(select(ATTEMPTS)).mappings().all()
    finally:
        store.database.close()
    assert sorted(one["line"] for one in attempts if one["outcome"] == "done") == list(range(1, count + 1))
    assert all(one["began"] <= created[one["line"]] for one in attempts), "an item was run again after its result"


def check_uploads(url: str, kept: list[str], content: bytes) -> None:
    """Every upload that was confirmed is there, and every one that is listed is whole."""
    listed = httpx2.get(f"{url}/v1/files", params={"limit": 1000}, timeout=60).json()["data"]
    wanted = [one["id"] for one in listed if one["purpose"] == "batch" and one["bytes"] != 0]
    assert set(kept) <= set(wanted)
    sizes = {one["bytes"] for one in listed if one["id"] in wanted}
    assert len(sizes) == 2, "an upload is there in part"  # the input and the others
    for one in wanted[:3] + wanted[-3:]:
        found = httpx2.get(f"{url}/v1/files/{one}/content", timeout=60).content
        assert found == content or found.startswith(b'{"custom_id"')
