"""The word-list server, row by row: its curl lines, bodies, jobs and settings as written there, on the demo model.

Two servers run as there, chat and batch apart, under the compatibility switch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra server is not installed")

from starlette.testclient import TestClient

import espalier
from espalier.server.apps import create_app, create_batch_app, create_chat_app
from espalier.server.environment import read_environment
from espalier.server.settings import ServerSettings
from espalier.wiring import demo_model
from tests.acceptance.seeds.rows import rows_of
from tests.server_app import fake_engine, served, settings

row = rows_of("wordlist-server")
ROOT = Path(__file__).resolve().parents[3]
CURL = shutil.which("curl")
KEY = "a-good-long-secret"
AUTH = {"authorization": f"Bearer {KEY}"}
MESSAGES = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "Write a short greeting in Spanish."},
]
REQUEST: dict[str, Any] = {
    "model": "google/gemma-3-27b-it", "messages": MESSAGES, "max_tokens": 128, "vocab_lang": "es",
    "vocab_n_words": 3000, "num_beams": 4, "length_penalty": 1.0,
}  # fmt: skip
MY_REQUESTS = [
    {"model": "google/gemma-3-27b-it", "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"}]},
    {"model": "google/gemma-3-27b-it", "messages": [
        {"role": "user", "content": "Translate 'hello world' to Spanish."}]},
    {"model": "google/gemma-3-27b-it", "messages": [{"role": "user", "content": "Write a one-sentence poem."}]},
]  # fmt: skip
JOB_QUERY = "max_tokens=128&num_beams=4&length_penalty=1.0&vocab_lang=es&vocab_n_words=1000"
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")


class Servers:
    """The chat service (port 8010 in the document) and the batch service (8011), and the folder of uploads."""

    def __init__(self, chat: str, batch: str, uploads: Path) -> None:
        self.chat, self.batch, self.uploads = chat, batch, uploads

    def curl(self, line: str, folder: Path) -> bytes:
        """What a line of the document prints; the addresses alone are others."""
        script = line.replace("http://127.0.0.1:8010", self.chat).replace("http://127.0.0.1:8011", self.batch)
        script = script.replace("/path/to/", f"{folder}/").replace("curl ", "curl --silent --noproxy '*' ", 1)
        done = subprocess.run(
            ["sh", "-c", script], cwd=folder, env={**os.environ, "SECRET_TOKEN": KEY}, capture_output=True,
            timeout=300, check=True,
        )  # fmt: skip
        return done.stdout

    def ended(self, job_id: str) -> dict[str, Any]:
        """The job, once it has ended."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            found: dict[str, Any] = httpx2.get(f"{self.batch}/v1/batch/jobs/{job_id}", headers=AUTH, timeout=60).json()
            if found["status"] in ("completed", "failed"):
                return found
        raise AssertionError(found)

    def post_job(self, items: Any, query: str = "") -> Any:
        files = {"file": ("my_requests.json", items if isinstance(items, bytes) else json.dumps(items).encode())}
        return httpx2.post(f"{self.batch}/v1/batch/jobs?{query}", files=files, headers=AUTH, timeout=60)

    def run_job(self, items: Any, query: str = "") -> tuple[dict[str, Any], Any]:
        """A job that has ended, and its results, None where it failed."""
        job = self.ended(self.post_job(items, query).json()["job_id"])
        if job["status"] == "failed":
            return job, None
        found = httpx2.get(f"{self.batch}/v1/batch/jobs/{job['job_id']}/results", headers=AUTH, timeout=60)
        return job, found.json()

    def ask(self, **more: Any) -> Any:
        body = {name: value for name, value in (REQUEST | more).items() if value is not ...}
        return httpx2.post(f"{self.chat}/v1/chat/completions", json=body, headers=AUTH, timeout=300)


