"""The word-list server as its document has it: two servers over the demo model, its requests, and its curl lines."""

from __future__ import annotations

import json
import os
import subprocess
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import espalier
from espalier.server.apps import create_batch_app, create_chat_app
from espalier.server.settings import ServerSettings
from espalier.wiring import demo_model
from tests.server_app import served, settings

ROOT = Path(__file__).resolve().parents[3]
KEY = "a-good-long-secret"
AUTH = {"authorization": f"Bearer {KEY}"}
MESSAGES = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "Write a short greeting in Spanish."},
]
REQUEST: dict[str, Any] = {
    "model": "google/gemma-3-27b-it",
    "messages": MESSAGES,
    "max_tokens": 128,
    "vocab_lang": "es",
    "vocab_n_words": 3000,
    "num_beams": 4,
    "length_penalty": 1.0,
}
MY_REQUESTS = [
    {
        "model": "google/gemma-3-27b-it",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
    },
    {
        "model": "google/gemma-3-27b-it",
        "messages": [{"role": "user", "content": "Translate 'hello world' to Spanish."}],
    },
    {"model": "google/gemma-3-27b-it", "messages": [{"role": "user", "content": "Write a one-sentence poem."}]},
]
JOB_QUERY = "max_tokens=128&num_beams=4&length_penalty=1.0&vocab_lang=es&vocab_n_words=1000"


class Servers:
    """The chat service (port 8010 in the document) and the batch service (8011), and the folder of uploads."""

    def __init__(self, chat: str, batch: str, uploads: Path) -> None:
        self.chat, self.batch, self.uploads = chat, batch, uploads

    def curl(self, line: str, folder: Path) -> bytes:
        """What a line of the document prints; the addresses alone are others."""
        script = line.replace("http://127.0.0.1:8010", self.chat).replace("http://127.0.0.1:8011", self.batch)
        script = script.replace("/path/to/", f"{folder}/").replace("curl ", "curl --silent --noproxy '*' ", 1)
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env={**os.environ, "SECRET_TOKEN": KEY},
            capture_output=True,
            timeout=300,
            check=True,
        )
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
        wordlist_server_compat="true",
        secret_token=KEY,
        batch_jobs="true",
        database_url=f"sqlite:///{folder}/jobs.db",
        batch_job_temp_dir=str(folder / "uploads"),
        **more,
    )


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
