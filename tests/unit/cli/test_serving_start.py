"""A server that does not start says why in one line, as `generate` does, also where workers run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from espalier.cli.main import main_code
from espalier.cli.serving import ERROR_FILE, make_in_worker, start_error
from espalier.errors import EspalierError, UnknownModel

DEMO = Path(__file__).parents[3] / "models" / "demo"
NO_MODEL = UnknownModel("there is no model x", hint="name another")


def failing(settings, failed):
    @asynccontextmanager
    async def lifespan(app):
        raise NO_MODEL
        yield

    return FastAPI(lifespan=lifespan)


@pytest.mark.parametrize(
    ("model", "message"), [("nope.gguf", "there is no file nope.gguf"), ("./nope", "there is no folder './nope'")]
)
@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_a_model_that_is_not_there_is_said_before_the_server_says_where_it_serves(model, message, more, capsys):
    """`serve -m nope.gguf` ended in "the log says why"."""
    for name, package in (("llama_cpp", "nope.gguf"), ("transformers", "./nope")):
        if model == package:
            pytest.importorskip(name, reason=f"{name} is not installed")
    assert main_code(["serve", "-m", model, "--port", "0", *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {message}"
    assert "serves at" not in "\n".join(lines)


def test_a_worker_that_does_not_start_reports_its_error(tmp_path):
    with pytest.raises(UnknownModel), TestClient(make_in_worker(failing, tmp_path)):
        pass
    assert json.loads((tmp_path / ERROR_FILE).read_text()) == ["there is no model x", "name another", True]
    with pytest.raises(UnknownModel), TestClient(make_in_worker(failing, tmp_path)):  # the first one stays
        pass


def test_a_worker_whose_application_cannot_be_made_reports_its_error(tmp_path):
    def make(settings, failed):
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        make_in_worker(make, tmp_path)
    message, hint, is_input = json.loads((tmp_path / ERROR_FILE).read_text())
    assert (message, is_input) == ("the server did not start: ValueError: a fault", False)
    assert "log" in hint


def test_a_worker_that_starts_is_noted(tmp_path):
    with TestClient(make_in_worker(lambda settings, failed: FastAPI(), tmp_path)):
        assert (tmp_path / str(os.getpid())).exists()
    assert not (tmp_path / ERROR_FILE).exists()


def test_an_error_of_ours_stays_what_it_is():
    assert start_error(NO_MODEL) is NO_MODEL
    assert isinstance(start_error(RuntimeError("x")), EspalierError)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_without_weights_is_one_line_after_the_start_began(workers, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    for path in DEMO.glob("*.json"):
        shutil.copy(path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "espalier", "serve", "-m", str(tmp_path), "--port", "0", "--workers", workers],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: there is no model ")
    assert "model.safetensors" in error
    assert hint.startswith("hint: ")