def configured(folder: Path, **more: str) -> ServerSettings:
    return settings(
        seed_compat="true", secret_token=KEY, batch_jobs="true", database_url=f"sqlite:///{folder}/jobs.db",
        batch_job_temp_dir=str(folder / "uploads"), **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def servers(demo_engine: espalier.LoadedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    config = configured(folder)
    with (
        espalier.load(str(demo_model())) as engine,  # a model is served once
        served(create_chat_app(config, engine=demo_engine)) as chat,
        served(create_batch_app(config, engine=engine)) as batch,
    ):
        yield Servers(chat, batch, folder / "uploads")


@pytest.fixture(scope="module")
def job(servers: Servers) -> tuple[dict[str, Any], Any]:
    """The document's job: its three requests, its query."""
    return servers.run_job(MY_REQUESTS, JOB_QUERY)


def spoken(text: str) -> set[str]:
    """The words of a text as the list writes them: NFC, lower case."""
    return {*"".join(c if c.isalpha() else " " for c in unicodedata.normalize("NFC", text).lower()).split()}


def first_words(count: int) -> set[str]:
    """The first words of the list, read here by hand."""
    lines = (ROOT / "wordlists" / "es.txt").read_text(encoding="utf-8").splitlines()
    return {*[line for line in lines if line and not line.startswith("#")][:count]}


# Deployment


@row("1.1", "A unified server for development: both routers on one port", differs="`espalier.server.main:app`")
def test_the_unified_server(tmp_path: Path) -> None:
    with TestClient(create_app(configured(tmp_path), engine=fake_engine())) as web:
        assert web.get("/v1/models", headers=AUTH).status_code == 200
        assert web.get("/v1/batch/jobs", headers=AUTH).status_code == 200


@row("1.2", "The chat service without batch routes: `app_chat:app`", differs="`espalier.server.app_chat:app`")
def test_the_chat_service(servers: Servers) -> None:
    assert servers.ask(max_tokens=4, num_beams=1).status_code == 200
    assert httpx2.get(f"{servers.chat}/v1/batch/jobs/x", headers=AUTH).status_code == 404


@row("1.3", "The batch service: `app_batch:app`", differs="`espalier.server.app_batch:app`")
def test_the_batch_service(servers: Servers) -> None:
    assert httpx2.get(f"{servers.batch}/v1/batch/jobs", headers=AUTH).status_code == 200
    assert httpx2.post(f"{servers.batch}/v1/chat/completions", json=REQUEST, headers=AUTH).status_code == 404


@pytest.mark.parametrize(
    ("script", "given", "flags"),
    [
        pytest.param("run_chat.sh", {"PORT": "9010", "UVICORN_WORKERS": "2"}, "--only chat --port 9010 --workers 2",
                     marks=row("1.4", "`./scripts/run_chat.sh`: configurable workers and port")),
        pytest.param("run_batch.sh", {"BATCH_PORT": "9011"}, "--only batch --port 9011",
                     marks=row("1.5", "`./scripts/run_batch.sh`: single worker, separate port")),
    ],
)  # fmt: skip
def test_a_script(script: str, given: dict[str, str], flags: str, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    copy = tmp_path / "scripts" / script
    copy.write_text((ROOT / "scripts" / script).read_text())
    program = tmp_path / "espalier"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **given}
    done = subprocess.run(["bash", str(copy)], env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"serve {flags}\n"


@row("1.6", "nginx: /v1/batch/ to the batch port, everything else to the chat port", differs="`deploy/nginx.conf`")
def test_the_nginx_map() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert "location ~ ^/v1/(batch|batches|files)(/|$)" in text
    assert text.index("127.0.0.1:8010") < text.index("127.0.0.1:8011")


@row(
    "1.7",
    "One batch process, since the status is in memory",
    differs="the status is in a database: jobs outlive a restart, and several processes may work on them",
)
def test_a_job_outlives_its_server(tmp_path: Path) -> None:
    config = configured(tmp_path)
    with TestClient(create_batch_app(config, engine=fake_engine("Hola."))) as web:
        files = {"file": ("x.json", json.dumps(MY_REQUESTS).encode())}
        made = web.post("/v1/batch/jobs?num_beams=1", files=files, headers=AUTH).json()
    with TestClient(create_batch_app(config, engine=fake_engine("Hola."))) as web:
        address = f"/v1/batch/jobs/{made['job_id']}"
        while web.get(address, headers=AUTH).json()["status"] in ("pending", "processing"):
            pass
        assert len(web.get(f"{address}/results", headers=AUTH).json()) == 3


# Quickstart


@row(
    "2.1",
    "`pip install -e .`, then `uvicorn …`",
    differs="the server is an extra: without it, one line says `pip install -e '.[server]'`",
)
def test_the_install_line() -> None:
    code = "import sys; sys.modules['fastapi'] = None; import espalier.server.main"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install" in done.stderr


@row("2.2", "`cp .env.example .env`, then edit it")
def test_the_env_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / ".env.example", tmp_path / ".env")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    found = read_environment()
    assert found.values["PORT"] == "8010"


@row("2.3", "wordlists/es.txt is in the repository")
def test_the_word_list() -> None:
    assert len(first_words(10**9)) >= 3000


@needs_curl
@row("2.4", 'Test authentication: curl -H "Authorization: Bearer …" /v1/models')
def test_authentication(servers: Servers, tmp_path: Path) -> None:
    line = f'curl -H "Authorization: Bearer {KEY}" http://127.0.0.1:8010/v1/models'
    assert json.loads(servers.curl(line, tmp_path))["object"] == "list"


@row(
    "2.5", "The default token is changeme",
    differs="without a token everybody may, on this machine alone; where others could reach it changeme is refused",
)  # fmt: skip
def test_changeme() -> None:
    code = (
        "import sys; sys.argv = ['uvicorn', 'espalier.server.main:app', '--host', '0.0.0.0', '--port', '8010'];"
        "from espalier.server.admit.auth import check_uvicorn, read_keys;"
        "from espalier.server.settings import settings_of;"
        "s = settings_of({'SECRET_TOKEN': 'changeme'}); check_uvicorn(s, read_keys(s), sys.argv, {})"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert "0.0.0.0:8010 can be reached from elsewhere, and SECRET_TOKEN is a value from examples" in done.stderr


# Endpoints


@row("3.1", "GET /v1/models")
def test_models(servers: Servers) -> None:
    found = httpx2.get(f"{servers.chat}/v1/models", headers=AUTH).json()
    assert set(found["data"][0]) == {"id", "object", "owned_by"}


@row("3.2", "POST /v1/chat/completions")
def test_chat(servers: Servers) -> None:
    assert servers.ask(max_tokens=4, num_beams=1).status_code == 200


@row("3.3", "POST /v1/batch/jobs")
def test_post_job(servers: Servers) -> None:
    reply = servers.post_job(MY_REQUESTS[:1], "max_tokens=4&num_beams=1")
    assert reply.status_code == 200
    servers.ended(reply.json()["job_id"])


@row("3.4", "GET /v1/batch/jobs/{job_id}")
def test_get_job(servers: Servers, job: tuple[dict[str, Any], Any]) -> None:
    found = httpx2.get(f"{servers.batch}/v1/batch/jobs/{job[0]['job_id']}", headers=AUTH)
    assert (found.status_code, found.json()) == (200, job[0])


@row("3.5", "GET /v1/batch/jobs/{job_id}/results")
def test_get_results(servers: Servers, job: tuple[dict[str, Any], Any]) -> None:
    found = httpx2.get(f"{servers.batch}/v1/batch/jobs/{job[0]['job_id']}/results", headers=AUTH)
    assert (found.status_code, found.json()) == (200, job[1])


@needs_curl
@pytest.mark.parametrize(
    "line",
    [
        pytest.param('curl -H "Authorization: Bearer $SECRET_TOKEN" http://127.0.0.1:8010/v1/models',
                     marks=row("3.6", "Header auth: Authorization: Bearer $SECRET_TOKEN")),
        pytest.param('curl "http://127.0.0.1:8010/v1/models?token=$SECRET_TOKEN"',
                     marks=row("3.7", "Query auth: ?token=$SECRET_TOKEN")),
    ],
)  # fmt: skip
def test_both_ways_to_show_the_token(line: str, servers: Servers, tmp_path: Path) -> None:
    assert json.loads(servers.curl(line, tmp_path))["object"] == "list"
    assert b"Forbidden" in servers.curl(line.replace("$SECRET_TOKEN", "wrong"), tmp_path)


# Chat completions


@needs_curl
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(r"""curl -H "Authorization: Bearer $SECRET_TOKEN" \
     -H "Content-Type: application/json" \
     -d @request.json \
     http://127.0.0.1:8010/v1/chat/completions""", marks=row("4.1", "curl -d @request.json with the header")),
        pytest.param(r"""curl -H "Content-Type: application/json" \
     -d @request.json \
     "http://127.0.0.1:8010/v1/chat/completions?token=$SECRET_TOKEN"
""", marks=row("4.2", "curl -d @request.json with the token in the query")),
    ],
)  # fmt: skip
def test_the_request_of_the_document(line: str, servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    found = json.loads(servers.curl(line, tmp_path))
    assert set(found) == {"id", "object", "created", "model", "choices", "usage"}
    assert spoken(found["choices"][0]["message"]["content"])


REPLY = {
    "id": lambda v: v.startswith("chatcmpl-"), "object": lambda v: v == "chat.completion",
    "created": lambda v: isinstance(v, int), "model": lambda v: v == REQUEST["model"],
    "choices": lambda v: set(v[0]) == {"index", "message", "finish_reason"} and v[0]["message"]["role"] == "assistant",
    "usage": lambda v: v["total_tokens"] == v["prompt_tokens"] + v["completion_tokens"],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=row(f"4.{place}", f"the reply's `{name}`")) for place, name in enumerate(REPLY, 3)],
)
def test_a_field_of_the_reply(name: str, servers: Servers) -> None:
    assert REPLY[name](servers.ask(max_tokens=8, num_beams=2).json()[name])


