"""Every answer of a server is found again: by the id of its reply, by words, by what it cost; what is kept is what the
settings say, and a slow database holds nobody up."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from starlette.testclient import TestClient

from espalier.errors import InputError
from espalier.server.answering import generation
from espalier.server.apps import create_app
from espalier.server.environment import read_environment
from espalier.server.process import opening
from espalier.server.settings import ServerSettings, keep_limits, settings_of
from espalier.store import writer
from espalier.store.open import Store, open_store
from espalier.store.trace_filter import TraceFilter
from espalier.store.writer import TraceWriter
from espalier.trace.records import Trace
from tests.server_app import client, settings

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A secret garden, please"}],
    "max_tokens": 40,
    "temperature": 0,
}
SCHEMA = {"title": "Answer", "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}
WISH = '{"word": "hidden"}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/a.db")
    yield opened
    opened.close()


def server(store: Any, wish: str = WISH, **values: str) -> Any:
    return client(wish, config=settings(**{"trace_level": "summary", **values}), store=store)


def listed(c: TestClient, **query: Any) -> list[dict[str, Any]]:
    reply = c.get("/traces", params=query)
    assert reply.status_code == 200, reply.text
    rows: list[dict[str, Any]] = reply.json()["data"]
    return rows


@pytest.mark.parametrize("level", ["summary", "steps", "full"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_plain_reply_names_its_request_and_its_trace_and_both_find_it(store: Store, level: str, stream: bool) -> None:
    with server(store, trace_level=level) as c:
        reply = c.post(CHAT, json={**BODY, **JSON, "stream": stream})
        request_id, trace_id = reply.headers["x-request-id"], reply.headers["x-espalier-trace"]
        (row,) = listed(c, request_id=request_id)
        assert row["id"] == trace_id
        assert (row["prompt"], row["text"], row["valid"]) == ("A secret garden, please", WISH, True)
        assert (row["title"], row["constraint_kind"], row["level"]) == (
            "Answer",
            "json_schema",
            "summary" if level == "summary" else "steps",
        )
        trace = Trace.from_json(c.get(f"/traces/{trace_id}").json())
        assert row["tokens"] == trace.summary()["total_steps"] > 5, "not 0, as lists of sums once said"
        candidates = [len(step.pre_masking) for step in trace.steps]
        assert max(candidates, default=0) == {"summary": 0, "steps": 1, "full": 10}[level]
        assert row["total"] >= row["to_first_token"] >= 0
        assert row["template"].startswith("hash:")


def test_each_output_of_a_request_has_a_trace(store: Store) -> None:
    with server(store) as c:
        for stream in (False, True):
            reply = c.post(CHAT, json={**BODY, "n": 3, "stream": stream})
            ids = reply.headers["x-espalier-trace"].split(", ")
            rows = listed(c, request_id=reply.headers["x-request-id"])
            assert sorted(row["id"] for row in rows) == sorted(ids)
            assert {row["id"]: row["output_index"] for row in rows} == {one: at for at, one in enumerate(ids)}


@pytest.mark.parametrize(("level", "kept"), [("off", 0), ("asked", 1), ("summary", 2)])
def test_what_is_kept_is_one_setting(store: Store, level: str, kept: int) -> None:
    with server(store, trace_level=level) as c:
        plain = c.post(CHAT, json=BODY)
        asked = c.post(CHAT, json={**BODY, "espalier": {"trace": "steps"}})
        assert len(store.traces(TraceFilter(), limit=9)) == kept
        assert ("x-espalier-trace" in plain.headers) == (kept == 2)
        assert ("x-espalier-trace" in asked.headers) == (kept > 0)


@pytest.mark.parametrize("policy", ["no", "hash"])
@pytest.mark.parametrize("level", ["summary", "full"])
def test_without_texts_nothing_of_prompt_and_output_is_in_the_database(
    store: Store, tmp_path: Path, policy: str, level: str
) -> None:
    with server(store, trace_texts=policy, trace_level=level) as c:
        for _ in range(2):
            reply = c.post(CHAT, json={**BODY, **JSON, "espalier": {"trace": "steps"}})
        body = json.dumps(store.trace(reply.headers["x-espalier-trace"], caller=None))
        rows = listed(c)
    for text in ("secret", "garden", "hidden", "brief", "A secret garden, please"):
        assert text not in body + json.dumps(rows)
    assert [row["tokens"] > 5 and row["worst_path"] for row in rows] == ["/", "/"]
    assert [row["text"].startswith("hash:") for row in rows] == [policy == "hash"] * 2
    assert rows[0]["prompt"] == rows[1]["prompt"], "equal prompts are found"
    store.close()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"garden" not in raw
    assert b"hidden" not in raw


def test_filters_search_and_cursor_are_one_query(store: Store) -> None:
    with server(store, "purple rain") as c:
        apples = {"messages": [{"role": "user", "content": "Sing of apples"}], "max_tokens": 6, "ignore_eos": True}
        free = c.post(CHAT, json=apples)
        held = c.post(CHAT, json={**BODY, "structured_outputs": {"regex": "[a-z]{3}"}})
        cut = c.post(CHAT, json={**BODY, **JSON, "max_tokens": 3})
        ids = [reply.headers["x-espalier-trace"] for reply in (free, held, cut)]

        def found(**query: Any) -> list[int]:
            return [ids.index(row["id"]) for row in listed(c, **query)]

        rows = {ids.index(row["id"]): row for row in listed(c)}
        assert found() == [2, 1, 0]
        assert found(q="apples") == [0]
        assert found(q='"secret garden"') == [2, 1]
        assert found(q="garden -answer") == [1]
        assert found(constraint="none") == [0]
        assert found(constraint="regex") == found(constraint="[a-z]") == [1]
        assert found(constraint=rows[2]["fingerprint"]) == found(constraint="Answer") == [2]
        assert found(verdict="invalid") == found(verdict="flagged") == found(path="/") == [2]
        assert found(verdict="valid") == [1]
        assert found(verdict="unknown") == [0]
        assert found(finish="length", constraint="Answer") == [2]
        assert found(min_tokens=rows[0]["tokens"]) == [0]
        assert found(min_tax=rows[1]["tax_nats"]) == sorted(
            (at for at in rows if rows[at]["tax_nats"] >= rows[1]["tax_nats"]), reverse=True
        )
        assert found(since=rows[1]["created"]) == [2, 1]
        assert found(until=rows[1]["created"]) == [0]
        assert found(model="other") == []
        assert found(limit=2) == [2, 1]
        assert found(limit=2, after=ids[1]) == [0]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("reqest_id=x", "reqest_id"),
        ("verdict=good", "verdict"),
        ("since=today", "since"),
        ("since=1e305", "since"),
        ("min_tokens=1.5", "min_tokens"),
        ("min_tokens=1e300", "min_tokens"),
        ("min_tax=-1", "min_tax"),
        ("min_tax=nan", "min_tax"),
        ("q=...", "query"),
        ("limit=0", "limit"),
    ],
)
def test_a_filter_that_cannot_be_had_is_refused_by_name(store: Store, query: str, field: str) -> None:
    with server(store) as c:
        reply = c.get(f"/traces?{query}")
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_no_get_route_ignores_a_query_parameter(store: Store, tmp_path: Path) -> None:
    config = settings(trace_level="summary", database_url=f"sqlite:///{tmp_path}/b.db", batch_jobs="true")
    with client(config=config) as c:
        described = c.get("/openapi.json").json()["paths"]
        paths = [re.sub("[{}]", "", path) for path, methods in described.items() if "get" in methods]
        assert len(paths) > 30
        for path in (*paths, "/", "/docs", "/openapi.json", "/playground/inspector.css", "/v1/health", "/models"):
            reply = c.get(path, params={"surprise": "1"})
            assert reply.status_code == (422 if path.startswith("/v1/batch/jobs") else 400), path
            assert "surprise" in reply.text, path
            if reply.status_code == 422:
                assert reply.json()["detail"][0]["loc"] == ["query", "surprise"]
        assert c.get("/v1/models", params={"beta": "true"}).status_code == 200, "what SDKs send"
        assert c.delete("/traces/trc_x", params={"surprise": "1"}).status_code == 404, "it filters nothing"


def test_feedback_flags_an_answer_and_takes_the_flag_back(store: Store) -> None:
    with server(store) as c:
        request_id = c.post(CHAT, json=BODY).headers["x-request-id"]

        def say(**said: Any) -> Any:
            return c.post("/v1/feedback", json={"request_id": request_id, **said}).json()

        assert listed(c, verdict="flagged") == []
        assert say(score=0) == {"object": "feedback", "request_id": request_id, "name": "user", "flagged": True}
        assert len(listed(c, verdict="flagged")) == 1
        assert say(score=1)["flagged"] is False, "the same name, said anew"
        assert say(text="the colour is wrong", name="anna")["flagged"] is True
        assert say(score=4, flag=True, name="stars")["flagged"] is True
        said = c.get("/v1/feedback", params={"request_id": request_id}).json()["data"]
        assert [(row["name"], row["score"], row["text"], row["flag"]) for row in said] == [
            ("user", 1.0, None, False),
            ("anna", None, "the colour is wrong", True),
            ("stars", 4.0, None, True),
        ]
        assert say()["error"]["param"] == "score"
        unknown = c.post("/v1/feedback", json={"request_id": "req-nobody", "score": 0})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "request_id")


KEYS = """
[[key]]
name = "anna"
key = "anna-anna-anna"
[[key]]
name = "ben"
key = "ben-ben-ben-ben"
[[key]]
name = "ops"
key = "ops-ops-ops-ops"
admin = true
"""


def test_tenants_see_their_own_and_an_admin_sees_all(store: Store, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(KEYS)
    with server(store, api_keys_file=str(tmp_path / "keys.toml"), store_generations="figures") as c:

        def of(name: str) -> dict[str, str]:
            return {"authorization": f"Bearer {'-'.join([name] * (3 if name == 'anna' else 4))}"}

        ids = {name: c.post(CHAT, json=BODY, headers=of(name)).headers["x-request-id"] for name in ("anna", "ben")}
        seen = {name: c.get("/traces", headers=of(name)).json()["data"] for name in ("anna", "ben", "ops")}
        assert [row["request_id"] for row in seen["anna"]] == [ids["anna"]]
        assert [row["request_id"] for row in seen["ben"]] == [ids["ben"]]
        assert [(row["request_id"], row["caller"]) for row in seen["ops"]] == [
            (ids["ben"], "ben"),
            (ids["anna"], "anna"),
        ]
        assert "caller" not in seen["ben"][0]
        trace = f"/traces/{seen['ben'][0]['id']}"
        assert c.get(trace, headers=of("anna")).status_code == 404
        assert c.get(trace, headers=of("ops")).status_code == 200
        blame = {"request_id": ids["ben"], "score": 0}
        assert c.post("/v1/feedback", json=blame, headers=of("anna")).status_code == 404
        assert c.post("/v1/feedback", json=blame, headers=of("ops")).json()["flagged"] is True
        assert c.get("/traces?verdict=flagged", headers=of("ben")).json()["data"][0]["flagged"] is True
        said = c.get(f"/v1/feedback?request_id={ids['ben']}", headers=of("ben")).json()["data"]
        assert [row["score"] for row in said] == [0.0]


def test_a_browser_gets_a_page_that_runs_only_its_own_script(store: Store) -> None:
    with server(store) as c:
        page = c.get("/traces?verdict=flagged", headers={"accept": "text/html,*/*"})
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert c.get("/traces").headers["content-type"] == "application/json"


class Stuck:
    """A store whose writes wait until they are let go."""

    def __init__(self, store: Store) -> None:
        self._store, self.begun, self.go = store, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def save_trace(self, *args: Any, **more: Any) -> str:
        self.begun.set()
        self.go.wait(60)
        return self._store.save_trace(*args, **more)


@pytest.mark.slow
def test_a_locked_database_stalls_no_reply_and_what_is_lost_is_counted(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(opening, "TraceWriter", partial(TraceWriter, most_waiting=2))
    for module in (generation, writer):
        monkeypatch.setattr(module, "SLOW_SECONDS", 0.1)
    stuck = Stuck(store)
    with server(stuck) as c:
        first = c.post(CHAT, json=BODY)
        assert first.status_code == 200, "after the wait for a slow database"
        assert stuck.begun.wait(60)
        monkeypatch.setattr(generation, "SLOW_SECONDS", 120.0)
        monkeypatch.setattr(writer, "SLOW_SECONDS", 0.0)
        replies = [c.post(CHAT, json=BODY) for _ in range(6)]
        assert all(reply.elapsed.total_seconds() < 60.0 for reply in replies), "nobody waits any more"
        assert not any("x-espalier-trace" in reply.headers for reply in (first, *replies)), "none is stored yet"
        dropped = next(
            line for line in c.get("/metrics").text.splitlines() if line.startswith("espalier:traces_dropped_t")
        )
        assert float(dropped.split()[-1]) == 4, "one is being written, two wait"
        stuck.go.set()
    assert len(store.traces(TraceFilter(), limit=20)) == 3, "the end waits for what is in the queue"


def test_steps_that_nobody_asked_for_refuse_no_request(store: Store) -> None:
    with server(store, trace_level="full", max_candidates="100") as c:
        few = c.post(CHAT, json={**BODY, "max_tokens": 40})
        many = c.post(CHAT, json={**BODY, "max_tokens": 4000})
        assert (few.status_code, many.status_code) == (200, 200)
        levels = {row["id"]: row["level"] for row in listed(c)}
        # The vocabulary of the fake model is wider than 100, and so is the room.
        assert levels[few.headers["x-espalier-trace"]] == "steps"
        assert levels[many.headers["x-espalier-trace"]] == "summary"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("7d", (7 * 86_400.0, None)),
        ("10000", (None, 10_000)),
        ("7d,10000", (7 * 86_400.0, 10_000)),
        ("500 | 12h", (12 * 3600.0, 500)),
        ("forever", (None, None)),
    ],
)
def test_how_long_traces_are_kept(text: str, limits: tuple[float | None, int | None]) -> None:
    assert keep_limits(text) == limits
    assert settings(keep_traces=text).keep_traces == text


@pytest.mark.parametrize("text", ["7", "0d", "0", "-1", "7d,8d", "10,20", "a week", "7d 10"])
def test_what_says_no_time_to_keep_traces_is_refused(text: str) -> None:
    if text == "7":
        assert keep_limits(text) == (None, 7)
        return
    with pytest.raises(InputError, match="7d or 12h") as caught:
        settings(keep_traces=text)
    assert caught.value.field == "KEEP_TRACES"


@pytest.mark.parametrize(
    ("given", "flags", "level"),
    [
        ({"STORE_TRACES": "never"}, {}, "off"),
        ({"STORE_TRACES": "asked", "TRACE_LEVEL": "steps"}, {}, "asked"),
        ({"STORE_TRACES": "always"}, {}, "summary"),
        ({"STORE_TRACES": "always", "TRACE_LEVEL": "full"}, {}, "full"),
        ({"STORE_TRACES": "never"}, {"TRACE_LEVEL": "steps"}, "steps"),
        ({"TRACE_LEVEL": "off"}, {}, "off"),
        ({}, {}, "summary"),
    ],
)
def test_the_old_name_of_the_setting_still_works_and_is_told(
    given: dict[str, str], flags: dict[str, str], level: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = read_environment(given, flags=flags)
    assert settings_of(environment.values).trace_level == level
    told = [note for note in environment.notes if "STORE_TRACES" in note]
    assert len(told) == ("STORE_TRACES" in given and not flags)
    assert all(f"TRACE_LEVEL={level}" in note for note in told)
    with pytest.raises(InputError, match="STORE_TRACES=sometimes"):
        read_environment({"STORE_TRACES": "sometimes"})


def test_an_application_without_settings_keeps_the_sums_of_every_answer() -> None:
    assert ServerSettings().trace_level == "summary"
    assert create_app(settings()) is not None
