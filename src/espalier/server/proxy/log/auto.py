"""Auto mode: log mode if the rejection log grows with the requests, x-ray mode if it does not.

A log may be left over from a server that is gone, beside a stock server that writes none. What x-ray asks the server
before anything is traced, under a grammar that refuses much, shows which it is; and while it works, every request. A
server that x-ray cannot ask shows it by its replies: they are traced by log mode if the log has grown by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.log.mode import LOOKS, SETTLING_SECONDS, LogMode, is_generation, opened_window
from espalier.server.proxy.log.window import Window
from espalier.server.proxy.state import ProxyProcess
from espalier.server.proxy.xray import XRay, x_ray
from espalier.upstream.xray.wire.request import UntracedRequest

log = logging.getLogger(__name__)


class AutoMode:
    """The Tracer of auto mode. logged: a LogMode that needs growth."""

    def __init__(self, window: Window, logged: LogMode, x_rayed: XRay) -> None:
        self._window, self._logged, self._x_rayed = window, logged, x_rayed
        self._deciding = asyncio.Lock()
        self._has_settled = self._is_log = False
        self._said: str | None = None

    async def serve(self, exchange: ProxyExchange) -> None:
        if not is_generation(exchange):
            await exchange.pass_through()
            return
        async with self._deciding:
            tracer = await self._choose()
        await tracer.serve(exchange)

    async def _choose(self) -> LogMode | XRay:
        """Log mode once the log has grown, which is looked for before the first request after what x-ray asks the
        server. Until then x-ray mode, or, where x-ray cannot ask the server, log mode for what makes the log grow."""
        path = self._window.path
        if self._is_log:
            return self._logged
        can_ask = await self._can_ask()
        for _ in range(1 if self._has_settled or not can_ask else LOOKS):
            await self._logged.poll()
            if self._window.has_grown or not path.exists():
                break
            await asyncio.sleep(SETTLING_SECONDS / LOOKS)
        self._has_settled = self._has_settled or can_ask
        if self._window.has_grown:
            self._is_log = True
            log.info("log mode: %s grows with the requests", path)
        elif not can_ask:
            self._say(f"log mode for replies after which {path} has grown: x-ray cannot ask this server for its tokens")
        elif path.exists():
            self._say(
                f"x-ray mode: {path} does not grow with the requests, so that it may be left over from another server; "
                "log mode is taken once it grows, or with --mode log"
            )
        else:
            self._say(f"x-ray mode: there is no log at {path}; log mode is taken once one grows there")
        return self._logged if self._is_log or not can_ask else self._x_rayed

    async def _can_ask(self) -> bool:
        """Whether x-ray knows the server's tokens; the log says why it does not."""
        try:
            await self._x_rayed.learning.known()
        except UntracedRequest:
            return False
        return True

    def _say(self, choice: str) -> None:
        """Warn of a choice, not again of the same."""
        if choice != self._said:
            log.warning("%s", choice)
            self._said = choice


@asynccontextmanager
async def auto_mode(process: ProxyProcess) -> AsyncIterator[AutoMode]:
    """The tracer of auto mode. What x-ray asks comes after the log was read to its end."""
    async with opened_window(process) as window:
        logged = LogMode(process, window, needs_growth=True)
        try:
            async with x_ray(process) as x_rayed:
                yield AutoMode(window, logged, x_rayed)
        finally:
            await logged.close()