@row("4.9", "num_beams defaults to 10")
def test_the_default_of_beams(servers: Servers) -> None:
    """The trace of the same request says so."""
    asked = servers.ask(max_tokens=8, num_beams=..., length_penalty=..., espalier={"trace": "summary"})
    assert asked.status_code == 200, asked.text
    assert asked.json()["espalier"]["outputs"][0]["strategy"] == "beam"
    ten = servers.ask(max_tokens=8, num_beams=10, length_penalty=...).json()["choices"]
    assert asked.json()["choices"] == ten


@row("4.10", 'Server-sent events: "stream": true')
def test_a_stream(servers: Servers) -> None:
    whole = servers.ask(max_tokens=16).json()["choices"][0]["message"]["content"]
    data = [line.removeprefix("data: ") for line in servers.ask(max_tokens=16, stream=True).text.splitlines() if line]
    assert data[-1] == "[DONE]"
    pieces = [json.loads(one)["choices"][0]["delta"].get("content") or "" for one in data[:-1]]
    assert "".join(pieces) == whole


@row("4.11", "length_penalty weighs the length of beams")
def test_the_length_penalty(servers: Servers) -> None:
    for penalty in (-2.0, 1.0, 3.0):
        assert servers.ask(max_tokens=8, length_penalty=penalty).status_code == 200


