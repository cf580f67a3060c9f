"""The word-list server's batch jobs, row by row: its curl lines, files, queries and replies, on the demo model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra server is not installed")

from starlette.testclient import TestClient

from espalier.server.apps import create_app
from tests.acceptance.users_documents.rows import rows_of
from tests.acceptance.users_documents.wordlist_servers import (
    AUTH,
    JOB_QUERY,
    MY_REQUESTS,
    REQUEST,
    Servers,
    configured,
    first_words,
    job,
    servers,
    spoken,
)
from tests.server_app import fake_engine

__all__ = ["job", "servers"]  # fixtures

row = rows_of("wordlist-server")
CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")


# Batching


@row("6.1", "Authentication is required: header or ?token=")
def test_jobs_need_a_key(servers: Servers) -> None:
    for reply in (
        httpx2.post(f"{servers.batch}/v1/batch/jobs", files={"file": ("x", b"[]")}),
        httpx2.get(f"{servers.batch}/v1/batch/jobs/x"),
        httpx2.get(f"{servers.batch}/v1/batch/jobs/x/results?token=wrong"),
    ):
        assert (reply.status_code, reply.json()) == (403, {"detail": "Forbidden"})


@pytest.mark.slow
@needs_curl
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            f"""curl -X POST "http://127.0.0.1:8011/v1/batch/jobs?{JOB_QUERY}" \\
     -H "Authorization: Bearer $SECRET_TOKEN" \\
     -F "file=@/path/to/my_requests.json"
""",
            marks=row("6.2", "Create a job by curl -F with the header"),
        ),
        pytest.param(
            f"""curl -X POST "http://127.0.0.1:8011/v1/batch/jobs?token=$SECRET_TOKEN&{JOB_QUERY}" \\
     -F "file=@/path/to/my_requests.json"
""",
            marks=row("6.3", "Create a job by curl -F with the token in the query"),
        ),
    ],
)
def test_a_job_by_curl(line: str, servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "my_requests.json").write_text(json.dumps(MY_REQUESTS))
    found = json.loads(servers.curl(line, tmp_path))
    assert set(found) == {"job_id", "status", "message"}
    assert (found["status"], found["message"]) == ("pending", "Batch job accepted and queued for processing.")
    assert servers.ended(found["job_id"])["status"] == "completed"


@pytest.mark.slow
@needs_curl
@row("6.4", "Check the status by curl: job_id, status, submitted_at, error")
def test_the_status_by_curl(servers: Servers, job: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    line = f"""curl -H "Authorization: Bearer $SECRET_TOKEN" \\
     "http://127.0.0.1:8011/v1/batch/jobs/{job[0]["job_id"]}"
"""
    found = json.loads(servers.curl(line, tmp_path))
    assert set(found) == {"job_id", "status", "submitted_at", "error"}
    assert (found["status"], found["error"]) == ("completed", None)
    assert isinstance(found["submitted_at"], int)


@needs_curl
@row("6.5", "Download results by curl -L -o results.json")
def test_results_by_curl(servers: Servers, job: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    line = f"""curl -L -H "Authorization: Bearer $SECRET_TOKEN" \\
     -o results.json \\
     "http://127.0.0.1:8011/v1/batch/jobs/{job[0]["job_id"]}/results"
