"""A thousand bodies that are wrong, and requests that are wrong below their bodies: each a clear 4xx, none a 5xx, no
hang, and memory stays as it was. Bodies go through ASGI, the rest to a real process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx2

from tests.server_app import make_app, settings
from tests.server_process import ServerProcess, raw_exchange, resident_bytes, serving

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0.5}
TEXT = {"prompt": "hi", "max_tokens": 4, "top_p": 0.9}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
NAMED = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}
FULL = CHAT | {
    "n": 1,
    "seed": 1,
    "stop": ["x"],
    "logprobs": True,
    "top_logprobs": 2,
    "stream": True,
    "logit_bias": {"65": 1.5},
    "stream_options": {"include_usage": True},
    "top_k": 5,
    "min_p": 0.1,
    "response_format": NAMED,
    "presence_penalty": 1,
}
VALID: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", FULL),
    ("/v1/chat/completions", CHAT | {"tools": [TOOL], "tool_choice": "auto"}),
    ("/v1/chat/completions", CHAT | {"structured_outputs": {"regex": "[a-z]+"}, "espalier": {"trace": True}}),
    ("/v1/chat/completions", CHAT | {"espalier": {"constraint": {"kind": "choice", "options": ["a", "b"]}}}),
    ("/v1/completions", TEXT),
    ("/v1/completions", TEXT | {"guided_grammar": 'root ::= "a"', "echo": True}),
    ("/v1/completions", TEXT | {"json_schema": SCHEMA, "n": 2}),
)
MIB = 2**20
GROWTH = 48 * MIB
"""What a process may hold more after all of them: pools and caches, not bodies, of which there are far more bytes."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*path, name))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The body with another value at a place."""
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


WRONG: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: None,
    lambda r: True,
    lambda r: r.choice([0, -1, -7, 2**31, 2**63, 10**30, -(10**30)]),
    lambda r: r.choice([0.5, -0.5, 1e308, -1e308, 1e-308]),
    lambda r: float("nan"),
    lambda r: float("inf"),
    lambda r: "",
    lambda r: "x" * r.choice([1, 300, 70_000]),
    lambda r: "\x00\x1b\u2028",
    lambda r: "\ud800",
    lambda r: [],
    lambda r: {},
    lambda r: [[]],
    lambda r: {"": None},
    lambda r: [None],
    lambda r: [1, "a", {}],
    lambda r: {"kind": "no such kind"},
    lambda r: {"type": r.choice(["text", "json", 5, None])},
    lambda r: list(range(500)),
    lambda r: {"$ref": "#"},
    lambda r: {"a" * 100: "b"},
    lambda r: "[" * 500,
    lambda r: "(" * 300,
    lambda r: "root ::= root",
)


def mutated(made: random.Random) -> tuple[str, bytes]:
    """A valid body with one or two values that are others."""
    route, body = made.choice(VALID)
    for _ in range(made.choice([1, 1, 2])):
        body = changed(body, made.choice([*places(body)]), made.choice(WRONG)(made))
    if made.random() < 0.15:
        body = {**body, made.choice(["", "temprature", "\ud800", "stream ", "é" * 50]): 1}
    if made.random() < 0.1:
        body = {name: value for name, value in body.items() if name not in ("messages", "prompt")}
    return route, json.dumps(body).encode()


NO_NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"01", b"1e", b"+1", b"0x1"]
NO_OBJECTS = [b"", b"null", b"[]", b"1", b'"a"', b"true", b" ", b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"{'a': 1}"]


def broken(made: random.Random) -> tuple[str, bytes]:
    """Bytes that are no JSON, or no JSON that is taken."""
    route, body = made.choice(VALID)
    raw = json.dumps(body).encode()
    at = made.randrange(len(raw))
    deep = made.choice([200, 10_000, 100_000])
    return route, made.choice(
        [
            lambda: raw[:at],
            lambda: raw + made.choice([b"x", b"{}", b"]", b"\x00", b","]),
            lambda: raw[:at] + bytes([made.randrange(128, 256)]) + raw[at:],
            lambda: raw[:-1] + b', "max_tokens": 3, "max_tokens": 4}',
            lambda: raw[:-1] + b', "seed": ' + made.choice(NO_NUMBERS) + b"}",
            lambda: raw[:-1] + b', "seed": ' + b"9" * made.choice([30, 5_000, 100_000]) + b"}",
            lambda: raw[:-1] + b', "user": ' + b"[" * deep + b"]" * deep + b"}",
            lambda: raw[:-1] + b', "metadata": ' + b'{"a":' * deep + b"1" + b"}" * deep + b"}",
            lambda: b"[" * deep,
            lambda: raw[:-1] + b', "user": "\\ud800"}',
            lambda: raw[:-1] + b', "user": "' + b"x" * 3_000_000 + b'"}',
            lambda: made.choice(NO_OBJECTS),
            lambda: raw.decode().encode("utf-16"),
        ]
    )()


