"""Middlewares for vLLM's server, `vllm serve MODEL --middleware espalier.integrations.vllm.http.ConstraintGuard`. The
guard refuses what would drop a constraint before our processor is asked. `StockConstraints`, in its place, also has the
processor hold what stock clients ask for (`../stock.py`). They import no vLLM.

vLLM runs each step of a beam search as a request of its own, without the `vllm_xargs` of the one that came, so a
constraint beside `use_beam_search` would hold nothing, and nobody would learn of it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from espalier.integrations.stock import EXTRA, FORMAT, KEY, OUTPUTS, with_ours

ID = b"x-request-id"
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
        body = b"".join(message.get("body", b"") for message in messages)
        changed = self.changed(scope, body)
        if _is_unconstrained(body if changed is None else changed):
            return await _refuse(send)
        if changed is not None:
            scope = {**scope, "headers": _with_length(scope.get("headers", []), len(changed))}
            messages = [{"type": "http.request", "body": changed, "more_body": False}]
        kept = iter(messages)

        async def again() -> Message:
            return next(kept, None) or await receive()

        return await self._app(scope, again, send)

    def changed(self, scope: Message, body: bytes) -> bytes | None:
        """What the application gets in place of a body, None for the body as it came."""
        return None


class StockConstraints(ConstraintGuard):
    """Has our processor hold `response_format` and `structured_outputs`, and report what they cost, under the name of
    the header `x-request-id` where there is one."""

    def changed(self, scope: Message, body: bytes) -> bytes | None:
        if not any(name.encode() in body for name in (FORMAT, OUTPUTS)):
            return None
        asked = _parsed(body)
        if not isinstance(asked, dict):
            return None
        ids = [value.decode("latin-1") for name, value in scope.get("headers", []) if name.lower() == ID]
        ours = with_ours(asked, name=ids[0] if ids else "")
        return None if ours is None else json.dumps(ours).encode()


def _is_unconstrained(body: bytes) -> bool:
    """Whether the body asks for a constraint and for beam search. What is no JSON is vLLM's to refuse."""
    if b"use_beam_search" not in body or KEY.encode() not in body:
        return False
    asked = _parsed(body)
    extra = asked.get(EXTRA) if isinstance(asked, dict) else None
    return isinstance(extra, dict) and KEY in extra and bool(asked.get("use_beam_search"))


def _parsed(body: bytes) -> Any:
    """None for what is no JSON, which is vLLM's to refuse."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _with_length(headers: Iterable[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() not in (b"content-length", b"transfer-encoding")]
    return [*kept, (b"content-length", str(length).encode())]


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": REFUSAL}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
