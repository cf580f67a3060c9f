"""Parsers of what comes over HTTP: bodies of requests, replies of servers behind, messages of MCP."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from espalier.upstream.link import Exchange, ServerLink
from tests.fuzz.parsers.law import Read
from tests.fuzz.parsers.target import COMPILE_SECONDS, compile_here, compile_seconds

DEPTH = 64


class WorkAtOnce:
    """A thread pool without threads: handing work over costs more than most of it."""

    async def run(self, work: Callable[[], Any], **_: object) -> Any:
        return work()


@cache
def _process() -> Any:
    from espalier.server.process.pools import Pools
    from tests.server_app import make_process, settings

    compile_here()
    pools: Any = Pools(**dict.fromkeys((one.name for one in fields(Pools)), WorkAtOnce()))  # type: ignore[arg-type]  # no threads
    return make_process(settings(compile_seconds=str(COMPILE_SECONDS)), pools=pools)


def _open_body(body: Any, ask: Callable[[Any, Any], object]) -> Read:
    from espalier.server.bodies.base import read_body
    from espalier.server.http.body import parse_object

    process = _process()
    return lambda data: ask(read_body(body, parse_object(data, max_depth=DEPTH), strict=False), process)


def open_chat() -> Read:
    from espalier.server.asking.openai import ask_chat
    from espalier.server.bodies.openai import ChatBody

    return _open_body(ChatBody, ask_chat)


def open_completion() -> Read:
    from espalier.server.asking.openai import ask_completion
    from espalier.server.bodies.openai import CompletionBody

    return _open_body(CompletionBody, ask_completion)


def open_responses() -> Read:
    from espalier.server.asking.responses.ask import ask_responses
    from espalier.server.bodies.responses import ResponsesBody

    return _open_body(ResponsesBody, ask_responses)


def open_messages() -> Read:
    from espalier.server.asking.messages.ask import ask_messages
    from espalier.server.bodies.messages import MessagesBody

    return _open_body(MessagesBody, ask_messages)


def open_llama() -> Read:
    from espalier.server.asking.llama import adapt_llama, ask_llama
    from espalier.server.bodies.base import read_body
    from espalier.server.bodies.llama import LlamaBody
    from espalier.server.http.body import parse_object

    process = _process()

    def read(data: bytes) -> object:
        fields = adapt_llama(parse_object(data, max_depth=DEPTH), process)
        return ask_llama(read_body(LlamaBody, fields, strict=False), process)

    return read


def open_ollama() -> Read:
    from espalier.server.asking.ollama.ask import ask_ollama_chat
    from espalier.server.bodies.ollama import OllamaChatBody

    return _open_body(OllamaChatBody, ask_ollama_chat)


def open_tgi() -> Read:
    from espalier.server.asking.tgi import ask_tgi
    from espalier.server.bodies.tgi import TgiBody

    return _open_body(TgiBody, ask_tgi)


class ScriptedConnection:
    """A connection over which these bytes come, whatever is sent."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sock = SimpleNamespace(settimeout=lambda seconds: None, shutdown=lambda how: None)

    def connect(self) -> None:
        """Nothing is connected."""

    def request(self, *_: object) -> None:
        """Nothing is sent."""

    def getresponse(self) -> http.client.HTTPResponse:
        reader: Any = SimpleNamespace(makefile=lambda mode: io.BytesIO(self._data))
        response = http.client.HTTPResponse(reader)
        response.begin()
        return response

    def close(self) -> None:
        """Nothing is open."""


MODELS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps({"data": [{"id": "m"}]}).encode()


class ScriptedLink(ServerLink):
    """A link to a server that answers every request with these bytes."""

    reply: bytes = MODELS

    def _connection(self) -> Any:
        return ScriptedConnection(self.reply)


def open_openai_stream() -> Read:
    """A whole reply of an OpenAI-compatible server, status line and headers included, to a chat with tools. What is
    sent is the same for each, and written once."""
    import espalier
    from espalier.constraints.compiler import Compiler
    from espalier.engines.base import FinishEvent
    from espalier.tokens.vocab import Vocab
    from espalier.upstream.openai.body import body_of
    from espalier.upstream.openai.engine import OpenAIEngine
    from espalier.upstream.openai.turns import turn_of
    from espalier.upstream.runs import Current, IncomingAnswer

    link = ScriptedLink("http://127.0.0.1:1/v1")
    engine = OpenAIEngine(link)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    messages = [{"role": "user", "content": "hi"}]
    requests, _ = espalier.LoadedEngine(engine).requests(messages, tools=tools, trace="steps", seed=1)
    turn, compiler = turn_of(requests[0]), Compiler(Vocab.bytes())
    body, notes = body_of(requests[0], model="m", seed=1, server="plain")

    def read(data: bytes) -> object:
        link.reply = data
        answer = IncomingAnswer(model="m", request=requests[0], turn=turn, compiler=compiler, is_followed=False)
        events = list(engine._events(answer, body, notes, Current(), 0))
        result = next(event.result for event in events if isinstance(event, FinishEvent))
        return result.text, result.trace and result.trace.to_json()

    return read


