"""The `curl` lines of the word-list server's chat part as they were written there, against a server on a free port of
this machine, with both ways to show the token. The beams of its example are not open yet: they are refused with the
reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.server_app import make_app, served, settings

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
WITHOUT_BEAMS = {name: value for name, value in REQUEST.items() if name != "num_beams"}
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
    config = settings(seed_compat="true", secret_token=KEY, allow_query_token="true")
    with served(make_app("Hola amigo.", config=config)) as found:
        yield found


def run(line: str, url: str, folder: Path, *, token: str = KEY, request: dict[str, Any] = WITHOUT_BEAMS) -> Any:
    """What the line prints: only the address is another, and curl says nothing of its progress."""
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    script = line.replace("http://127.0.0.1:8010", url).replace("curl ", "curl --silent --noproxy '*' ", 1)
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env={**os.environ, "SECRET_TOKEN": token}, capture_output=True, timeout=60,
        check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


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
def test_the_four_beams_of_the_example_are_refused_with_the_reason(url: str, tmp_path: Path, line: str) -> None:
    found = run(line, url, tmp_path, request=REQUEST)
    assert set(found) == {"detail"}
    assert "num_beams" in found["detail"]


@pytest.mark.parametrize("line", [MODELS_BY_HEADER, MODELS_BY_QUERY, CHAT_BY_HEADER, CHAT_BY_QUERY])
def test_a_wrong_token_is_forbidden(url: str, tmp_path: Path, line: str) -> None:
    assert run(line, url, tmp_path, token="wrong") == {"detail": "Forbidden"}