def wants_param(error: dict[str, Any]) -> bool:
    """Whether it is about one field: what is said of the body as a whole is about none."""
    return not re.match(r"the body |there are no|body", error["message"])


@pytest.mark.slow
@linux
def test_a_thousand_wrong_bodies() -> None:
    made = random.Random(20240917)
    bodies = [(mutated if number % 3 else broken)(made) for number in range(1000)]
    api = make_app(config=settings(compile_seconds="2", request_seconds="300", max_body_bytes="2000000"))
    statuses: Counter[int] = Counter()

    async def main() -> None:
        transport = httpx2.ASGITransport(api, raise_app_exceptions=False)
        async with (
            api.router.lifespan_context(api),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            before = 0
            for number, (route, raw) in enumerate(bodies):
                answer = await client.post(route, content=raw, headers={"content-type": "application/json"})
                statuses[answer.status_code] += 1
                check(answer, raw)
                if number == 200:  # all that is made once has been made
                    before = resident_bytes(os.getpid())
            assert resident_bytes(os.getpid()) - before < GROWTH
            load = api.state.process.scheduler.load()
            assert (load.running, load.waiting) == (0, 0)

    asyncio.run(main())
    assert sum(count for status, count in statuses.items() if 400 <= status < 500) > 700, statuses
    assert statuses[413] > 5
    assert statuses[400] > 500


def check(answer: httpx2.Response, raw: bytes) -> None:
    shown = (answer.status_code, answer.text[:500], raw[:500])
    if answer.status_code == 200:  # a change that changes nothing: it must be so in truth
        assert "error" not in answer.text[:20], shown
        return
    assert 400 <= answer.status_code < 500, shown
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}, shown
    assert error["type"] in ("invalid_request_error", "not_found_error"), shown
    assert error["message"], shown
    assert len(error["message"]) < 2_000, shown
    if wants_param(error):
        assert error["param"] is not None, shown  # a field may be called ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # Long enough for a body that does come, on a busy machine too.
    env = {"BODY_SECONDS": "2", "MAX_BODY_BYTES": "100000", "TRACE_LEVEL": "off"}
    with serving(cwd=tmp_path_factory.mktemp("malformed"), env=env) as found:
        yield found


GOOD = json.dumps(CHAT).encode()


