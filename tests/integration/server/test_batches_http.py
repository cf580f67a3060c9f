"""Files and batches over HTTP on the fake model: with OpenAI's own client, and the word-list server's routes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from espalier.engines.scheduling.scheduler import Scheduler
from espalier.errors import LimitExceeded
from espalier.server.batching import executor
from tests.server_app import fake_engine, make_app, served, settings

CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WISH = '{"name": "Ada", "age": 36}'


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    config = settings(
        batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", batch_max_bytes="100000", trace_level="asked"
    )
    return make_app(WISH, config=config)


@pytest.fixture
def web(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as found:
        yield found


def chat_line(custom_id: str, url: str = CHAT, **more: Any) -> dict[str, Any]:
    body = {"model": "fake", "messages": [{"role": "user", "content": f"q {custom_id}"}], "temperature": 0, **more}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def lines(*given: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in given)


def upload(web: TestClient, content: bytes, **fields: str) -> Any:
    return web.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch", **fields})


def run(web: TestClient, content: bytes, endpoint: str = CHAT, **more: Any) -> dict[str, Any]:
    """Create a batch and wait for its end."""
    file_id = upload(web, content).json()["id"]
    made = web.post("/v1/batches", json={"input_file_id": file_id, "endpoint": endpoint, **more})
    assert made.status_code == 200, made.text
    return ended(web, made.json()["id"])


def wait_until(holds: Callable[[], object], otherwise: str, *, seconds: float = 60) -> None:
    """Wait for a state."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.02)


def ended(web: TestClient, batch_id: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        batch: dict[str, Any] = web.get(f"/v1/batches/{batch_id}").json()
        if batch["status"] in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(batch)


def content(web: TestClient, file_id: str | None) -> list[dict[str, Any]]:
    return [json.loads(one) for one in web.get(f"/v1/files/{file_id}/content").text.splitlines()]


def test_the_openai_client_runs_a_batch_unchanged(app: FastAPI, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(*(chat_line(f"c{one}", max_tokens=40) for one in range(5))))
    with served(app) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        file = client.files.create(file=path, purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
        assert file.id.startswith("file-")
        assert file.bytes == path.stat().st_size
        assert client.files.content(file.id).read() == path.read_bytes()
        batch = client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"for": "a test"}
        )
        assert batch.status in ("validating", "in_progress")
        until = time.monotonic() + 60
        while batch.status not in ("completed", "failed") and time.monotonic() < until:
            time.sleep(0.05)
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert batch.metadata == {"for": "a test"}
        assert batch.request_counts is not None
        assert (batch.request_counts.total, batch.request_counts.completed) == (5, 5)
        assert batch.usage is not None
        assert batch.usage.output_tokens > 0
        found = [json.loads(one) for one in client.files.content(batch.output_file_id or "").text.splitlines()]
        assert [one["custom_id"] for one in found] == [f"c{one}" for one in range(5)]
        assert found[0]["response"]["body"]["choices"][0]["message"]["content"] == WISH
        total = sum(one["response"]["body"]["usage"]["total_tokens"] for one in found)
        assert batch.usage.total_tokens == total
        assert [one.id for one in client.batches.list(limit=1)] == [batch.id]
        assert {one.id for one in client.files.list()} == {file.id, batch.output_file_id}
        assert client.files.delete(file.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)
        with pytest.raises(openai.NotFoundError):
            client.batches.cancel("batch_none")


