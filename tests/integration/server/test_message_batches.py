"""Anthropic's batches of messages over HTTP, on the fake model. tests/clients has Anthropic's own client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server_app import make_app, settings

PATH = "/v1/messages/batches"
ASK: dict[str, Any] = {"max_tokens": 30, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with TestClient(make_app("Hello there.", config=config), raise_server_exceptions=False) as web:
        yield web


def create(web: TestClient, **params: dict[str, Any]) -> dict[str, Any]:
    """params: by custom_id."""
    requests = [{"custom_id": name, "params": body} for name, body in params.items()]
    reply = web.post(PATH, json={"requests": requests})
    assert reply.status_code == 200, reply.text
    batch: dict[str, Any] = reply.json()
    return batch


def ended(web: TestClient, batch: dict[str, Any]) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        shown: dict[str, Any] = web.get(f"{PATH}/{batch['id']}").json()
        assert sum(shown["request_counts"].values()) == sum(batch["request_counts"].values())
        if shown["processing_status"] == "ended":
            return shown
    raise AssertionError(shown)


def results(web: TestClient, batch: dict[str, Any]) -> dict[str, Any]:
    address = batch["results_url"].removeprefix("http://testserver")
    return {(line := json.loads(text))["custom_id"]: line["result"] for text in web.get(address).text.splitlines()}


@pytest.mark.slow
def test_each_request_has_its_message_or_what_is_wrong_with_it(web: TestClient) -> None:
    made = create(web, good=ASK, bad={**ASK, "temperature": -1}, none={"messages": ASK["messages"]})
    assert (made["type"], made["request_counts"]["processing"], made["results_url"]) == ("message_batch", 3, None)
    batch = ended(web, made)
    assert batch["request_counts"] == {"processing": 0, "succeeded": 1, "errored": 2, "canceled": 0, "expired": 0}
    assert batch["ended_at"] >= batch["created_at"]
    found = results(web, batch)
    assert list(found) == ["good", "bad", "none"]
    direct = web.post("/v1/messages", json=ASK).json()
    differs = {"id": "", "usage": {}}  # the prompt was in the prefix cache by then
    assert found["good"]["message"] | differs == direct | differs
    errors = {name: found[name]["error"]["error"] for name in ("bad", "none")}
    assert {name: error["type"] for name, error in errors.items()} == dict.fromkeys(errors, "invalid_request_error")
    assert errors["none"]["param"] == "max_tokens"
    purposes = {file["purpose"] for file in web.get("/v1/files").json()["data"]}
    assert purposes == {"batch_output"}  # the input was the server's own


@pytest.mark.slow
def test_batches_of_one_kind_are_listed_and_deleted_as_that_kind(web: TestClient) -> None:
    made = [ended(web, create(web, a=ASK)) for _ in range(3)][::-1]
    first = web.get(f"{PATH}?limit=2").json()
    assert ([batch["id"] for batch in first["data"]], first["has_more"]) == ([made[0]["id"], made[1]["id"]], True)
    assert web.get(f"{PATH}?after_id={first['last_id']}").json()["data"] == [made[2]]
    assert web.get("/v1/batches").json()["data"] == []
    assert web.delete(f"{PATH}/{made[0]['id']}").json()["type"] == "message_batch_deleted"
    missing = web.get(f"{PATH}/{made[0]['id']}")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.slow
def test_a_cancelled_batch_says_which_requests_never_ran(web: TestClient) -> None:
    long = {**ASK, "max_tokens": 400, "structured_outputs": {"regex": "a{400}"}}
    made = create(web, **{f"c{number}": long for number in range(60)})
    assert web.get(f"{PATH}/{made['id']}/results").status_code == 400
    until = time.monotonic() + 60
    while not web.get(f"{PATH}/{made['id']}").json()["request_counts"]["succeeded"]:
        assert time.monotonic() < until
    assert web.post(f"{PATH}/{made['id']}/cancel").json()["processing_status"] in ("canceling", "ended")
    batch = ended(web, made)
    assert batch["cancel_initiated_at"]
    assert batch["request_counts"]["canceled"] > 0
    kinds = [result["type"] for result in results(web, batch).values()]
    assert kinds.count("canceled") == batch["request_counts"]["canceled"]


@pytest.mark.parametrize(
    ("requests", "param"),
    [
        (None, "requests"),
        ([], "requests"),
        ([{"params": ASK}], "requests[0].custom_id"),
        ([{"custom_id": "a b", "params": ASK}], "requests[0].custom_id"),
        ([{"custom_id": "a"}], "requests[0].params"),
        ([{"custom_id": "a", "params": ASK}] * 2, "requests[1].custom_id"),
        ([{"custom_id": "a", "params": {**ASK, "stream": True}}], "requests[0].params.stream"),
    ],
)
def test_what_is_wrong_is_named(web: TestClient, requests: Any, param: str) -> None:
    reply = web.post(PATH, json={"requests": requests})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text
    assert reply.json()["type"] == "error"