def request(headers: dict[str, str], body: bytes = b"", line: str = "POST /v1/chat/completions HTTP/1.1") -> bytes:
    usual = {"Host": "127.0.0.1", "Content-Type": "application/json", "Connection": "close"}
    lines = [line, *(f"{name}: {value}" for name, value in {**usual, **headers}.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + (b"0\r\n\r\n" if end else b"")


LENGTH = {"Content-Length": str(len(GOOD))}
CHUNKED = {"Transfer-Encoding": "chunked"}
TRANSPORT: dict[str, tuple[bytes, set[int]]] = {
    "another content type": (request({**LENGTH, "Content-Type": "text/plain"}, GOOD), {415}),
    "no content type": (request({**LENGTH, "Content-Type": ""}, GOOD), {415}),
    "a form": (request({**LENGTH, "Content-Type": "multipart/form-data; boundary=a"}, GOOD), {415}),
    "a body that never comes": (request(LENGTH), {408}),
    "a body that comes in part": (request(LENGTH, GOOD[:9]), {408}),
    "a length that is too great": (request({"Content-Length": str(len(GOOD) + 5)}, GOOD), {408}),
    "a length that is too small": (request({"Content-Length": str(len(GOOD) - 5)}, GOOD), {400}),
    "a length that is no number": (request({"Content-Length": "many"}, GOOD), {400}),
    "a length below nought": (request({"Content-Length": "-5"}, GOOD), {400}),
    "a length of thirty digits": (request({"Content-Length": "9" * 30}, GOOD), {400, 413}),
    "a great length, announced": (request({"Content-Length": "5000000"}), {413}),
    "no length and no body": (request({}), {400}),
    "a length and chunks": (request({**LENGTH, **CHUNKED}, chunked(GOOD)), {400}),
    "chunks that never end": (request(CHUNKED, chunked(GOOD, end=False)), {408}),
    "a chunk that is cut": (request(CHUNKED, b"ff\r\nabc"), {408}),
    "a chunk of no size": (request(CHUNKED, b"zz\r\nabc\r\n"), {400}),
    "chunks without end": (request(CHUNKED, chunked(*[b"x" * 10_000] * 20)), {413}),
    "a header of 200 kB": (request({**LENGTH, "X-Long": "a" * 200_000}, GOOD), {431}),
    "20,000 headers": (request({**LENGTH, **{f"X-{n}": "a" for n in range(20_000)}}, GOOD), {431}),
    "an address of 100 kB": (request(LENGTH, GOOD, f"POST /{'a' * 100_000} HTTP/1.1"), {431}),
    "a header with a control character": (request({**LENGTH, "X-Bad": "a\x00b"}, GOOD), {400}),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", {400}),
    "a method that is none": (request(LENGTH, GOOD, "PO ST /v1/chat/completions HTTP/1.1"), {400}),
    "a method that is not taken": (request({}, b"", "GET /v1/chat/completions HTTP/1.1"), {405}),
    "an address that is not there": (request(LENGTH, GOOD, "POST /v1/chat/completion HTTP/1.1"), {404}),
    "an address that climbs": (request({}, b"", "GET /v1/models/../../etc/passwd HTTP/1.1"), {404}),
    "half a character in an address": (request({}, b"", "GET /v1/models/%ff%fe HTTP/1.1"), {404}),
    "another host": (request({**LENGTH, "Host": "evil.example"}, GOOD), {403}),
    "a request id that breaks the log": (request({**LENGTH, "X-Request-Id": "a b\x7f"}, GOOD), {200, 400}),
}
NOT_OURS = {
    "a length that is no number",
    "a length below nought",
    "a length of thirty digits",
    "a length and chunks",
    "a chunk of no size",
    "a header of 200 kB",
    "20,000 headers",
    "an address of 100 kB",
    "a header with a control character",
    "no HTTP at all",
    "a method that is none",
    "a request id that breaks the log",
}
"""Refused by the HTTP parser, before there is a request whose error could have a shape."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPORT)
def test_a_request_that_is_wrong_below_its_body(server: ServerProcess, name: str) -> None:
    sent, wanted = TRANSPORT[name]
    answer = raw_exchange(server.url, sent)
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert found, answer[:300]
    assert int(found[1]) in wanted, answer[:600]
    if name not in NOT_OURS:
        head, _, body = answer.partition(b"\r\n\r\n")
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert b"x-request-id: req-" in head.lower()
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize("name", ["a body that never comes", "chunks that never end", "a body that comes in part"])
def test_a_client_that_leaves_amid_its_body_leaves_nothing(server: ServerProcess, name: str) -> None:
    sent, _ = TRANSPORT[name]
    answer = raw_exchange(server.url, sent, closes=True)
    assert not answer.startswith(b"HTTP/1.1 5"), answer[:300]
    assert server.get("/ready").json() == {"status": "ok", "running": 0, "waiting": 0}


@pytest.mark.slow
@linux
def test_a_process_does_not_grow_by_what_it_refuses(server: ServerProcess) -> None:
    """Ten rounds of all that is wrong after a first, and 300 connections that send a part and go."""
    slow = {name for name, (_, wanted) in TRANSPORT.items() if wanted == {408}}

    def everything() -> None:
        for name, (sent, _) in TRANSPORT.items():
            raw_exchange(server.url, sent, closes=name in slow)

    everything()
    before = resident_bytes(server.pid)
    for _ in range(10):
        everything()
    for _ in range(300):
        raw_exchange(server.url, request(LENGTH, GOOD[:20]), closes=True)
    assert resident_bytes(server.pid) - before < GROWTH
    assert "Traceback" not in server.text, server.text[-3000:]
    assert server.get("/ready").json() == {"status": "ok", "running": 0, "waiting": 0}
    assert len([*Path(f"/proc/{server.pid}/fd").iterdir()]) < 100