def test_each_item_has_its_own_constraint_and_its_own_error(web: TestClient) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    batch = run(
        web,
        lines(
            chat_line("json", response_format=schema, max_tokens=60),
            chat_line("wrong", response_format={**schema, "json_schema": {"name": "x", "schema": {"type": 5}}}),
            chat_line("misspelt", response_fromat={"type": "json_object"}),
            chat_line("told", temprature=1, model="other"),
            chat_line("choice", structured_outputs={"choice": ["yes", "no"]}),
        ),
    )
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 5, "completed": 3, "failed": 2}
    good = content(web, batch["output_file_id"])
    assert [one["custom_id"] for one in good] == ["json", "told", "choice"]
    assert json.loads(good[0]["response"]["body"]["choices"][0]["message"]["content"]) == json.loads(WISH)
    warnings = " ".join(good[1]["response"]["body"]["espalier"]["warnings"])
    assert "temprature" in warnings
    assert "other" in warnings
    assert good[2]["response"]["body"]["choices"][0]["message"]["content"] in ("yes", "no")
    bad = {one["custom_id"]: one["response"] for one in content(web, batch["error_file_id"])}
    assert {name: one["status_code"] for name, one in bad.items()} == {"wrong": 400, "misspelt": 400}
    assert bad["misspelt"]["body"]["error"]["param"] == "response_fromat"


@pytest.mark.parametrize("route", ["/v1/completions", "/completion"])
def test_every_generating_route_takes_batches(route: str, web: TestClient) -> None:
    body = {"prompt": "Hello", "max_tokens" if route.startswith("/v1") else "n_predict": 5}
    batch = run(web, lines({"custom_id": "a", "method": "POST", "url": route, "body": body}), route)
    (one,) = content(web, batch["output_file_id"])
    body = one["response"]["body"]
    assert (body["choices"][0]["text"] if "choices" in body else body["content"]) is not None


