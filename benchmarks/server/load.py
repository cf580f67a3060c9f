"""Many streaming clients at once on one event loop, written on bare sockets: what measures must cost little beside what
is measured, which has the other core."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.server.servers import Server

TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Reply:
    """first: seconds to the first text; total: to the end. text: all of it."""

    first: float
    total: float
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that were sent at once. speed: tokens a second over all of them; firsts: seconds, sorted."""

    speed: float
    firsts: tuple[float, ...]

    @property
    def median_first(self) -> float:
        return statistics.median(self.firsts)

    @property
    def late_first(self) -> float:
        """The 95th percentile."""
        return self.firsts[min(len(self.firsts) - 1, int(0.95 * len(self.firsts)))]


def burst(
    server: Server, messages: Sequence[str], *, tokens: int, schema: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> Burst:
    """One request for each message, all at once, each of which runs to its last token. Raises RuntimeError where one
    does not: then the number of tokens would not be known."""
    bodies = [
        json.dumps(
            {
                "messages": [{"role": "user", "content": message}],
                "max_tokens": tokens,
                "stream": True,
                "seed": seed,
                **more,
                **server.body(schema),
            }
        ).encode()
        for seed, message in enumerate(messages)
    ]
    start = time.perf_counter()
    replies = asyncio.run(_all(server, bodies))
    took = time.perf_counter() - start
    for reply in replies:
        if reply.reason != "length":
            raise RuntimeError(f"{server.name} ended with {reply.reason!r} before {tokens} tokens: {reply.text!r}")
    return Burst(tokens * len(replies) / took, tuple(sorted(reply.first for reply in replies)))


async def _all(server: Server, bodies: Sequence[bytes]) -> list[Reply]:
    async with asyncio.timeout(TIMEOUT):
        return await asyncio.gather(*(_ask(server, body) for body in bodies))


async def _ask(server: Server, body: bytes) -> Reply:
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    first, reason, parts, said = 0.0, "", [], b""
    try:
        async for line in reader:  # the lengths of chunks are lines of their own
            said += line if len(said) < 2000 and not line.startswith(b"data: ") else b""
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if not choices:
                continue
            text = choices[0]["delta"].get("content")
            if text:
                first = first or time.perf_counter() - start
                parts.append(text)
            reason = choices[0].get("finish_reason") or reason
    finally:
        writer.close()
    if not reason:
        raise RuntimeError(f"{server.name}: {said.decode(errors='replace')}")
    return Reply(first, time.perf_counter() - start, reason, "".join(parts))