# Constrained vocabulary


@row("5.1", "vocab_lang with vocab_n_words: outputs match the first words of WORDLIST_DIR/<lang>.txt")
def test_the_words(servers: Servers) -> None:
    found = servers.ask(max_tokens=48).json()["choices"][0]
    words = spoken(found["message"]["content"])
    assert words
    assert words <= first_words(3000) or found["finish_reason"] == "length"


@row("5.2", "Both fields together", differs="half of the pair is an error that names the other field")
def test_half_of_the_pair(servers: Servers) -> None:
    reply = servers.ask(vocab_n_words=...)
    assert (reply.status_code, reply.json()["detail"]) == (
        400,
        "vocab_lang needs vocab_n_words (give both, or neither)",
    )


@row("5.3", "Words are normalised (NFC, lower case); case, punctuation and spaces between them are free")
def test_what_the_constraint_takes() -> None:
    spec = espalier.Wordlist(lang="es", top=3000)
    compiled = espalier.compile(spec)
    for text, is_taken in {"Hola, amigo.": True, "hola\n\u00bfQu\u0065\u0301 tal?": True, "qwxz": False}.items():
        matcher = compiled.matcher()
        taken = 0
        for byte in unicodedata.normalize("NFC", text).encode():
            if not matcher.allows(byte):
                break
            matcher.advance(byte)
            taken += 1
        assert (taken == len(unicodedata.normalize("NFC", text).encode()) and matcher.is_accepting) == is_taken, text


@row("5.4", "PREBUILD_PREFIX compiles PREBUILD_LANGS x PREBUILD_WORD_COUNTS at startup")
def test_prebuilding(tmp_path: Path) -> None:
    config = configured(tmp_path, prebuild_prefix="true", prebuild_langs="es,en", prebuild_word_counts="100,3000")
    engine = fake_engine("Hola.")
    with TestClient(create_chat_app(config, engine=engine)) as web:
        while web.get("/ready").json()["status"] == "prebuilding":
            pass
        assert web.get("/ready").json()["prebuild"]
        assert web.post("/v1/chat/completions", json=REQUEST, headers=AUTH).status_code == 200


@row("5.5", "One word per line, by frequency; duplicates and blank lines do no harm")
def test_the_guidance_on_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xx.txt").write_text("Uno\nuno\n\ndos\n# a remark\ntres\n", encoding="utf-8")
    monkeypatch.setenv("ESPALIER_WORDLIST_DIR", str(tmp_path))
    from espalier.lexicon.files import read_words

    assert read_words(tmp_path / "xx.txt") == ("uno", "dos", "tres")


@row("5.6", "Unknown language: 500 with the documented text")
def test_an_unknown_language(servers: Servers) -> None:
    reply = servers.ask(vocab_lang="xx")
    assert reply.status_code == 500
    assert reply.json()["detail"] == "Constrained vocabulary configuration failed for language 'xx'."


