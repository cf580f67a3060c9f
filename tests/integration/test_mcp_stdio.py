"""`espalier mcp` as a process: the official client over standard input and output, on both engines.

Nothing but the protocol may reach standard output, at the level of file descriptors: llama.cpp prints there too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="mcp is not installed")

from mcp import Client, StdioServerParameters

from espalier.agents.table import TOOLS
from espalier.wiring import demo_model
from tests.agent_calls import ASK, CALLS, USER, check_answer

pytestmark = pytest.mark.slow
MODELS = {"transformers": demo_model(), "llamacpp": demo_model() / "demo.gguf"}
# llama.cpp's default f16 cache moves logits by up to 2e-2 with the rest of the batch: some draw of a hundred texts may
# then fall on another token than alone.
SAME_IN_ANY_BATCH = {"transformers": [], "llamacpp": ["--kv-type", "f32", "--flash-attn", "off"]}


@pytest.fixture(params=MODELS)
def flags(request: pytest.FixtureRequest) -> list[str]:
    pytest.importorskip("llama_cpp" if request.param == "llamacpp" else "transformers")
    return ["-m", str(MODELS[request.param]), *SAME_IN_ANY_BATCH[request.param]]


def environment(folder: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    return passed | {"DATABASE_URL": f"sqlite:///{folder}/store.db", "OMP_NUM_THREADS": "1"}


def started(folder: Path, flags: list[str]) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "espalier", "mcp", *flags], env=environment(folder), cwd=folder
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_calls_every_tool(tmp_path: Path, flags: list[str], mode: str) -> None:
    async def ask() -> None:
        async with Client(started(tmp_path, flags), mode=mode) as client:
            assert [one.name for one in (await client.list_tools()).tools] == [*TOOLS]
            for name, arguments in CALLS.items():
                reply = await client.call_tool(name, dict(arguments))
                assert not reply.is_error, (name, reply.content)
                check_answer(name, reply.structured_content)
            made = await client.call_tool("generate", {"prompt": "Hi", "max_tokens": 5, "trace": True})
            trace_id = made.structured_content["trace_id"]
            told = await client.call_tool("explain_trace", {"trace_id": trace_id})
            assert told.structured_content["text"] == made.structured_content["text"]
            assert (await client.read_resource(f"trace://{trace_id}")).contents
            wrong = await client.call_tool("generate", {"prompt": "Hi", "nonsense": 1})
            assert wrong.is_error

    asyncio.run(ask())


def test_a_hundred_calls_at_once_are_each_what_they_are_alone(tmp_path: Path, flags: list[str]) -> None:
    """With a seed, and at a temperature at which draws differ."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("generate_structured", {**ASK, "json_schema": USER, "temperature": 1.2, "seed": seed})
        if seed % 2
        else ("generate", {**ASK, "regex": "[a-z]{3,9}( [a-z]{2,6}){2}", "temperature": 1.2, "seed": seed})
        for seed in range(100)
    ]

    async def ask() -> None:
        async with Client(started(tmp_path, flags)) as client:

            async def text(name: str, arguments: dict[str, Any]) -> str:
                reply = await client.call_tool(name, arguments)
                assert not reply.is_error, reply.content
                return str(reply.structured_content["text"])

            alone = [await text(*one) for one in calls]
            together = await asyncio.gather(*(text(*one) for one in calls))
            assert len(set(alone)) > 50
            assert together == alone

    asyncio.run(ask())


@pytest.fixture
def process(tmp_path: Path, flags: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "espalier", "mcp", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
    ) as made:
        yield made
        made.kill()


def test_only_the_protocol_reaches_standard_output(process: subprocess.Popen[bytes]) -> None:
    """Every byte of the file descriptor is read, from the start of the process to its end."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "generate", "arguments": CALLS["generate"]},
        },
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    for one in messages:
        process.stdin.write(json.dumps(one).encode() + b"\n")
    process.stdin.write(b"this is no JSON\n")
    process.stdin.flush()
    replies: list[dict[str, Any]] = []
    while not any(one.get("id") == 2 for one in replies):
        line = process.stdout.readline()
        assert line, process.stderr.read().decode() if process.stderr else ""
        replies.append(json.loads(line))
    assert {one["jsonrpc"] for one in replies} == {"2.0"}
    out, _ = process.communicate(timeout=60)  # closes standard input, which ends the process
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert process.returncode == 0


def test_a_model_that_is_not_there_is_said_by_calls_and_by_the_exit_code(tmp_path: Path) -> None:
    async def ask() -> None:
        async with Client(started(tmp_path, ["-m", "/no/such/model"])) as client:
            reply = await client.call_tool("generate", {"prompt": "Hi"})
            assert reply.is_error
            assert "/no/such/model" in reply.content[0].text  # type: ignore[union-attr]

    asyncio.run(ask())
