"""The server as somebody has it who types: in an empty folder, with curl, the SDK, a `.env`, and with mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import jsonschema

from tests.ports import free_port
from tests.server_process import ROOT, ServerProcess, clean_environment, serving, start

curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
unix = pytest.mark.skipif(sys.platform == "win32", reason="signals and scripts of UNIX")
pytestmark = unix
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "Generate user info"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "save_user", "description": "Saves a user.", "strict": True, "parameters": SCHEMA},
    }
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With nothing but the port said: the demo model."""
    folder = tmp_path_factory.mktemp("user")
    with serving(cwd=folder, command=[sys.executable, "-m", "espalier", "serve"]) as found:
        yield found


def asked_by_curl(server: ServerProcess, path: str, body: object = None, *flags: str) -> str:
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "120", server.url + path, *flags]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150)
    return done.stdout


@pytest.mark.slow
@curl
def test_curl_asks_for_the_models(server: ServerProcess) -> None:
    found = json.loads(asked_by_curl(server, "/v1/models"))
    assert [one["owned_by"] for one in found["data"]] == ["espalier"]


@curl
def test_curl_asks_for_a_completion(server: ServerProcess) -> None:
    found = json.loads(asked_by_curl(server, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 16}))
    assert found["choices"][0]["message"]["content"]
    assert found["usage"]["completion_tokens"] <= 16


@curl
def test_curl_reads_a_stream(server: ServerProcess) -> None:
    body = {"messages": MESSAGES, "max_tokens": 16, "stream": True, "temperature": 0}
    lines = [one for one in asked_by_curl(server, "/v1/chat/completions", body, "-N").split("\n\n") if one]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(one.removeprefix("data: ")) for one in lines[:-1]]
    whole = json.loads(asked_by_curl(server, "/v1/chat/completions", {**body, "stream": False}))
    text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
    assert text == whole["choices"][0]["message"]["content"]


@curl
def test_curl_asks_for_a_schema_and_a_tool(server: ServerProcess) -> None:
    named = {"type": "json_schema", "json_schema": {"name": "user", "strict": True, "schema": SCHEMA}}
    body = {"messages": MESSAGES, "response_format": named, "temperature": 0, "max_tokens": 64}
    found = json.loads(asked_by_curl(server, "/v1/chat/completions", body))
    jsonschema.validate(json.loads(found["choices"][0]["message"]["content"]), SCHEMA)
    body = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "required", "temperature": 0, "max_tokens": 96}
    found = json.loads(asked_by_curl(server, "/v1/chat/completions", body))
    (choice,) = found["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "save_user"
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


@curl
def test_what_is_wrong_is_said_where(server: ServerProcess) -> None:
    asked = {"messages": MESSAGES, "temperatur": 0, "max_tokens": 4, "espalier": {}}
    found = json.loads(asked_by_curl(server, "/v1/chat/completions", asked))
    (told,) = found["espalier"]["warnings"]
    assert "temperatur" in told
    assert "temperature" in told
    refused = json.loads(
        asked_by_curl(
            server, "/v1/chat/completions", {"messages": MESSAGES, "response_fromat": {"type": "json_object"}}
        )
    )
    assert refused["error"]["param"] == "response_fromat"
    assert "response_format" in json.dumps(refused["error"])


def test_the_sdk_with_our_base_url(server: ServerProcess) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        (model,) = client.models.list()
        found = client.chat.completions.create(
            model=model.id,
            messages=MESSAGES,
            temperature=0,
            max_tokens=64,
            response_format={"type": "json_schema", "json_schema": {"name": "user", "strict": True, "schema": SCHEMA}},
        )
    jsonschema.validate(json.loads(found.choices[0].message.content), SCHEMA)


def refused(*flags: str, cwd: Path, **env: str) -> str:
    """What is said by a server that does not start."""
    server = start(*flags, cwd=cwd, env=env)
    try:
        assert server.wait() == 2, server.text
    finally:
        server.kill()
    assert "Traceback" not in server.text
    return server.text


@pytest.mark.slow
def test_the_env_file_of_the_folder_is_read_and_flags_win(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / ".env").write_text(f'MODEL_NAME=fake\nPORT={port}\nSECRET_TOKEN="sk-of-the-file"\nMODEL_ALIAS=mine\n')
    server = start(cwd=tmp_path)
    try:
        server.until_ready()
        assert server.url == f"http://127.0.0.1:{port}"
        assert server.get("/v1/models").status_code == 401
        found = server.get("/v1/models", headers={"authorization": "Bearer sk-of-the-file"})
        assert [one["id"] for one in found.json()["data"]] == ["mine", "fake"]
        assert "sk-of-the-file" not in server.text
        said = refused("-m", "fake", "--port", str(port), cwd=tmp_path)
        assert f"127.0.0.1:{port} is in use already" in said
        assert "--port 0" in said
    finally:
        server.kill()


@pytest.mark.slow
def test_a_wrong_line_of_the_env_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MODEL_NAME=fake\nQUEUE_SIZE=many\n")
    assert "QUEUE_SIZE=many" in refused(cwd=tmp_path)
    (tmp_path / ".env").write_text("MODEL_NAME=fake\nENABLE_THINKING=perhaps\n")
    assert "ENABLE_THINKING" in refused(cwd=tmp_path)
    (tmp_path / ".env").write_text("MODEL_NAME=fake\nQEUE_SIZE=3\nPORT=0\n")
    with serving(cwd=tmp_path) as server:
        assert "QEUE_SIZE is not a setting" in server.text
    (tmp_path / ".env").write_text("MODEL_NAME=fake\nthis is no line\nPORT=0\n")
    assert "line 2" in refused(cwd=tmp_path)


@pytest.mark.slow
def test_a_model_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    server = start("-m", "no-such-model", "--port", "0", cwd=tmp_path)
    try:
        assert server.wait() != 0
    finally:
        server.kill()
    assert "no-such-model" in server.text


@pytest.mark.slow
def test_beyond_this_machine_a_key_is_needed(tmp_path: Path) -> None:
    said = refused("-m", "fake", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert "SECRET_TOKEN" in said
    server = start("-m", "fake", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path, env={"SECRET_TOKEN": "sk-long-one"})
    try:
        server.until_ready()
        assert server.get("/v1/models").status_code == 401
    finally:
        server.kill()


@pytest.mark.slow
def test_run_chat_starts_workers(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "run_chat.sh"
    if not (ROOT / ".venv" / "bin" / "espalier").exists():
        shim = tmp_path / "bin" / "espalier"  # the command as it is installed
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m espalier "$@"\n')
        shim.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{clean_environment()['PATH']}"
    env = {
        "PORT": str(free_port()),
        "UVICORN_WORKERS": "2",
        "PATH": path,
        "DATABASE_URL": f"sqlite:///{tmp_path / 'a.db'}",
    }
    server = start("-m", "fake", cwd=tmp_path, env=env, command=["bash", str(script)])
    try:
        server.until_ready()
        assert "2, each with the model" in server.text
        found = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8})
        assert found.status_code == 200, found.text
        assert server.terminate() == 0
    finally:
        server.kill()
