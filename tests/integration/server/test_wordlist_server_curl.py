"""The `curl` lines of the word-list server's chat part as they were written there, against a server on a free port of
this machine, with both ways to show the token, on the fake model and on the demo model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import espalier
from tests.server_app import events, make_app, served, settings

CURL = shutil.which("curl")
KEY = "a-good-long-secret"
REQUEST: dict[str, Any] = {
    "model": "google/gemma-3-27b-it",
    "messages": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Write a short greeting in Spanish."},
    ],
    "max_tokens": 128,
    "vocab_lang": "es",
    "vocab_n_words": 3000,
    "num_beams": 4,
    "length_penalty": 1.0,
}
MODELS_BY_HEADER = 'curl -H "Authorization: Bearer $SECRET_TOKEN" http://127.0.0.1:8010/v1/models'
MODELS_BY_QUERY = 'curl "http://127.0.0.1:8010/v1/models?token=$SECRET_TOKEN"'
CHAT_BY_HEADER = r"""curl -H "Authorization: Bearer $SECRET_TOKEN" \
     -H "Content-Type: application/json" \
     -d @request.json \
     http://127.0.0.1:8010/v1/chat/completions"""
CHAT_BY_QUERY = r"""curl -H "Content-Type: application/json" \
     -d @request.json \
     "http://127.0.0.1:8010/v1/chat/completions?token=$SECRET_TOKEN"
"""

pytestmark = pytest.mark.skipif(CURL is None, reason="there is no curl")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    config = settings(wordlist_server_compat="true", secret_token=KEY, allow_query_token="true")
    with served(make_app("Hola amigo.", config=config)) as found:
        yield found


def run(line: str, url: str, folder: Path, *, token: str = KEY, request: dict[str, Any] = REQUEST) -> Any:
    """What the line prints, as JSON: only the address is another, and curl says nothing of its progress."""
    return json.loads(printed(line, url, folder, token=token, request=request))


def printed(line: str, url: str, folder: Path, *, token: str = KEY, request: dict[str, Any] = REQUEST) -> bytes:
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    script = line.replace("http://127.0.0.1:8010", url).replace("curl ", "curl --silent --noproxy '*' ", 1)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, "SECRET_TOKEN": token},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("line", [MODELS_BY_HEADER, MODELS_BY_QUERY], ids=["header", "query"])
def test_models(url: str, tmp_path: Path, line: str) -> None:
    found = run(line, url, tmp_path)
    assert found == {"object": "list", "data": [{"id": "fake", "object": "model", "owned_by": "owner"}]}


@pytest.mark.parametrize("line", [CHAT_BY_HEADER, CHAT_BY_QUERY], ids=["header", "query"])
def test_chat(url: str, tmp_path: Path, line: str) -> None:
    found = run(line, url, tmp_path)
    assert (found["object"], found["model"]) == ("chat.completion", REQUEST["model"])
    assert found["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hola amigo."}, "finish_reason": "stop"}
    ]
    usage = found["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("line", [CHAT_BY_HEADER, CHAT_BY_QUERY], ids=["header", "query"])
def test_chat_as_a_stream(url: str, tmp_path: Path, line: str) -> None:
    data = events(printed(line, url, tmp_path, request=REQUEST | {"stream": True}).decode())
    assert data[-1] == "[DONE]"
    deltas = [json.loads(one)["choices"][0]["delta"].get("content", "") for one in data[:-1]]
    assert "".join(deltas) == "Hola amigo."


def test_the_example_on_the_demo_model_with_its_beams_and_with_ten(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = settings(wordlist_server_compat="true", secret_token=KEY, allow_query_token="true")
    with espalier.load() as engine, served(make_app(config=config, engine=engine)) as url:
        words = set(engine.engine.compiler.words.words("es")[:3000])
        ten = {name: value for name, value in REQUEST.items() if name != "num_beams"}
        for request in (REQUEST, ten):
            found = run(CHAT_BY_HEADER, url, tmp_path, request=request)
            text = found["choices"][0]["message"]["content"]
            spoken = "".join(c if c.isalpha() else " " for c in unicodedata.normalize("NFC", text).lower()).split()
            assert spoken
            assert set(spoken) <= words or found["choices"][0]["finish_reason"] == "length"
            data = events(printed(CHAT_BY_HEADER, url, tmp_path, request=request | {"stream": True}).decode())
            deltas = [json.loads(one)["choices"][0]["delta"].get("content", "") for one in data[:-1]]
            assert ("".join(deltas), data[-1]) == (text, "[DONE]")


@pytest.mark.parametrize("line", [MODELS_BY_HEADER, MODELS_BY_QUERY, CHAT_BY_HEADER, CHAT_BY_QUERY])
def test_a_wrong_token_is_forbidden(url: str, tmp_path: Path, line: str) -> None:
    assert run(line, url, tmp_path, token="wrong") == {"detail": "Forbidden"}
