"""X-ray mode for whichever server is behind the proxy: a llama-server, or a vLLM.

Which it is, it says itself when it is first needed (`upstream/detect.py`); one that does not answer is asked again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.state import ProxyProcess
from espalier.server.proxy.traced import opened
from espalier.server.proxy.vllm import VllmXRay
from espalier.server.proxy.xray import XRay
from espalier.upstream.detect import LLAMA_SERVER, engine_behind

log = logging.getLogger(__name__)
LOOK_SECONDS = 60.0
"""How long a server is taken for a vLLM without a look at it."""
RETRY_SECONDS = 10.0
"""The same for one of which nothing is known yet."""


class ServerXRay:
    """The Tracer of x-ray mode."""

    def __init__(self, process: ProxyProcess, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = process.link()
        self._llama, self._vllm, self._clock = XRay(process), VllmXRay(process), clock
        self._looking = asyncio.Lock()
        self._is_vllm, self._looked = False, -float("inf")

    async def serve(self, exchange: ProxyExchange) -> None:
        if exchange.scope["method"] != "POST":
            await exchange.pass_through()
            return
        await (self._vllm if await self._finds_vllm() else self._llama).serve(exchange)

    async def look(self) -> None:
        """Learn what there is to know before the first request."""
        if await self._finds_vllm():
            await self._vllm.known()
        else:
            await self._llama.look()

    async def _finds_vllm(self) -> bool:
        """Whether the server has OpenAI's routes alone. A llama-server that is known is not asked: its own tracer looks
        at it."""
        async with self._looking:
            now = self._clock()
            is_due = now - self._looked >= (LOOK_SECONDS if self._is_vllm else RETRY_SECONDS)
            if is_due and not self._llama.learning.has_known:
                self._looked = now
                self._is_vllm = await asyncio.to_thread(engine_behind, self._link) != LLAMA_SERVER
            return self._is_vllm

    async def close(self) -> None:
        """Wait for the traces of replies that have been sent."""
        await self._llama.close()
        await self._vllm.close()


def server_x_ray(process: ProxyProcess) -> AbstractAsyncContextManager[ServerXRay]:
    """The tracer of x-ray mode."""
    return opened(ServerXRay(process), process)