"""
    servers.curl(line, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == job[1]


@row("6.6", "Results: an array of OpenAI-shaped completions in the order of the input, id chatcmpl-batch-<job>-<n>")
def test_the_results(job: tuple[dict[str, Any], Any]) -> None:
    assert [one["id"] for one in job[1]] == [f"chatcmpl-batch-{job[0]['job_id']}-{place}" for place in range(3)]
    for one, asked in zip(job[1], MY_REQUESTS, strict=True):
        assert {"id", "object", "created", "model", "choices", "usage"} <= set(one)
        assert (one["object"], one["model"]) == ("chat.completion", asked["model"])
        assert one["choices"][0]["message"]["role"] == "assistant"


@row("6.7", "Token counts are null in batch", differs="they are counted")
def test_token_counts(job: tuple[dict[str, Any], Any]) -> None:
    assert all(one["usage"]["completion_tokens"] > 0 for one in job[1])


@row("6.8", "Job-wide vocab_lang and vocab_n_words hold for every item")
def test_job_wide_words(job: tuple[dict[str, Any], Any]) -> None:
    for one in job[1]:
        choice = one["choices"][0]
        assert spoken(choice["message"]["content"]) <= first_words(1000) or choice["finish_reason"] == "length"


@pytest.mark.slow
@row("6.9", "Values of items are ignored", differs="unless `per_item=true`")
def test_values_of_items(servers: Servers) -> None:
    items = [MY_REQUESTS[1] | {"max_tokens": 64, "vocab_lang": "en", "vocab_n_words": 10}]
    _, found = servers.run_job(items, "max_tokens=4&num_beams=1")
    assert found[0]["usage"]["completion_tokens"] < 64


DEFAULTS = {"max_tokens": 512, "num_beams": 10, "length_penalty": 1.0}


@row("6.10", "Defaults of a job: max_tokens 512, num_beams 10, length_penalty 1.0; vocab_lang, vocab_n_words optional")
def test_the_defaults_of_a_job() -> None:
    from espalier.server.batching.wordlist_items import wordlist_item_body  # what runs an item

    assert {name: wordlist_item_body(MY_REQUESTS[2], {})[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.slow
@row("6.11", "max_tokens is clamped to ALLOWED_MAX_NEW_TOKENS")
def test_allowed_max_new_tokens(tmp_path: Path) -> None:
    config = configured(tmp_path, allowed_max_new_tokens="2,5")
    with TestClient(create_app(config, engine=fake_engine("Hola amigo."))) as web:
        reply = web.post("/v1/chat/completions", json=REQUEST | {"max_tokens": 100, "num_beams": 1}, headers=AUTH)
        assert reply.json()["usage"]["completion_tokens"] == 5


@pytest.mark.slow
@row("6.12", "batch_size=BATCH_JOB_PIPELINE_SIZE", differs="so many items run at once, beside chat, in one batch")
def test_the_pipeline_size(tmp_path: Path) -> None:
    config = configured(tmp_path, batch_job_pipeline_size="2")
    assert config.batch_job_pipeline_size == 2
    with TestClient(create_app(config, engine=fake_engine("Hola."))) as web:
        files = {"file": ("x.json", json.dumps(MY_REQUESTS).encode())}
        made = web.post("/v1/batch/jobs?num_beams=1", files=files, headers=AUTH).json()
        address = f"/v1/batch/jobs/{made['job_id']}"
        while web.get(address, headers=AUTH).json()["status"] in ("pending", "processing"):
            pass
        assert len(web.get(f"{address}/results", headers=AUTH).json()) == 3


@row(
    "6.13",
    "Inputs are truncated to MAX_INPUT_TOKENS",
    differs="whole turns go, the oldest first; a header says how much",
)
def test_max_input_tokens(tmp_path: Path) -> None:
    config = configured(tmp_path, max_input_tokens="60")
    turns = [
        {"role": "user", "content": "x" * 60},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "hola"},
    ]
    with TestClient(create_app(config, engine=fake_engine("Hola."))) as web:
        body = REQUEST | {"num_beams": 1, "messages": turns}
        reply = web.post("/v1/chat/completions", json=body, headers=AUTH)
        assert reply.json()["usage"]["prompt_tokens"] <= 60
        assert int(reply.headers["x-espalier-truncated"]) > 60


@row("6.14", "If the language file is missing, the job fails with an error", differs="the error says the reason too")
def test_a_missing_language_file(servers: Servers) -> None:
    found, results = servers.run_job(MY_REQUESTS, "vocab_lang=xx&vocab_n_words=1000")
    assert (found["status"], results) == ("failed", None)
    assert found["error"].startswith("Constrained vocabulary config failed for lang 'xx'. there is no word list")


@pytest.mark.slow
@row("6.15", "vocab_n_words above the list's length in a job", differs="the whole list is taken, and a warning says so")
def test_a_job_with_more_words_than_there_are(servers: Servers) -> None:
    query = "vocab_lang=es&vocab_n_words=10000000&max_tokens=4&num_beams=1"
    accepted = servers.post_job(MY_REQUESTS[:1], query)
    assert "all of them are used" in accepted.headers["warning"]
    servers.ended(accepted.json()["job_id"])  # a later test looks for what was uploaded and has not ended
    assert servers.run_job(MY_REQUESTS[:1], query)[0]["status"] == "completed"


@pytest.mark.slow
@row("6.16", "Statuses: pending, processing, completed, failed")
def test_the_statuses(servers: Servers) -> None:
    job = servers.post_job(MY_REQUESTS[:1], "max_tokens=4&num_beams=1").json()
    assert job["status"] == "pending"
    servers.ended(job["job_id"])  # a later test looks for what was uploaded and has not ended
    assert servers.run_job(b"{", "")[0]["status"] == "failed"
    assert servers.run_job([], "")[0]["status"] == "completed"


@pytest.mark.slow
@row(
    "6.17",
    "The file must be a list of objects with at least model and messages",
    differs="a faulty item keeps its place and says what is wrong, so ids do not shift",
)
def test_faulty_items(servers: Servers) -> None:
    _, found = servers.run_job([{"model": "m"}, MY_REQUESTS[1]], "max_tokens=4&num_beams=1")
    assert "error" in found[0]
    assert found[1]["choices"]
    assert servers.run_job(b'{"a": 1}', "")[0]["error"] == "Input file must contain a JSON list."


@pytest.mark.slow
@row("6.18", "Uploads are stored in BATCH_JOB_TEMP_DIR and removed after processing; the results stay")
def test_uploads_are_removed(servers: Servers, job: tuple[dict[str, Any], Any]) -> None:
    servers.run_job(MY_REQUESTS[:1], "max_tokens=4&num_beams=1")
    reply = httpx2.get(f"{servers.batch}/v1/batch/jobs/{job[0]['job_id']}/results", headers=AUTH)
    assert reply.status_code == 200
    waiting = [one for one in servers.uploads.iterdir() if not one.name.endswith(".part")]
    assert not waiting


@row("6.19", "Results before the end: 400 with the status")
def test_results_before_the_end(servers: Servers) -> None:
    failed, _ = servers.run_job(b"{", "")
    reply = httpx2.get(f"{servers.batch}/v1/batch/jobs/{failed['job_id']}/results", headers=AUTH)
    assert (reply.status_code, reply.json()) == (400, {"detail": "Job is not completed. Current status: failed"})


@row("6.20", "Unknown job: 404 with a detail")
def test_an_unknown_job(servers: Servers) -> None:
    reply = httpx2.get(f"{servers.batch}/v1/batch/jobs/6c1f1b0e", headers=AUTH)
    assert (reply.status_code, reply.json()) == (404, {"detail": "Job not found."})
