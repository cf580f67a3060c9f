"""A user of the word-list server who moves here: scripts, refusals and errors say what is true and what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.errors import InputError
from espalier.server.admit.auth import Keyring, check_uvicorn, read_keys
from espalier.server.missing import one_line
from tests.server_app import client, settings

ROOT = Path(__file__).resolve().parents[3]
ROUTE = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "hola"}]}
WORDS = {"vocab_lang": "es", "vocab_n_words": 3000}
TAKES = "WORDLIST_SERVER_COMPAT=true takes this, as the word-list server did"

ADDRESSES = {
    ("--host", "0.0.0.0", "--port", "8011"): "0.0.0.0:8011",
    ("--host=0.0.0.0", "--port=8012"): "0.0.0.0:8012",
    ("--port", "8010", "--host", "0.0.0.0", "--reload"): "0.0.0.0:8010",
    ("--host", "0.0.0.0"): "0.0.0.0:8000",  # uvicorn's own port
}


@pytest.mark.parametrize(("arguments", "address"), ADDRESSES.items())
def test_the_refusal_of_a_token_from_examples_names_the_true_port(arguments: tuple[str, ...], address: str) -> None:
    config = settings(secret_token="changeme")
    with pytest.raises(InputError, match=rf"^{address} can be reached from elsewhere, and SECRET_TOKEN is a value"):
        check_uvicorn(config, read_keys(config), ["/usr/bin/uvicorn", "espalier.server.main:app", *arguments], {})


def test_the_address_may_stand_in_uvicorns_variables() -> None:
    environ = {"UVICORN_HOST": "0.0.0.0", "UVICORN_PORT": "8013"}  # it is what must be refused
    with pytest.raises(InputError, match=r"^0\.0\.0\.0:8013 "):
        check_uvicorn(settings(), Keyring([]), ["uvicorn", "espalier.server.main:app"], environ)
    check_uvicorn(settings(), Keyring([]), ["uvicorn", "x:app", "--uds", "/tmp/x"], environ)
    check_uvicorn(settings(), Keyring([]), ["gunicorn", "x:app", "--host", "0.0.0.0"], {})


def test_run_batch_leaves_no_variable_that_the_server_would_warn_of(tmp_path: Path) -> None:
    program = tmp_path / "espalier"
    program.write_text('#!/bin/sh\necho "$@"\nenv | grep "^BATCH_PORT" || echo none\n')
    program.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "run_batch.sh"
    script.write_text((ROOT / "scripts" / "run_batch.sh").read_text())
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BATCH_PORT": "9011"}
    for given, port in ((environ, "9011"), ({"PATH": environ["PATH"]}, "8011")):
        done = subprocess.run(["bash", str(script)], env=given, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"serve --only batch --port {port}\nnone\n"


@pytest.mark.parametrize("module", ["main", "app_chat", "app_batch"])
def test_uvicorn_without_the_extra_ends_with_one_line(module: str) -> None:
    """As after `pip install -e .`: the import of a package that is not there ends the program, without a traceback."""
    code = f"import sys; sys.modules['fastapi'] = None; import espalier.server.{module}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("espalier: fastapi is not installed: it comes with the extra `server")
    assert "[server" in done.stderr


def test_a_module_of_our_own_that_is_missing_is_a_fault_and_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError), one_line():
        raise ModuleNotFoundError("no", name="espalier.server.apps")


HELPED = {
    "details of the soft mode without it": WORDS | {"vocab_soft_tier2_penalty": 1.0},
    "a number as a text": {**WORDS, "vocab_n_words": "3000"},
    "a length penalty without beams": {"length_penalty": 1.2},
    "a negative limit": WORDS | {"max_tokens": -5},
}
NOT_HELPED = {
    "half of the pair": {"vocab_lang": "es"},
    "no such list": WORDS | {"vocab_lang": "xx"},
    "a list and a JSON constraint": WORDS | {"response_format": {"type": "json_object"}},
    "no field of that server": {"max_tokens": "128"},
}


@pytest.mark.parametrize("more", HELPED.values(), ids=HELPED)
def test_an_error_that_the_switch_would_help_names_it(more: dict[str, Any]) -> None:
    with client("Hola amigo.") as web:
        reply = web.post(ROUTE, json=BODY | more)
        assert reply.status_code == 400
        assert TAKES in reply.json()["error"]["message"]
    with client("Hola amigo.", config=settings(wordlist_server_compat="true")) as web:
        assert web.post(ROUTE, json=BODY | more).status_code == 200


@pytest.mark.parametrize("more", NOT_HELPED.values(), ids=NOT_HELPED)
def test_an_error_that_it_would_not_help_does_not_name_it(more: dict[str, Any]) -> None:
    with client("Hola amigo.") as web:
        reply = web.post(ROUTE, json=BODY | more)
        assert reply.status_code == 400
        assert "WORDLIST_SERVER_COMPAT" not in reply.text


def test_a_key_in_the_url_says_how_to_allow_it(tmp_path: Path) -> None:
    config = settings(secret_token="a-good-long-secret", batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with client(config=config) as web:
        reply = web.get("/v1/models?token=a-good-long-secret")
        assert reply.status_code == 401
        assert "set ALLOW_QUERY_TOKEN=true (part of WORDLIST_SERVER_COMPAT=true)" in reply.json()["error"]["message"]
        reply = web.get("/v1/batch/jobs?token=a-good-long-secret")
        assert reply.status_code == 403
        assert reply.json()["detail"].startswith("Forbidden: `?token=` is not allowed here")