@pytest.mark.slow
def test_a_batch_of_responses_is_stored_and_goes_on_from_a_response(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", store_responses="true", database_url=f"sqlite:///{tmp_path}/e.db")

    def line(name: str, **body: Any) -> dict[str, Any]:
        asked = {"input": "Hello", "max_output_tokens": 60, "temperature": 0, **body}
        return {"custom_id": name, "method": "POST", "url": "/v1/responses", "body": asked}

    with TestClient(make_app(WISH, config=config), raise_server_exceptions=False) as web:
        schema = {"type": "json_schema", "name": "x", "schema": SCHEMA}
        batch = run(web, lines(line("plain"), line("formed", text={"format": schema})), "/v1/responses")
        assert batch["request_counts"]["failed"] == 0
        plain, formed = (one["response"]["body"] for one in content(web, batch["output_file_id"]))
        assert plain["object"] == "response"
        assert set(json.loads(formed["output"][0]["content"][0]["text"])) == {"name", "age"}
        assert web.get(f"/v1/responses/{plain['id']}").json()["output"] == plain["output"]
        more = lines(line("more", previous_response_id=plain["id"]), line("none", previous_response_id="resp_none"))
        batch = run(web, more, "/v1/responses")
        [second] = content(web, batch["output_file_id"])
        listed = web.get(f"/v1/responses/{second['response']['body']['id']}/input_items?order=asc").json()["data"]
        assert [item["role"] for item in listed] == ["user", "assistant", "user"]
        [missing] = content(web, batch["error_file_id"])
        assert missing["response"]["status_code"] == 400
        assert missing["response"]["body"]["error"]["param"] == "previous_response_id"


@pytest.mark.slow
def test_a_batch_of_embeddings_has_the_vectors_of_the_route(web: TestClient) -> None:
    def line(name: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": body}

    body = {"input": ["a", "b"], "dimensions": 3}
    batch = run(web, lines(line("good", body), line("empty", {"input": ""})), "/v1/embeddings")
    [good] = content(web, batch["output_file_id"])
    direct = web.post("/v1/embeddings", json=body).json()
    assert good["response"]["body"] == direct
    [empty] = content(web, batch["error_file_id"])
    assert (empty["response"]["status_code"], empty["response"]["body"]["error"]["param"]) == (400, "input")
    assert batch["usage"]["input_tokens"] == direct["usage"]["prompt_tokens"]


def test_a_fault_of_a_line_fails_the_batch_with_its_number(web: TestClient) -> None:
    batch = run(web, lines(chat_line("a"), chat_line("b", url="/v1/completions"), chat_line("a")))
    assert batch["status"] == "failed"
    assert [(one["line"], one["code"]) for one in batch["errors"]["data"]] == [
        (2, "mismatched_endpoint"),
        (3, "duplicate_custom_id"),
    ]


def test_wrong_uploads_and_batches_are_refused_by_name(web: TestClient) -> None:
    assert upload(web, b"x" * 100_001).status_code == 413
    assert upload(web, b"x", purpose="fine-tune").json()["error"]["param"] == "purpose"
    assert upload(web, b"x", colour="red").json()["error"]["param"] == "colour"
    assert web.post("/v1/files", json={}).status_code == 415
    assert web.post("/v1/files", data={"purpose": "batch"}, files={"other": ("x", b"x")}).status_code == 400
    file_id = upload(web, lines(chat_line("a"))).json()["id"]
    for field, value in {
        "endpoint": "/v1/rerank",
        "input_file_id": "file-none",
        "completion_window": "soon",
        "metadata": {"k": "v" * 600},
    }.items():
        body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", field: value}
        refused = web.post("/v1/batches", json=body)
        assert refused.status_code in (400, 404)
        assert field in refused.json()["error"]["param"]
    told = web.post("/v1/batches", json={"input_file_id": file_id, "endpoint": CHAT, "colour": "red"})
    assert "colour" in told.headers["warning"]
    assert web.get("/v1/batches?limit=0").status_code == 400
    assert web.get("/v1/batches/batch_none").status_code == 404


def test_lists_go_on_after_the_last_id(web: TestClient) -> None:
    file_id = upload(web, b"{}").json()["id"]
    made = [web.post("/v1/batches", json={"input_file_id": file_id, "endpoint": CHAT}).json()["id"] for _ in range(5)][
        ::-1
    ]
    first = web.get("/v1/batches?limit=2").json()
    assert [one["id"] for one in first["data"]] == made[:2]
    assert (first["first_id"], first["last_id"], first["has_more"]) == (made[0], made[1], True)
    rest = web.get(f"/v1/batches?limit=9&after={first['last_id']}").json()
    assert [one["id"] for one in rest["data"]] == made[2:]
    assert not rest["has_more"]


def test_a_cancelled_batch_ends_with_what_it_has(web: TestClient) -> None:
    file_id = upload(web, lines(*(chat_line(f"c{one}", max_tokens=500, ignore_eos=True) for one in range(60)))).json()[
        "id"
    ]
    made = web.post("/v1/batches", json={"input_file_id": file_id, "endpoint": CHAT}).json()
    stopped = web.post(f"/v1/batches/{made['id']}/cancel").json()
    assert stopped["status"] in ("cancelling", "cancelled")
    batch = ended(web, made["id"])
    assert batch["status"] == "cancelled"
    assert web.delete(f"/v1/batches/{made['id']}").json()["deleted"]
    assert web.get(f"/v1/batches/{made['id']}").status_code == 404


def test_a_batch_that_begins_paused_runs_when_it_is_resumed(web: TestClient) -> None:
    file_id = upload(web, lines(chat_line("a", max_tokens=3))).json()["id"]
    body = {"input_file_id": file_id, "endpoint": CHAT, "espalier": {"paused": True, "priority": 3}}
    made = web.post("/v1/batches", json=body).json()
    assert made["espalier"] == {"priority": 3, "paused": True}
    assert made["model"] is None
    waiting = 'espalier:batch_items{state="pending"} 1.0'
    wait_until(lambda: waiting in web.get("/metrics").text, "the metric counts the item that waits", seconds=30)
    assert web.post(f"/v1/batches/{made['id']}/resume").status_code == 200
    done = ended(web, made["id"])
    assert done["status"] == "completed"
    assert done["model"] == "fake"
    assert 'espalier:batch_items{state="pending"} 0.0' in web.get("/metrics").text


@pytest.mark.slow
def test_items_that_a_constraint_stopped_elsewhere_refuses_for_a_minute_are_tried_again(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, refused = Scheduler.submit, 3

    def costly(self: Scheduler, *tickets: Any, **options: Any) -> None:
        nonlocal refused
        refused -= 1
        if refused >= 0:
            raise LimitExceeded("the constraint takes too long: another request with it was stopped just now")
        submit(self, *tickets, **options)

    monkeypatch.setattr(Scheduler, "submit", costly)
    monkeypatch.setattr(executor, "COSTLY_SECONDS", 0.01)
    batch = run(web, lines(*(chat_line(name, max_tokens=3) for name in "abc")))
    assert refused < 0
    assert batch["request_counts"] == {"total": 3, "completed": 3, "failed": 0}


def wordlist_job(web: TestClient, items: Any, query: str = "") -> dict[str, Any]:
    raw = items if isinstance(items, bytes) else json.dumps(items).encode()
    reply = web.post(f"/v1/batch/jobs{query}", files={"file": ("my_requests.json", raw)})
    assert reply.status_code == 200, reply.text
    made = reply.json()
    assert made == {
        "job_id": made["job_id"],
        "status": "pending",
        "message": "Batch job accepted and queued for processing.",
    }
    until = time.monotonic() + 60
    while time.monotonic() < until:
        job: dict[str, Any] = web.get(f"/v1/batch/jobs/{made['job_id']}").json()
        assert set(job) == {"job_id", "status", "submitted_at", "error"}
        if job["status"] in ("completed", "failed"):
            return job
        assert job["status"] in ("pending", "processing")
        time.sleep(0.05)
    raise AssertionError(job)


def item(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "any/model", "messages": [{"role": "user", "content": text}], **more}


def test_the_word_list_servers_routes_run_a_job_whose_ids_do_not_shift(web: TestClient) -> None:
    job = wordlist_job(
        web, [item("a"), {"model": "x"}, item("c", custom_id="mine", max_tokens=1), 7], "?max_tokens=30&num_beams=1"
    )
    assert job["status"] == "completed"
    reply = web.get(f"/v1/batch/jobs/{job['job_id']}/results")
    assert reply.headers["content-type"] == "application/json"
    assert f"{job['job_id']}_output.json" in reply.headers["content-disposition"]
    assert "\n  " in reply.text
    found = reply.json()
    assert [one["id"] for one in found] == [f"chatcmpl-batch-{job['job_id']}-{place}" for place in range(4)]
    assert found[0]["choices"][0]["message"]["content"] == WISH
    assert found[0]["usage"]["completion_tokens"] == len(WISH) + 1
    assert found[2]["choices"][0]["message"]["content"] == WISH, "an item's own max_tokens is ignored"
    assert found[2]["custom_id"] == "mine"
    for place in (1, 3):
        assert "choices" not in found[place]
        assert found[place]["error"]["message"]
    assert job["job_id"] in [one["job_id"] for one in web.get("/v1/batch/jobs").json()["jobs"]]
    assert web.delete(f"/v1/batch/jobs/{job['job_id']}").json()["deleted"]
    assert web.get(f"/v1/batch/jobs/{job['job_id']}").status_code == 404


@pytest.mark.slow
def test_values_of_items_count_with_per_item(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", allowed_max_new_tokens="2,40")
    with TestClient(make_app(WISH, config=config)) as web:
        job = wordlist_job(web, [item("a", max_tokens=1), item("b")], "?max_tokens=30&num_beams=1&per_item=true")
        short, whole = web.get(f"/v1/batch/jobs/{job['job_id']}/results").json()
    assert short["choices"][0]["message"]["content"] == WISH[:2]
    assert whole["choices"][0]["message"]["content"] == WISH


@pytest.mark.parametrize(
    ("raw", "query", "said"),
    [
        (b"{", "", "Failed to parse JSON: .+"),
        (b"{}", "", r"Input file must contain a JSON list\."),
        (
            b"[]",
            "?vocab_lang=xx&vocab_n_words=5",
            r"Constrained vocabulary config failed for lang 'xx'\. there is no word list for 'xx' .+",
        ),
    ],
)
def test_a_job_that_cannot_run_fails_with_the_documented_text(
    raw: bytes, query: str, said: str, web: TestClient
) -> None:
    job = wordlist_job(web, raw, query)
    assert job["status"] == "failed"
    assert re.fullmatch(said, job["error"])
    refused = web.get(f"/v1/batch/jobs/{job['job_id']}/results")
    assert refused.status_code == 400
    assert "detail" in refused.json()


def test_errors_of_the_job_routes_have_the_word_list_servers_shape(web: TestClient) -> None:
    assert web.get("/v1/batch/jobs/none").json() == {"detail": "Job not found."}
    assert web.post("/v1/batch/jobs?max_tokens=x", files={"file": ("x", b"[]")}).status_code == 422
    assert web.post("/v1/batch/jobs?vocab_lang=es", files={"file": ("x", b"[]")}).status_code == 422
    assert "detail" in web.post("/v1/batch/jobs").json()


def test_keys_are_asked_for_in_each_shape(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", secret_token="sk-long-enough-key")
    with TestClient(make_app(config=config)) as web:
        assert web.get("/v1/batches").status_code == 401
        assert web.get("/v1/batch/jobs/x").status_code == 403
        assert web.get("/v1/batch/jobs/x").json() == {"detail": "Forbidden"}


@pytest.mark.slow
def test_an_item_that_keeps_a_trace_says_which(web: TestClient) -> None:
    batch = run(web, lines(chat_line("a", max_tokens=5, espalier={"trace": "summary"})))
    (one,) = content(web, batch["output_file_id"])
    trace_id = one["response"]["body"]["espalier"]["outputs"][0]["trace_id"]
    assert web.get(f"/traces/{trace_id}").status_code == 200


def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with TestClient(make_app(WISH, config=config, engine=fake_engine(WISH))) as web:
        file_id = upload(web, lines(*(chat_line(f"c{one}", max_tokens=20) for one in range(40)))).json()["id"]
        made = web.post("/v1/batches", json={"input_file_id": file_id, "endpoint": CHAT}).json()
    with TestClient(make_app(WISH, config=config, engine=fake_engine(WISH))) as web:
        batch = ended(web, made["id"])
        assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
        assert [one["custom_id"] for one in content(web, batch["output_file_id"])] == [f"c{n}" for n in range(40)]


@pytest.mark.slow
def test_a_job_with_more_words_than_the_list_has_takes_the_whole_list(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with TestClient(make_app("Hola amigo.", config=config)) as web:
        raw = json.dumps([item("a")]).encode()
        query = "?vocab_lang=es&vocab_n_words=100000000&num_beams=1&max_tokens=20"
        made = web.post(f"/v1/batch/jobs{query}", files={"file": ("in.json", raw)})
        assert re.search(r"vocab_n_words: the list es has \d+ words, and all of them are used", made.headers["warning"])
        job = wordlist_job(web, raw, query)
        assert (job["status"], job["error"]) == ("completed", None)
        (one,) = web.get(f"/v1/batch/jobs/{job['job_id']}/results").json()
        assert one["choices"][0]["message"]["content"] == "Hola amigo."


@pytest.mark.slow
@pytest.mark.parametrize("raw", [b"[]", b"{", json.dumps([{"model": "m", "messages": []}]).encode()])
def test_the_upload_of_a_job_is_removed_and_its_results_stay(raw: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", batch_job_temp_dir=str(folder))
    with TestClient(make_app(WISH, config=config)) as web:
        for sent in (raw, json.dumps([item("a")]).encode()):
            job = wordlist_job(web, sent, "?num_beams=1")
            # Of a job that failed it is removed just after that is said.
            wait_until(lambda: not list(folder.iterdir()), "the upload stays")
            assert web.get("/v1/files").json()["data"] == [] or all(
                one["purpose"] == "batch_output" for one in web.get("/v1/files").json()["data"]
            )
        assert web.get(f"/v1/batch/jobs/{job['job_id']}/results").status_code == 200


@pytest.mark.slow
def test_the_uploads_of_openais_batches_stay(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", batch_job_temp_dir=str(folder))
    with TestClient(make_app(WISH, config=config)) as web:
        batch = run(web, lines(chat_line("a", max_tokens=5)))
        assert web.get(f"/v1/files/{batch['input_file_id']}/content").status_code == 200
