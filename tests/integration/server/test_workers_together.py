"""Two worker processes on one port: both reply, and they share limits, store and metrics."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from prometheus_client.parser import text_string_to_metric_families

from tests.server_process import FREE, KEYS, OTHER, TIGHT, ServerProcess, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="workers are told apart in /proc")]
URL = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "espalier": {"trace": True}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "keys.toml").write_text(KEYS)
    metrics = folder / "metrics"
    env = {
        "TRACE_LEVEL": "summary",
        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        "API_KEYS_FILE": str(folder / "keys.toml"),
    }
    with serving("--workers", "2", cwd=folder, env=env) as found:
        found.folder = folder  # type: ignore[attr-defined]
        yield found
        assert found.terminate() == 0
        assert "Traceback" not in found.text


def answering(server: ServerProcess) -> set[int]:
    """The processes that have counted an answer of the route."""
    from prometheus_client.mmap_dict import MmapedDict

    found = set()
    for path in (server.folder / "metrics").glob("counter_*.db"):  # type: ignore[attr-defined]
        if not path.stat().st_size:  # of a worker that begins just now
            continue
        values = MmapedDict.read_all_values_from_file(str(path))
        if any("http_responses" in key and URL in key and value for key, value, *_ in values):
            found.add(int(re.search(r"_(\d+)\.db$", path.name)[1]))  # type: ignore[index]
    return found


def test_both_answer_and_their_traces_and_figures_are_in_one_place(server: ServerProcess) -> None:
    kept: list[str] = []

    def ask(_: int) -> None:
        answer = server.post(URL, CHAT, headers=FREE)
        assert answer.status_code == 200, answer.text
        kept.extend(one["trace_id"] for one in answer.json()["espalier"]["outputs"])

    def both_have_answered() -> bool:
        list(pool.map(ask, range(16)))
        return len(answering(server)) == 2

    with ThreadPoolExecutor(8) as pool:  # the second listens once its model is loaded, maybe long after the first
        server.until(both_have_answered, "one worker has answered all")
    assert server.pid not in answering(server)

    def counted() -> float:
        text = server.get("/metrics", headers=FREE).text
        assert "vllm:request_success_total" in text
        return next(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "espalier:http_responses_total"
            and (sample.labels["route"], sample.labels["code"]) == (URL, "200")
        )

    # An answer is counted just after it is sent.
    server.until(lambda: counted() >= len(kept), "figures of both do not add up")
    for _ in range(6):  # whichever worker is asked
        found = server.get("/traces", params={"limit": 100}, headers=FREE).json()["data"]
        assert set(kept[-50:]) <= {one["id"] for one in found}
        assert all(server.get(f"/traces/{one}", headers=FREE).status_code == 200 for one in kept[:3])
        assert counted() == len(kept), "figures of both add up, whoever is asked"


def test_a_limit_holds_for_both_together(server: ServerProcess) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.post(URL, CHAT, headers=TIGHT), range(24)))
    given_back = (time.monotonic() - began) / 10
    statuses = Counter(one.status_code for one in answers)
    assert set(statuses) == {200, 429}
    assert 6 <= statuses[200] <= 7 + given_back, "six a minute"
    assert all(int(one.headers["retry-after"]) >= 1 for one in answers if one.status_code == 429)


def test_a_caller_meets_its_own_traces_alone_whoever_answers(server: ServerProcess) -> None:
    (mine,) = server.post(URL, CHAT, headers=FREE).json()["espalier"]["outputs"]
    for _ in range(6):
        assert server.get(f"/traces/{mine['trace_id']}", headers=OTHER).status_code == 404


def test_a_worker_that_is_killed_is_replaced(server: ServerProcess) -> None:
    before = children(server.pid)
    os.kill(min(before & answering(server)), signal.SIGKILL)

    def replaced() -> bool:
        assert server.get("/health").status_code in (200, 503)
        return bool(children(server.pid) - before)

    server.until(replaced, "there is no new worker")
    assert server.post(URL, CHAT, headers=FREE).status_code == 200


def children(pid: int) -> set[int]:
    """Processes that were started by this one and run Python's `spawn`, the tracker of resources left out."""
    found = set()
    for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{one}/cmdline").read_bytes()
        if b"spawn_main" in command:
            found.add(int(one))
    return found
