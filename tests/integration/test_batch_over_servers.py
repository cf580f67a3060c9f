"""`espalier batch run --executor openai`: a server that is busy, fails, cuts its answers off, or breaks constraints.

Every item has exactly one result.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from espalier.cli.main import main_code
from espalier.jobs.retry import Retry
from tests.scripted_server import STREAM, Asked, Hang, event, reply, scripted_server

CHAT = "/v1/chat/completions"
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    monkeypatch.setattr(Retry, "after", quick(Retry.after))
    return tmp_path


def quick(after: Any) -> Any:
    """Pauses are asked for as ever, noted, and not waited for."""

    def noted(self: Retry, status: int, attempts: int, rng: Any, passes: float | None = None) -> float | None:
        found = after(self, status, attempts, rng, passes)
        PAUSES.append((status, found))
        return None if found is None else 0.0

    PAUSES.clear()
    return noted


PAUSES: list[tuple[int, float | None]] = []


def says(text: str) -> list[bytes | Hang]:
    def delta(content: str | None, finish: str | None) -> bytes:
        return event({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]})

    return [STREAM, delta(text, None), delta(None, "stop"), event(USAGE), event("[DONE]")]


def models() -> list[bytes | Hang]:
    return [reply({"object": "list", "data": [{"id": "toy", "owned_by": "someone"}]})]


def prompt_of(asked: Asked) -> str:
    return str(asked.body["messages"][-1]["content"])


def write(path: Path, count: int, **more: Any) -> None:
    lines = [
        {
            "custom_id": f"c{i}",
            "method": "POST",
            "url": CHAT,
            "body": {"messages": [{"role": "user", "content": str(i)}], "temperature": 0, "max_tokens": 8, **more},
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def run(url: str, *arguments: str) -> int:
    return main_code(
        ["batch", "run", "-i", "in.jsonl", "-o", "out.jsonl", "--executor", "openai", "--url", url, *arguments]
    )


def results(here: Path) -> list[dict[str, Any]]:
    found = [json.loads(one) for one in (here / "out.jsonl").read_text().splitlines()]
    assert [one["custom_id"] for one in found] == [f"c{i}" for i in range(len(found))]
    return found


def content(one: dict[str, Any]) -> str:
    return str(one["response"]["body"]["choices"][0]["message"]["content"])


@pytest.mark.slow
def test_every_item_has_one_result_though_the_server_is_busy_fails_and_cuts_answers_off(here: Path) -> None:
    write(here / "in.jsonl", 24)
    seen: Counter[str] = Counter()
    lock, running, most = threading.Lock(), [0], [0]

    def answer(asked: Asked) -> Sequence[bytes | Hang]:
        if asked.path == "/v1/models":
            return models()
        number = prompt_of(asked)
        with lock:
            seen[number] += 1
            first = seen[number] == 1
            running[0] += 1
            most[0] = max(most[0], running[0])
        try:
            if first and int(number) % 4 == 0:
                return [reply({"error": {"message": "slow down"}}, "429 Too Many Requests", Retry_After="7")]
            if first and int(number) % 4 == 1:
                return [reply({"error": {"message": "oops"}}, "500 Internal Server Error")]
            if first and int(number) % 4 == 2:
                return [STREAM, event({"choices": [{"index": 0, "delta": {"content": "hal"}, "finish_reason": None}]})]
            if first:
                return [reply({"error": {"message": "loading"}}, "503 Service Unavailable")]
            return says(f"answer {number}")
        finally:
            with lock:
                running[0] -= 1

    with scripted_server(answer) as server:
        assert run(server.address, "--pipeline", "5") == 0
    found = results(here)
    assert [content(one) for one in found] == [f"answer {i}" for i in range(24)]
    assert set(seen.values()) == {2}
    assert most[0] <= 5
    asked_for = [pause for status, pause in PAUSES if status == 429]
    assert len(asked_for) == 6
    assert all(pause is not None and 7.0 <= pause <= 8.4 for pause in asked_for)
    assert {status for status, _ in PAUSES} == {429, 502, 503}


@pytest.mark.slow
def test_a_server_that_is_never_ready_ends_the_batch_with_errors(here: Path) -> None:
    """It gave its items back untried, for ever."""
    write(here / "in.jsonl", 2)

    def answer(asked: Asked) -> Sequence[bytes | Hang]:
        return models() if asked.path == "/v1/models" else [reply({"error": "no"}, "503 Service Unavailable")]

    with scripted_server(answer) as server:
        assert run(server.address, "--tries", "2") == 1
        assert sum(one.path != "/v1/models" for one in server.asked) == 4
    assert [one["response"]["status_code"] for one in results(here)] == [503, 503]


REGEX = {"structured_outputs": {"regex": "[0-9]+"}}


def test_a_constraint_that_the_server_cannot_hold_is_refused_by_name(here: Path) -> None:
    write(here / "in.jsonl", 1, **REGEX)
    with scripted_server(lambda asked: models() if asked.path == "/v1/models" else says("7")) as server:
        assert run(server.address) == 1
        assert [one.path for one in server.asked] == ["/v1/models"]
    (one,) = results(here)
    assert "cannot enforce regex" in json.dumps(one)


def test_on_request_it_is_checked_and_asked_for_again_and_the_report_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "in.jsonl", 3, **REGEX)
    seen: Counter[str] = Counter()
    seeds: dict[str, set[int]] = {}

    def answer(asked: Asked) -> Sequence[bytes | Hang]:
        if asked.path == "/v1/models":
            return models()
        number = prompt_of(asked)
        seen[number] += 1
        seeds.setdefault(number, set()).add(asked.body["seed"])
        assert "structured_outputs" not in asked.body
        return says("77" if seen[number] > int(number) else "no digits")  # 0: at once, 1: at the second answer

    with scripted_server(answer) as server:
        assert run(server.address, "--repair", "1") == 1  # one answer never became valid
    assert [content(one) for one in results(here)] == ["77", "77", "no digits"]
    assert seen == {"0": 1, "1": 2, "2": 2}
    assert {number: len(found) for number, found in seeds.items()} == {"0": 1, "1": 2, "2": 2}
    report = json.loads((here / "out.jsonl.report.json").read_text())
    assert report["checked"] == {"regex": {"sent": False, "answers": 3, "again": 2, "broken": 1}}
    assert report["verdicts"] == {"valid": 2, "invalid": 1}
    assert "regex: not sent, only checked: 3 answers, 2 asked for again, 1 never valid" in capsys.readouterr().err


@pytest.mark.slow
def test_a_constraint_that_was_sent_is_asked_for_again_too(here: Path) -> None:
    write(here / "in.jsonl", 1, response_format=SCHEMA)
    texts = iter(['"x"', "5"])
    with scripted_server(lambda asked: models() if asked.path == "/v1/models" else says(next(texts))) as server:
        assert run(server.address, "--repair", "3") == 0
        assert server.asked[-1].body["response_format"]["type"] == "json_schema"
    assert content(results(here)[0]) == "5"
    assert json.loads((here / "out.jsonl.report.json").read_text())["checked"]["json_schema"]["sent"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--executor", "nowhere"], "no executor"),
        (["--executor", "openai"], "address"),
        (["--executor", "openai", "--url", "http://127.0.0.1:1", "--engine", "llama-server"], "leave --engine out"),
    ],
)
def test_an_executor_that_cannot_be_had_is_a_usage_error(
    here: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "in.jsonl", 1)
    assert main_code(["batch", "run", "-i", "in.jsonl", "-o", "out.jsonl", *arguments]) == 2
    assert said in capsys.readouterr().err
