"""A middleware for vLLM's server, which refuses what would drop a constraint before our processor is asked: `vllm serve
MODEL --middleware espalier.integrations.vllm.http.ConstraintGuard`. It knows no constraint and imports no vLLM.

vLLM runs each step of a beam search as a request of its own, without the `vllm_xargs` of the one that came, so a
constraint beside `use_beam_search` would hold nothing, and nobody would learn of it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

KEY = "espalier"
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
REFUSAL = {
    "message": "espalier: use_beam_search cannot be had beside a constraint: vLLM runs each step of a beam as a "
    "request of its own, without its vllm_xargs: sample with n instead",
    "type": "BadRequestError",
    "param": "use_beam_search",
    "code": 400,
}


class ConstraintGuard:
    """An ASGI application around vLLM's."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        messages = [await receive()]
        while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
            messages.append(await receive())
        if _is_unconstrained(b"".join(message.get("body", b"") for message in messages)):
            return await _refuse(send)
        kept = iter(messages)

        async def again() -> Message:
            return next(kept, None) or await receive()

        return await self._app(scope, again, send)


def _is_unconstrained(body: bytes) -> bool:
    """Whether the body asks for a constraint and for beam search. What is no JSON is vLLM's to refuse."""
    if b"use_beam_search" not in body or KEY.encode() not in body:
        return False
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False
    extra = asked.get("vllm_xargs") if isinstance(asked, dict) else None
    return isinstance(extra, dict) and KEY in extra and bool(asked.get("use_beam_search"))


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": REFUSAL}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
