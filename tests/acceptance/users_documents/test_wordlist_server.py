"""The word-list server, row by row: its curl lines, bodies, jobs and settings as written there, on the demo model.

Two servers run as there, chat and batch apart, under the compatibility switch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra server is not installed")

from starlette.testclient import TestClient

import espalier
from espalier.server.apps import create_app, create_batch_app, create_chat_app
from espalier.server.environment import read_environment
from tests.acceptance.users_documents.rows import rows_of
from tests.acceptance.users_documents.wordlist_servers import (
    AUTH,
    KEY,
    MY_REQUESTS,
    REQUEST,
    ROOT,
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


# Deployment


@row("1.1", "A unified server for development: both routers on one port", differs="`espalier.server.main:app`")
def test_the_unified_server(tmp_path: Path) -> None:
    with TestClient(create_app(configured(tmp_path), engine=fake_engine())) as web:
        assert web.get("/v1/models", headers=AUTH).status_code == 200
        assert web.get("/v1/batch/jobs", headers=AUTH).status_code == 200


@pytest.mark.slow
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
        pytest.param(
            "run_chat.sh",
            {"PORT": "9010", "UVICORN_WORKERS": "2"},
            "--only chat --port 9010 --workers 2",
            marks=row("1.4", "`./scripts/run_chat.sh`: configurable workers and port"),
        ),
        pytest.param(
            "run_batch.sh",
            {"BATCH_PORT": "9011"},
            "--only batch --port 9011",
            marks=row("1.5", "`./scripts/run_batch.sh`: single worker, separate port"),
        ),
    ],
)
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


@pytest.mark.slow
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


@pytest.mark.slow
@row(
    "2.5",
    "The default token is changeme",
    differs="without a token everybody may, on this machine alone; where others could reach it changeme is refused",
)
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


@pytest.mark.slow
@row("3.3", "POST /v1/batch/jobs")
def test_post_job(servers: Servers) -> None:
    reply = servers.post_job(MY_REQUESTS[:1], "max_tokens=4&num_beams=1")
    assert reply.status_code == 200
    servers.ended(reply.json()["job_id"])


@pytest.mark.slow
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
        pytest.param(
            'curl -H "Authorization: Bearer $SECRET_TOKEN" http://127.0.0.1:8010/v1/models',
            marks=row("3.6", "Header auth: Authorization: Bearer $SECRET_TOKEN"),
        ),
        pytest.param(
            'curl "http://127.0.0.1:8010/v1/models?token=$SECRET_TOKEN"',
            marks=row("3.7", "Query auth: ?token=$SECRET_TOKEN"),
        ),
    ],
)
def test_both_ways_to_show_the_token(line: str, servers: Servers, tmp_path: Path) -> None:
    assert json.loads(servers.curl(line, tmp_path))["object"] == "list"
    assert b"Forbidden" in servers.curl(line.replace("$SECRET_TOKEN", "wrong"), tmp_path)


# Chat completions


@needs_curl
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            r"""curl -H "Authorization: Bearer $SECRET_TOKEN" \
     -H "Content-Type: application/json" \
     -d @request.json \
     http://127.0.0.1:8010/v1/chat/completions""",
            marks=row("4.1", "curl -d @request.json with the header"),
        ),
        pytest.param(
            r"""curl -H "Content-Type: application/json" \
     -d @request.json \
     "http://127.0.0.1:8010/v1/chat/completions?token=$SECRET_TOKEN"
""",
            marks=row("4.2", "curl -d @request.json with the token in the query"),
        ),
    ],
)
def test_the_request_of_the_document(line: str, servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    found = json.loads(servers.curl(line, tmp_path))
    assert set(found) == {"id", "object", "created", "model", "choices", "usage"}
    assert spoken(found["choices"][0]["message"]["content"])


REPLY = {
    "id": lambda v: v.startswith("chatcmpl-"),
    "object": lambda v: v == "chat.completion",
    "created": lambda v: isinstance(v, int),
    "model": lambda v: v == REQUEST["model"],
    "choices": lambda v: set(v[0]) == {"index", "message", "finish_reason"} and v[0]["message"]["role"] == "assistant",
    "usage": lambda v: v["total_tokens"] == v["prompt_tokens"] + v["completion_tokens"],
}


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


@pytest.mark.slow
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
