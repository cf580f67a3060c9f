"""`espalier serve` and `config show`: what is refused before anything is loaded, and what is handed on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")
pytest.importorskip("uvicorn", reason="the extra [server] is not installed")

import espalier
from espalier import optional
from espalier.cli import serve
from espalier.cli.main import main_code
from espalier.engines.options import EngineOptions
from espalier.fields import entries
from espalier.server.settings import FIELDS
from espalier.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run the command in an empty folder, without serving: (exit code, stdout, stderr, what would have been served)."""
    for entry in FIELDS.values():
        for name in entry.variables:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    monkeypatch.setenv("NO_COLOR", "1")
    served = []

    def note(target, settings, listening):
        served.append((target, settings, dict(os.environ)))

    monkeypatch.setattr(serve, "_run", note)

    def call(*arguments):
        served.clear()
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        before = dict(os.environ)
        code = main_code(list(arguments))
        os.environ.clear()
        os.environ.update(before)
        out, err = capfd.readouterr()
        return code, out, err, list(served)

    return call


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0:8010 can be reached from elsewhere, and no API key is set"),
        (["--env-file", "nowhere.env"], "there is no file nowhere.env"),
        (["--api-key-file", "nowhere.toml"], "cannot read the file of keys nowhere.toml"),
        (["--host", "127.0.0.999.localhost"], "cannot listen on 127.0.0.999.localhost:8010"),
        (["--root-path", "x"], "ROOT_PATH=x: it begins with a slash"),
        (["--only", "none"], "--only none: one of all, chat, batch"),
        (["--log-level", "loud"], "LOG_LEVEL=LOUD: "),
        (["--port", "70000"], "--port"),
        (["--replicas", "2"], "--replicas is for --ray"),
        (["--address", "auto"], "--address is for --ray"),
        (["--ray", "--replicas", "3-2"], "'3-2' is no number of replicas"),
        (["--ray", "--cpus", "0"], "a replica needs cores"),
        (["--ray", "--port", "0"], "the proxies of all nodes listen at one port"),
        (["--ray", "--workers", "2"], "WORKERS is for one machine"),
        (["--ray", "--only", "chat"], "--only chat is for servers without --ray"),
        (["--ray", "--host", "0.0.0.0"], "can be reached from elsewhere, and no API key is set"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_served(run, arguments, says):
    code, out, err, served = run("serve", *arguments)
    assert (code, out, served) == (2, "", [])
    assert says in err.splitlines()[0]
    assert "Traceback" not in err


def test_without_ray_the_extra_is_named(run, monkeypatch):
    monkeypatch.setattr(optional, "is_importable", lambda name: name != "ray")
    for command in (["serve", "--ray"], ["batch", "run", "-i", "x.jsonl", "-o", "y.jsonl", "--executor", "ray"]):
        code, _, err, _ = run(*command)
        assert code == 1
        assert "the extra `ray`" in err


def test_a_default_token_is_refused_beyond_loopback(run, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "changeme")
    code, _, err, _ = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "a value from examples" in err
    assert run("serve", "--port", "0")[0] == 0


def test_a_port_in_use_is_one_line(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err, served = run("serve", "--port", str(port))
    assert (code, served) == (2, [])
    assert err.splitlines()[0] == f"error: 127.0.0.1:{port} is in use already"


def test_it_says_what_is_served_and_where_and_shows_no_key(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "the-secret-itself")
    (tmp_path / ".env").write_text("MODEL_NAME=fake\nSECRET_TOKN=x\nSTATIC_KV_CACHE=false\n")
    code, out, err, served = run("serve", "--port", "0", "--host", "::1", "--only", "chat")
    assert (code, out) == (0, "")
    assert re.search(r"serves at http://\[::1\]:\d+\n", err)
    assert "  model    fake\n" in err
    assert "  auth     1 API key\n" in err
    assert "SECRET_TOKN is not a setting" in err
    assert "STATIC_KV_CACHE has no effect" in err
    assert "the-secret-itself" not in err
    ((target, settings, _),) = served
    assert target is serve.chat_routes
    assert settings.secret_token == "the-secret-itself"


def test_flags_are_handed_on_to_workers_as_environment_and_so_is_the_file(run, tmp_path):
    (tmp_path / "my.env").write_text("PORT=1\nMODEL_NAME=other\n")
    code, _, err, served = run("serve", "-m", "fake", "--port", "0", "--workers", "2", "--env-file", "my.env")
    assert code == 0
    ((_, settings, environ),) = served
    assert (settings.model_name, settings.port, settings.workers) == ("fake", 0, 2)
    assert (environ["MODEL_NAME"], environ["PORT"], environ["WORKERS"]) == ("fake", "0", "2")
    assert environ["ENV_FILE"] == str((tmp_path / "my.env").resolve())
    folder = Path(environ["PROMETHEUS_MULTIPROC_DIR"])
    assert not folder.exists()  # it was there while the server was
    assert "auth     off" in err


def test_a_folder_for_figures_that_was_named_is_emptied_and_kept(run, tmp_path, monkeypatch):
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "counter_1.db").write_text("")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    assert run("serve", "--port", "0", "--workers", "2")[0] == 0
    assert list(folder.iterdir()) == []


def test_a_unix_socket_that_was_left_behind_is_taken_over_and_one_in_use_is_not(run, tmp_path):
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    code, _, err, served = run("serve", "--uds", "x.sock")
    assert (code, len(served)) == (0, 1)
    assert "serves at the UNIX socket x.sock" in err
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(path))
        used.listen()
        code, _, err, served = run("serve", "--uds", "x.sock")
    assert (code, served) == (2, [])
    assert "x.sock is in use already" in err
    assert path.exists()


