"""The routes of stored traces: pages of lists, a caller's own traces only, JSON and HTML, errors."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from fastapi import Depends, FastAPI
from starlette.testclient import TestClient

from espalier.errors import OutputError, TooManyRequests, Unauthorized
from espalier.server.apps import TRACE_ROUTERS
from espalier.server.http import errors
from espalier.server.http.query import check_query
from espalier.server.ports import Caller
from espalier.server.routes.trace_list import MAX_LIMIT
from espalier.store.open import Store, open_store
from espalier.trace.files import json_text
from tests.server_app import make_process
from tests.traces import sample_trace

TRACE = sample_trace(6).to_json()
NEVER_MADE = "trc_0000000ygj0a98ctdkh7f8bdpdw"


class Door:
    """A gate that knows its callers by their tokens, and counts who is admitted."""

    def __init__(self) -> None:
        self.admitted: list[str] = []
        self.is_full = False

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        token = (authorization or "").removeprefix("Bearer ") or query_token
        if token not in ("anna", "ben"):
            raise Unauthorized()
        return Caller(name=token)

    def admit_cheap(self, caller: Caller) -> None:
        """No limit."""

    def charge(self, name: str, seconds: float) -> None:
        """No account."""

    @contextlib.asynccontextmanager
    async def admit(self, caller: Caller, *, requests: int = 1, sequences: int = 0) -> Any:
        if self.is_full:
            raise TooManyRequests("full", retry_after=7)
        self.admitted.append(caller.name)
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/a.db")
    yield opened
    opened.close()


def client_of(store: Any, *, token: str | None = "anna") -> TestClient:
    app = FastAPI(dependencies=[Depends(check_query)])
    app.state.process = make_process(gate=Door(), store=store)
    errors.install(app)
    for router in TRACE_ROUTERS:
        app.include_router(router)
    return TestClient(app, headers={"authorization": f"Bearer {token}"} if token else None)


@pytest.mark.parametrize("address", ["", f"/{NEVER_MADE}", f"/{NEVER_MADE}/page"])
def test_reading_traces_passes_the_gate(store: Store, address: str) -> None:
    client = client_of(store)
    gate = client.app.state.process.gate  # type: ignore[attr-defined]  # of FastAPI
    client.get(f"/traces{address}")
    assert gate.admitted == ["anna"]
    gate.is_full = True
    assert client.get(f"/traces{address}").status_code == 429
    assert client.delete(f"/traces/{NEVER_MADE}").status_code == 429


def save(store: Store, trace: dict[str, Any] = TRACE, caller: str = "anna") -> str:
    return store.save_trace(trace, request_id="req", caller=caller, index=0, route="/v1/completions")


def test_a_list_goes_page_by_page_newest_first(store: Store) -> None:
    made = [save(store) for _ in range(5)][::-1]
    client = client_of(store)
    first = client.get("/traces?limit=2").json()
    assert {**first, "data": [row["id"] for row in first["data"]]} == {
        "object": "list",
        "data": made[:2],
        "has_more": True,
        "last_id": made[1],
    }
    row = first["data"][0]
    assert row["object"] == "trace"
    assert (row["model"], row["tokens"], row["route"]) == ("demo-24m", 6, "/v1/completions")
    assert not {"caller", "body", "steps"} & set(row)
    assert len(row["text"]) <= 200
    save(store)
    last = client.get("/traces", params={"limit": 3, "after": first["last_id"]}).json()
    assert [row["id"] for row in last["data"]] == made[2:]
    assert last["has_more"] is False


def test_a_list_of_nothing_is_a_list(store: Store) -> None:
    assert client_of(store).get("/traces").json() == {"object": "list", "data": [], "has_more": False, "last_id": None}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        f"limit={MAX_LIMIT + 1}",
        "limit=-1",
        "limit=x",
        "limit=",
        "limit=1.5",
        "limit=%D9%A3",
        "limit=99999999999999999999",
    ],
)
def test_a_limit_out_of_its_range_is_a_400_that_names_it(store: Store, query: str) -> None:
    answer = client_of(store).get(f"/traces?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


@pytest.mark.parametrize("after", ["x", "", "trc_%00", "%ED%A0%80", "gen_" + "0" * 27])
def test_an_after_that_is_no_id_is_a_400_that_names_it(store: Store, after: str) -> None:
    answer = client_of(store).get(f"/traces?after={after}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


def test_one_trace_is_answered_as_it_was_made_and_kept_by_nobody_on_the_way(store: Store) -> None:
    odd = {**TRACE, "text": "\0 \ud800 é 🌿 </script>"}
    answer = client_of(store).get(f"/traces/{save(store, odd)}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "private, no-store"
    assert json.loads(answer.content) == odd


def test_the_page_is_the_page_of_the_trace_under_its_own_policy(store: Store) -> None:
    odd = {**TRACE, "text": '<meta http-equiv="Content-Security-Policy" content="default-src *">\ud800'}
    odd["metadata"] = {**TRACE["metadata"], "asked": odd["text"], "model": odd["text"]}
    answer = client_of(store).get(f"/traces/{save(store, odd)}/page")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["style-src"])
    assert policy["frame-ancestors"] == "'self'"
    assert policy["sandbox"] == "allow-scripts allow-downloads"  # and not allow-same-origin
    embedded = re.search(r'id="trace-data">(.*?)</script>', answer.text)
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads(json_text(odd))


def test_anothers_trace_is_answered_as_one_that_never_was(store: Store) -> None:
    bens = save(store, caller="ben")
    client = client_of(store)
    for method, end in (("GET", ""), ("GET", "/page"), ("DELETE", "")):
        answers = [
            client.request(method, f"/traces/{one}{end}") for one in (bens, NEVER_MADE, "x", "%00", "trc_%ED%A0%80")
        ]
        assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[0].text)}
        assert "no such trace" in answers[0].json()["error"]["message"]
    assert client.get("/traces").json()["data"] == []
    assert store.trace(bens, caller="ben") == TRACE


def test_a_deleted_trace_is_gone(store: Store) -> None:
    trace_id = save(store)
    client = client_of(store)
    answer = client.delete(f"/traces/{trace_id}")
    assert answer.json() == {"id": trace_id, "object": "trace.deleted", "deleted": True}
    assert client.get(f"/traces/{trace_id}").status_code == 404
    assert client.delete(f"/traces/{trace_id}").status_code == 404


@pytest.mark.parametrize("path", ["/traces", f"/traces/{NEVER_MADE}", f"/traces/{NEVER_MADE}/page"])
def test_without_a_key_nothing_is_said(store: Store, path: str) -> None:
    assert client_of(store, token=None).get(path).status_code == 401
    assert client_of(None, token=None).get(path).status_code == 401
    assert client_of(store, token=None).get(f"{path}?token=anna").status_code in (200, 404)


@pytest.mark.parametrize("path", ["/traces", f"/traces/{NEVER_MADE}", f"/traces/{NEVER_MADE}/page"])
def test_without_a_store_the_answer_names_the_setting(path: str) -> None:
    answer = client_of(None).get(path)
    assert answer.status_code == 404
    assert "TRACE_LEVEL" in answer.json()["error"]["message"]


def test_a_database_that_fails_is_an_error_in_the_usual_shape() -> None:
    class Broken:
        def traces(self, *_: Any, **__: Any) -> Any:
            raise OutputError("the database is damaged")

    answer = client_of(Broken()).get("/traces")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "output_error"


def test_the_routes_document_what_they_take_and_answer(store: Store) -> None:
    app = client_of(store).app
    assert isinstance(app, FastAPI)
    paths = app.openapi()["paths"]
    assert [one["name"] for one in paths["/traces"]["get"]["parameters"]][:3] == ["limit", "after", "request_id"]
    assert set(paths["/traces/{trace_id}"]) == {"get", "delete"}
    assert "text/html" in paths["/traces/{trace_id}/page"]["get"]["responses"]["200"]["content"]
