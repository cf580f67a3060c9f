"""The MCP server over HTTP, asked by the official client: every tool, keys, origins, progress, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp", reason="mcp is not installed")

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

import espalier
from espalier.agents.table import TOOLS
from espalier.cli.main import main_code
from espalier.constraints.judging import in_this_process
from espalier.server.mcp import calls, http
from espalier.server.mcp.http import create_mcp_app
from espalier.server.process.opening import Parts
from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.agent_calls import CALLS, check_answer
from tests.server_app import Stuck, fake_engine, served, settings

ERAS = ("legacy", "auto")
"""The handshake of the protocol's first versions, and requests that stand alone."""


START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def make(engine: espalier.LoadedEngine | None = None, *, serve: Any = None, **values: str) -> Any:
    parts = Parts(
        app=App(KernelSettings()),
        engine=engine or fake_engine(),
        judge=in_this_process,
        takes_batches=False,
        serve=serve,
    )
    return create_mcp_app(settings(**values), parts)


@contextlib.asynccontextmanager
async def connected(url: str, *, mode: str = "auto", key: str | None = None) -> AsyncIterator[Client]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def url(demo_engine: espalier.LoadedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over the demo model that stores traces."""
    path: Path = tmp_path_factory.mktemp("mcp") / "traces.db"
    app = make(demo_engine, trace_level="asked", database_url=f"sqlite:///{path}")
    with served(app) as found:
        yield found


@pytest.mark.parametrize("mode", ERAS)
def test_the_official_client_calls_every_tool(url: str, mode: str) -> None:
    """It validates each answer under the tool's output schema itself."""

    async def ask() -> None:
        async with connected(url, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert [one.name for one in tools] == [*TOOLS]
            for name, arguments in CALLS.items():
                reply = await client.call_tool(name, dict(arguments))
                assert not reply.is_error, (name, reply.content)
                check_answer(name, reply.structured_content)
            made = await client.call_tool("generate", {"prompt": "Hi", "max_tokens": 5, "trace": True})
            trace_id = made.structured_content["trace_id"]
            listed = await client.call_tool("list_traces", {"limit": 1})
            assert [one["id"] for one in listed.structured_content["traces"]] == [trace_id]
            told = await client.call_tool("explain_trace", {"trace_id": trace_id})
            assert told.structured_content["text"] == made.structured_content["text"]

    asyncio.run(ask())


@pytest.mark.parametrize("mode", ERAS)
def test_resources_are_listed_and_read(url: str, mode: str) -> None:
    async def ask() -> None:
        async with connected(url, mode=mode) as client:
            made = await client.call_tool("generate", {"prompt": "Hi", "max_tokens": 3, "trace": True})
            trace = f"trace://{made.structured_content['trace_id']}"
            uris = {one.uri for one in (await client.list_resources()).resources}
            assert {trace, "preset://safe_chat"} <= uris
            templates = (await client.list_resource_templates()).resource_templates
            assert {one.uri_template for one in templates} == {"trace://{id}", "preset://{name}"}
            held = (await client.read_resource(trace)).contents[0]
            assert held.text.startswith('{"format":"espalier-trace"')  # type: ignore[union-attr]
            held = (await client.read_resource("preset://safe_chat")).contents[0]
            assert '"safety_preset": "standard"' in held.text  # type: ignore[union-attr]
            for missing in ("trace://none", "preset://none", "preset://../x", "file:///etc/passwd"):
                with pytest.raises(MCPError, match=r"there is no|no name of a preset"):
                    await client.read_resource(missing)

    asyncio.run(ask())


@pytest.mark.parametrize("mode", ERAS)
def test_progress_says_how_many_tokens_there_are(url: str, mode: str) -> None:
    async def ask() -> None:
        seen: list[tuple[float, float | None]] = []

        async def told(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total))

        async with connected(url, mode=mode) as client:
            reply = await client.call_tool("generate", {"prompt": "Hi", "max_tokens": 9}, progress_callback=told)
            assert seen[-1] == (reply.structured_content["token_count"], 9) or seen[-1][0] >= 8  # EOS is no event
            assert [one for one, _ in seen] == sorted(one for one, _ in seen)
            seen.clear()
            await client.call_tool("test_config", dict(CALLS["test_config"]), progress_callback=told)
            assert seen[-1] == (2, 2)

    asyncio.run(ask())


def test_an_answer_waits_until_its_progress_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client forgets a call with its answer: progress that came later, from a busy loop, was lost."""
    tell = calls._tell

    async def slow(*given: Any) -> None:
        for _ in range(20_000):
            await asyncio.sleep(0)
        await tell(*given)

    async def ask() -> None:
        seen: list[tuple[float, float | None]] = []

        async def told(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total))

        async with connected(url) as client:
            await client.call_tool("test_config", dict(CALLS["test_config"]), progress_callback=told)
            assert seen[-1] == (2, 2)

    monkeypatch.setattr(calls, "_tell", slow)
    asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("generate", {}, "missing required parameter: prompt"),
        ("generate", {"prompt": "x", "temperatur": 1}, "did you mean temperature?"),
        ("generate", {"prompt": "x", "regex": "("}, "regex: "),
        ("generate", {"prompt": "x", "json_schema": {"type": "nonsense"}}, "json_schema: "),
        ("generate", {"prompt": "x", "json_schema": {"enum": ["a" * 300_000]}}, "json_schema has "),
        ("generate", {"prompt": "x", "preset": "none"}, "there is no preset"),
        ("generate", {"prompt": "x", "strategy": "none"}, "strategy"),
        ("explain", {"prompt": "x"}, "there is no constraint to explain"),
        ("explain_trace", {"trace_id": "none"}, "there is no trace"),
        ("test_config", {}, "missing required parameter: test_prompts"),
        ("logit", {"action": "dance"}, "unknown action: dance"),
    ],
)
def test_a_malformed_call_is_a_tool_error_with_our_message(url: str, name: str, arguments: Any, said: str) -> None:
    async def ask() -> None:
        async with connected(url) as client:
            reply = await client.call_tool(name, arguments)
            assert reply.is_error
            assert said in reply.content[0].text  # type: ignore[union-attr]
            assert reply.meta is not None
            assert reply.meta["espalier/error"]["field"]

    asyncio.run(ask())


def test_a_tool_that_there_is_not_is_a_protocol_error(url: str) -> None:
    async def ask() -> None:
        async with connected(url) as client:
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("dance", {})

    asyncio.run(ask())


LONG = {"generate": {"prompt": "Hi"}, "test_config": {"test_prompts": ["Hi", "Ho"], "iterations": 8}}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("mode", ERAS)
def test_a_cancelled_call_ends_its_generation_at_once(mode: str, name: str) -> None:
    stuck: list[Stuck] = []

    def serve(engine: Any) -> Stuck:
        stuck.append(Stuck(engine))
        return stuck[0]

    async def ask(url: str) -> None:
        async with connected(url, mode=mode) as client:
            call = asyncio.create_task(client.call_tool(name, dict(LONG[name])))
            assert await asyncio.to_thread(stuck[0].begun.wait, 60)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            for one in [*stuck[0].runs]:
                assert await asyncio.to_thread(one.cancelled.wait, 60)
            assert not (await client.call_tool("list_presets", {})).is_error  # the session goes on

    with served(make(serve=serve)) as url:
        asyncio.run(ask(url))


KEYS = {"secret_token": "a-good-long-secret"}


def test_a_server_with_a_key_wants_it_from_every_message() -> None:
    async def ask(url: str) -> None:
        async with connected(url, key=KEYS["secret_token"]) as client:
            assert not (await client.call_tool("list_presets", {})).is_error

    with served(make(**KEYS)) as url:
        asyncio.run(ask(url))
        for headers in ({}, {"authorization": "Bearer wrong"}):
            reply = httpx2.post(f"{url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
            assert reply.status_code == 401


def test_the_keys_limits_hold_for_calls() -> None:
    async def ask(url: str) -> None:
        async with connected(url, key=KEYS["secret_token"]) as client:
            replies = [await client.call_tool("generate", {"prompt": "x", "max_tokens": 1}) for _ in range(3)]
            assert [one.is_error for one in replies] == [False, False, True]
            assert "may ask 2 times a minute" in replies[2].content[0].text  # type: ignore[union-attr]
            reply = await client.call_tool("test_config", {"test_prompts": "x", "iterations": 3})
            assert reply.is_error  # its iterations count

    with served(make(**KEYS, requests_per_minute="2")) as url:
        asyncio.run(ask(url))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "https://friend.example"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "intranet"}, 403),
        ({"host": "localhost:1"}, 200),
    ],
)
def test_pages_of_other_origins_and_rebound_names_get_nothing(headers: dict[str, str], status: int) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    with served(make(cors_origins="https://friend.example")) as url:
        assert httpx2.post(f"{url}/mcp", json=START, headers=accept | headers).status_code == status


def test_a_session_belongs_to_the_key_that_began_it(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "one"\nkey = "first-secret"\n[[key]]\nname = "two"\nkey = "second-secret"\n')
    accept = {"accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    with served(make(api_keys_file=str(keys))) as url:
        one = accept | {"authorization": "Bearer first-secret"}
        begun = httpx2.post(f"{url}/mcp", json=START, headers=one)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        assert httpx2.post(f"{url}/mcp", json=ping, headers=one | session).status_code == 200
        two = accept | {"authorization": "Bearer second-secret"}
        assert httpx2.post(f"{url}/mcp", json=ping, headers=two | session).status_code == 404


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--http", "--host", "0.0.0.0", "--port", "0"], "no API key is set"),
        (["--port", "0"], "--port is for --http"),
        (["--http", "--port", "99999"], "--port: "),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_flags_are_refused_before_a_model_is_loaded(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_TOKEN", "API_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert main_code(["mcp", *flags]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert said in caught.err


def test_one_key_cannot_take_the_sessions_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SESSIONS_PER_KEY", 3)
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "one"\nkey = "first-secret"\n[[key]]\nname = "two"\nkey = "second-secret"\n')
    accept = {"accept": "application/json, text/event-stream"}
    one, two = (accept | {"authorization": f"Bearer {key}"} for key in ("first-secret", "second-secret"))
    with served(make(api_keys_file=str(keys))) as url:
        begun = [httpx2.post(f"{url}/mcp", json=START, headers=one) for _ in range(4)]
        assert [reply.status_code for reply in begun] == [200, 200, 200, 429]
        assert begun[3].json()["error"]["message"].startswith("this key has 3 sessions open")
        assert int(begun[3].headers["retry-after"]) >= 1
        assert httpx2.post(f"{url}/mcp", json=START, headers=two).status_code == 200
        session = {"mcp-session-id": begun[0].headers["mcp-session-id"]}
        assert httpx2.delete(f"{url}/mcp", headers=one | session).status_code == 200
        assert httpx2.post(f"{url}/mcp", json=START, headers=one).status_code == 200