def test_without_the_extra_the_pip_line_is_given(run, monkeypatch):
    monkeypatch.setattr(optional, "is_importable", lambda name: name != "fastapi")
    for command in (["serve"], ["config", "show"]):
        code, _, err, _ = run(*command)
        assert code == 1
        error, hint = err.splitlines()
        assert error == "error: fastapi is not installed: it comes with the extra `server`"
        assert hint.startswith("hint: pip install ")


def test_the_command_line_imports_no_server_before_it_is_asked():
    source = Path(espalier.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", "import espalier.cli.main, sys; print(sorted(sys.modules))"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("fastapi", "uvicorn", "pydantic", "sqlalchemy", "prometheus_client"):
        assert f"'{name}'" not in done.stdout


def test_config_show_says_each_value_and_where_it_is_from(run, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("SECRET_TOKEN=the-secret-itself\nUVICORN_WORKERS=3\nTORCH_DTYPE=bf16\n")
    monkeypatch.setenv("LOG_LEVEL", "warning")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:the-secret-itself@h/d")
    code, out, err, _ = run("config", "show", "-m", "fake", "--json")
    assert code == 0
    shown = json.loads(out)
    assert shown["MODEL_NAME"] == {"value": "fake", "origin": "flag"}
    assert shown["LOG_LEVEL"] == {"value": "WARNING", "origin": "environment"}
    assert shown["WORKERS"] == {"value": 3, "origin": ".env (UVICORN_WORKERS)"}
    assert shown["ESPALIER_DTYPE"] == {"value": "bfloat16", "origin": ".env"}
    assert shown["ESPALIER_CACHE_DIR"] == {"value": None, "origin": "environment"}
    assert shown["SECRET_TOKEN"] == {"value": "***", "origin": ".env"}
    assert shown["DATABASE_URL"] == {"value": "***", "origin": "environment"}
    assert shown["PORT"] == {"value": 8010, "origin": "default"}
    assert "the-secret-itself" not in out + err
    plain = run("config", "show", "-m", "fake")[1]
    assert re.search(r"^MODEL_NAME +fake +flag$", plain, re.MULTILINE)
    assert re.search(r"^PREBUILD_WORD_COUNTS +3000 +default$", plain, re.MULTILINE)
    assert "the-secret-itself" not in plain


def test_every_setting_is_shown_and_documented(run):
    code, out, _, _ = run("config", "show", "--json")
    assert code == 0
    assert set(json.loads(out)) == {entry.variables[0] for entry in FIELDS.values()} | set(VARIABLES) - {
        "ESPALIER_MODEL"
    }
    text = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    for entry in FIELDS.values():
        assert f"`{entry.variables[0]}`" in text, entry.variables[0]
    text += "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("llamacpp.md", "logs.md", "plugins.md", "upstream.md")
    )
    for name in VARIABLES:
        assert f"`{name}`" in text or name == "ESPALIER_MODEL", name
    for name, entry in entries(EngineOptions).items():
        for flag in entry.field.flags[:1]:
            assert f"`{flag.partition('/')[0]}" in text or name in ("device", "dtype"), flag


def first_answer(server, url):
    """It listens a moment after it says that it has started."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 503:
                    raise
                told = json.load(error)["error"]["message"]
            if told != "Loading model":
                raise AssertionError(told) from error
            # Each answer is a line in the log, which nobody reads yet: not so many that its pipe is full.
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.2)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
    raise AssertionError(f"the server has ended with {server.returncode}")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_real_server_answers_and_ends_on_a_signal(tmp_path, stop):
    source = Path(espalier.__file__).parent.parent
    env = {name: value for name, value in os.environ.items() if name not in ("PORT", "HOST", "SECRET_TOKEN")}
    env |= {"PYTHONPATH": str(source), "ESPALIER_CACHE_DIR": "off", "NO_COLOR": "1", "TRACE_LEVEL": "off"}
    server = subprocess.Popen(
        [sys.executable, "-m", "espalier", "serve", "-m", "fake", "--port", "0", "--log-level", "debug"],
        cwd=tmp_path,
        env=env | {"SECRET_TOKEN": "the-secret-itself", "ALLOW_QUERY_TOKEN": "true"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "Application startup complete" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(lines))
        assert found, lines
        assert first_answer(server, f"{found[0]}/health") == {"status": "ok"}
        with urllib.request.urlopen(f"{found[0]}/v1/models?token=the-secret-itself", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{found[0]}/v1/models?token=the-wrong-one", timeout=30)
        caught.value.close()
        server.send_signal(stop)
        rest = server.stderr.read()
        server.wait(30)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
    logged = "".join(lines) + rest
    assert "Application shutdown complete" in logged
    assert '"route": "/v1/models"' in logged
    assert "the-secret-itself" not in logged
    assert "the-wrong-one" not in logged
    assert "Traceback" not in logged