@row("5.7", "A number above the length of the list", differs="the whole list is taken, and a warning says so")
def test_more_words_than_there_are(servers: Servers) -> None:
    reply = servers.ask(vocab_n_words=10**7, max_tokens=8, num_beams=1)
    assert reply.status_code == 200
    assert "all of them are used" in reply.headers["warning"]


# Batching


@row("6.1", "Authentication is required: header or ?token=")
def test_jobs_need_a_key(servers: Servers) -> None:
    for reply in (
        httpx2.post(f"{servers.batch}/v1/batch/jobs", files={"file": ("x", b"[]")}),
        httpx2.get(f"{servers.batch}/v1/batch/jobs/x"),
        httpx2.get(f"{servers.batch}/v1/batch/jobs/x/results?token=wrong"),
    ):
        assert (reply.status_code, reply.json()) == (403, {"detail": "Forbidden"})


@needs_curl
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"""curl -X POST "http://127.0.0.1:8011/v1/batch/jobs?{JOB_QUERY}" \\
     -H "Authorization: Bearer $SECRET_TOKEN" \\
     -F "file=@/path/to/my_requests.json"
""", marks=row("6.2", "Create a job by curl -F with the header")),
        pytest.param(f"""curl -X POST "http://127.0.0.1:8011/v1/batch/jobs?token=$SECRET_TOKEN&{JOB_QUERY}" \\
     -F "file=@/path/to/my_requests.json"
""", marks=row("6.3", "Create a job by curl -F with the token in the query")),
    ],
)  # fmt: skip
def test_a_job_by_curl(line: str, servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "my_requests.json").write_text(json.dumps(MY_REQUESTS))
    found = json.loads(servers.curl(line, tmp_path))
    assert set(found) == {"job_id", "status", "message"}
    assert (found["status"], found["message"]) == ("pending", "Batch job accepted and queued for processing.")
    assert servers.ended(found["job_id"])["status"] == "completed"


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


@row("6.9", "Values of items are ignored", differs="unless `per_item=true`")
def test_values_of_items(servers: Servers) -> None:
    items = [MY_REQUESTS[1] | {"max_tokens": 64, "vocab_lang": "en", "vocab_n_words": 10}]
    _, found = servers.run_job(items, "max_tokens=4&num_beams=1")
    assert found[0]["usage"]["completion_tokens"] < 64


DEFAULTS = {"max_tokens": 512, "num_beams": 10, "length_penalty": 1.0}


@row("6.10", "Defaults of a job: max_tokens 512, num_beams 10, length_penalty 1.0; vocab_lang, vocab_n_words optional")
def test_the_defaults_of_a_job() -> None:
    from espalier.server.batching.seed_items import seed_body  # what runs an item

    assert {name: seed_body(MY_REQUESTS[2], {})[name] for name in DEFAULTS} == DEFAULTS


@row("6.11", "max_tokens is clamped to ALLOWED_MAX_NEW_TOKENS")
def test_allowed_max_new_tokens(tmp_path: Path) -> None:
    config = configured(tmp_path, allowed_max_new_tokens="2,5")
    with TestClient(create_app(config, engine=fake_engine("Hola amigo."))) as web:
        reply = web.post("/v1/chat/completions", json=REQUEST | {"max_tokens": 100, "num_beams": 1}, headers=AUTH)
        assert reply.json()["usage"]["completion_tokens"] == 5


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
    "6.13", "Inputs are truncated to MAX_INPUT_TOKENS",
    differs="whole turns go, the oldest first; a header says how much",
)  # fmt: skip
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


@row("6.15", "vocab_n_words above the list's length in a job", differs="the whole list is taken, and a warning says so")
def test_a_job_with_more_words_than_there_are(servers: Servers) -> None:
    query = "vocab_lang=es&vocab_n_words=10000000&max_tokens=4&num_beams=1"
    assert "all of them are used" in servers.post_job(MY_REQUESTS[:1], query).headers["warning"]
    assert servers.run_job(MY_REQUESTS[:1], query)[0]["status"] == "completed"


@row("6.16", "Statuses: pending, processing, completed, failed")
def test_the_statuses(servers: Servers) -> None:
    assert servers.post_job(MY_REQUESTS[:1], "max_tokens=4&num_beams=1").json()["status"] == "pending"
    assert servers.run_job(b"{", "")[0]["status"] == "failed"
    assert servers.run_job([], "")[0]["status"] == "completed"


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
