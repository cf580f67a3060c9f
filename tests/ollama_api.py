"""Replies of Ollama's routes held to the types of its SDK, and put together from their lines."""

from __future__ import annotations

import json
from typing import Any

import ollama
from starlette.testclient import TestClient

Json = dict[str, Any]
CHAT, GENERATE = "/api/chat", "/api/generate"
TYPES = {CHAT: ollama.ChatResponse, GENERATE: ollama.GenerateResponse}
OF_RUN = {"created_at", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}
"""What differs from run to run."""


def whole(client: TestClient, body: Json, path: str = CHAT) -> Json:
    reply = client.post(path, json={**body, "stream": False})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return checked(reply.json(), path)


def checked(reply: Json, path: str) -> Json:
    """The reply, which the SDK reads and loses nothing of."""
    read = TYPES[path].model_validate(reply).model_dump(exclude_unset=True)
    assert reply.keys() - {"espalier"} <= read.keys()
    assert reply["done"] is True
    assert all(reply[name] > 0 for name in OF_RUN - {"created_at"})
    return reply


def streamed(client: TestClient, body: Json, path: str = CHAT) -> list[Json]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def gathered(parts: list[Json], path: str = CHAT) -> Json:
    """The reply that a client puts together from the lines."""
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    texts: dict[str, str] = {}
    lists: dict[str, list[Any]] = {}
    for part in parts:
        TYPES[path].model_validate(part)
        for name, value in {**part, **part.get("message", {})}.items():
            if name in ("content", "response", "thinking"):
                texts[name] = texts.get(name, "") + value
            elif name in ("tool_calls", "logprobs"):
                lists.setdefault(name, []).extend(value)
    reply = {**parts[-1], **({"logprobs": lists.pop("logprobs")} if "logprobs" in lists else {})}
    if path == CHAT:
        return checked({**reply, "message": {"role": "assistant", **texts, **lists}}, path)
    return checked({**reply, **texts}, path)


def text_of(reply: Json) -> str:
    return str(reply["message"]["content"] if "message" in reply else reply["response"])