def open_llama_stream() -> Read:
    """A whole reply of a llama-server, status line and headers included."""
    from espalier.upstream.llama_server.client import CompletionChunks

    link = ScriptedLink("http://127.0.0.1:1")

    def read(data: bytes) -> object:
        link.reply = data
        exchange: Exchange = link.exchange("POST", "/completion", {})
        return list(CompletionChunks(exchange, link.url))

    return read


def open_proxied_request() -> Read:
    from espalier.upstream.xray.wire.request import UntracedRequest, read_request, rewritten

    def read(data: bytes) -> object:
        path, _, body = data.partition(b"\n")
        try:
            return rewritten(read_request(path.decode("latin-1"), body), 10, lambda: 7)
        except UntracedRequest:  # the proxy passes the request on as it is
            return None

    return read


def open_proxied_event() -> Read:
    """One JSON object of a llama-server's reply, of which the proxy cuts what the client did not ask for."""
    from espalier.upstream.xray.wire.reply import stripped
    from espalier.upstream.xray.wire.request import read_request

    asked = [
        read_request("/completion", b'{"prompt": "x", "grammar": "root ::= \\"a\\"", "n_probs": 3, "stream": true}'),
        read_request("/v1/chat/completions", b'{"messages": [], "json_schema": {"type": "object"}}'),
    ]
    return lambda data: [stripped(data, request, {}) for request in asked]


def open_mcp() -> Read:
    """Lines on standard input of `espalier mcp`, up to its end. A fault that becomes an answer is raised."""
    pytest.importorskip("mcp", reason="mcp is not installed")
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError

    from espalier.server.admit.auth import ANONYMOUS
    from espalier.server.mcp import protocol
    from espalier.server.ports import Caller

    process, caller = _process(), Caller(name=ANONYMOUS)
    faults: list[BaseException] = []

    async def find(_: object) -> protocol.Found:
        return process, caller

    async def keep_faults(context: Any, call_next: Any) -> Any:
        try:
            return await call_next(context)
        except (MCPError, ValidationError):  # of the SDK: no such method, or parameters that it does not take
            raise
        except Exception as error:
            faults.append(error)
            raise

    def keep_fault(*_: object, **__: object) -> None:
        faults.append(sys.exception() or AssertionError("a fault is logged while it is handled"))

    protocol.log = SimpleNamespace(info=lambda *_, **__: None, exception=keep_fault)  # type: ignore[assignment]  # no logger
    server = protocol.make_server(find)
    server.middleware[:] = [keep_faults]
    loop = asyncio.new_event_loop()

    async def serve(data: bytes) -> None:
        incoming: Any = McpLines(data)
        async with stdio_server(incoming, incoming) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    def read(data: bytes) -> None:
        faults.clear()
        loop.run_until_complete(asyncio.wait_for(serve(data), 20))
        if faults:
            raise faults[0]

    return read


def open_tool_call() -> Read:
    """The name and the arguments of a tool for agents: what it asks the model, or its answer where it asks nothing."""
    pytest.importorskip("mcp", reason="mcp is not installed")
    import anyio

    from espalier.agents.table import read_call
    from espalier.server.admit.auth import ANONYMOUS
    from espalier.server.http.body import parse_object
    from espalier.server.mcp.calls import Visit, _check_size, _parse_question
    from espalier.server.ports import Caller
    from espalier.time_limit import time_limit

    process = _process()
    visit = Visit(process=process, caller=Caller(name=ANONYMOUS), request_id="r", tests=anyio.CapacityLimiter(1))

    def read(data: bytes) -> object:
        fields = parse_object(data, max_depth=DEPTH)
        call = read_call(str(fields.get("name")), fields.get("arguments"))
        _check_size(process, call)
        with time_limit(compile_seconds(data)):
            if call.verb.asks is not None:
                return _parse_question(call.verb.asks(call.arguments, visit.desk), process)
            if call.verb.runs is not None:
                return call.verb.runs(call.arguments)
            assert call.verb.answers is not None
            return call.shape(call.verb.answers(call.arguments, visit.desk))

    return read


class McpLines:
    """Standard input and output of one session, without a file."""

    def __init__(self, data: bytes) -> None:
        self._lines = io.StringIO(data.decode("utf-8", "replace"))

    async def __aiter__(self) -> AsyncIterator[str]:
        for line in self._lines:
            yield line

    async def write(self, text: str) -> None:
        """Nobody reads it."""

    async def flush(self) -> None:
        """Nothing is held."""
