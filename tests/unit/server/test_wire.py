"""JSON replies: the same bytes by parts, sent in small pieces, and cut if the client does not read."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.server.answering import route as answering
from espalier.server.answering.replies import ChatChunks
from espalier.server.http.wire import ABORT, PIECE, JsonResponse, to_bytes, to_bytes_by_parts
from tests.server_app import client

DEEP = {"a": [{"b": {"c": [{"d": [{"e": [1.5, None, True]}]}]}}], 'é"': {}, "x": [], "y": "\ud83d", "": [[], {}]}


@pytest.mark.parametrize("data", [DEEP, [], {}, 1, "a", None, [DEEP, DEEP]])
def test_by_parts_the_bytes_are_the_same(data: Any) -> None:
    assert to_bytes_by_parts(data) == to_bytes(data)


def test_what_json_cannot_say_is_an_error_by_parts_too() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_bytes_by_parts({"a": [float("nan")]})


async def _receive() -> Any:
    await asyncio.Event().wait()


def test_a_reply_is_handed_over_in_pieces_that_wait_for_their_reader() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    text = "x" * (2 * PIECE + 5)
    asyncio.run(JsonResponse(text)({"type": "http"}, _receive, send))
    bodies = [one["body"] for one in sent[1:]]
    assert max(map(len, bodies)) <= PIECE
    assert json.loads(b"".join(bodies)) == text
    assert [one["more_body"] for one in sent[1:]] == [True, True, False]
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(text) + 2).encode()


def test_a_reply_that_nobody_reads_is_cut() -> None:
    cut: list[str] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "extensions": {ABORT: lambda: cut.append("cut")}}
    asyncio.run(JsonResponse("x", limit_seconds=0.01)(scope, _receive, send))
    assert cut == ["cut"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_with_a_full_trace_is_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    made: list[threading.Thread] = []
    owner, name = (ChatChunks, "sent") if stream else (answering, "reports")
    report = getattr(owner, name)

    def watched(*given: Any, **options: Any) -> Any:
        if not stream or options:
            made.append(threading.current_thread())
        return report(*given, **options)

    monkeypatch.setattr(owner, name, watched)
    loops: list[threading.Thread] = []
    begin = answering._begin

    async def begun(*given: Any) -> Any:
        loops.append(threading.current_thread())
        return await begin(*given)

    monkeypatch.setattr(answering, "_begin", begun)
    body = {"messages": [{"role": "user", "content": "hi"}], "espalier": {"trace": "full"}, "stream": stream}
    with client("Hi.") as found:
        reply = found.post("/v1/chat/completions", json=body)
    assert "pre_masking" in reply.text
    assert made
    assert made[0] is not loops[0]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_body_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    asked: list[threading.Thread] = []
    loops: list[threading.Thread] = []
    read, begin = answering.read_body, answering._begin

    def watched(*given: Any, **options: Any) -> Any:
        asked.append(threading.current_thread())
        return read(*given, **options)

    async def begun(*given: Any) -> Any:
        loops.append(threading.current_thread())
        return await begin(*given)

    monkeypatch.setattr(answering, "read_body", watched)
    monkeypatch.setattr(answering, "_begin", begun)
    body = {"messages": [{"role": "user", "content": "hi"}], "stop_token_ids": [1] * (60_000 if is_large else 6)}
    with client("Hi.") as found:
        reply = found.post("/v1/chat/completions", json=body)
    assert reply.status_code == (400 if is_large else 200)
    assert (asked[0] is not loops[0]) == is_large
