"""Auto mode: log mode if the rejection log grows with the requests, x-ray mode if it does not.

A log may be left over from a server that is gone, beside a stock server that writes none. What x-ray asks the server
before anything is traced, under a grammar that refuses much, shows which it is; and while it works, every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from espalier.server.proxy.exchange import Exchange
from espalier.server.proxy.log.mode import LOOKS, SETTLING_SECONDS, LogMode, is_generation, opened_window
from espalier.server.proxy.log.window import Window
from espalier.server.proxy.state import ProxyProcess
from espalier.server.proxy.xray import XRay, x_ray
from espalier.upstream.xray.wire.request import Untraced

log = logging.getLogger(__name__)


class AutoMode:
    """The Tracer of auto mode."""

    def __init__(self, window: Window, logged: LogMode, x_rayed: XRay) -> None:
        self._window, self._logged, self._x_rayed = window, logged, x_rayed
        self._deciding = asyncio.Lock()
        self._is_told = self._is_log = False

    async def serve(self, exchange: Exchange) -> None:
        if not is_generation(exchange):
            await exchange.pass_through()
            return
        async with self._deciding:
            await self._decide()
        if self._is_log:
            await self._logged.serve(exchange)
            return
        await self._x_rayed.serve(exchange)

    async def _decide(self) -> None:
        """Look whether the log has grown; before the first request, after what x-ray asks the server."""
        if self._is_log:
            return
        if not self._is_told:
            with contextlib.suppress(Untraced):  # the log says why
                await self._x_rayed.learning.known()
            for _ in range(LOOKS):
                await self._logged.poll()
                if self._window.has_grown or not self._window.path.exists():
                    break
                await asyncio.sleep(SETTLING_SECONDS / LOOKS)
        else:
            await self._logged.poll()
        if self._window.has_grown:
            self._is_log = True
            log.info("log mode: %s grows with the requests", self._window.path)
        elif not self._is_told and self._window.path.exists():
            log.warning(
                "x-ray mode: %s does not grow with the requests, so that it may be left over from another server; log "
                "mode is taken once it grows, or with --mode log", self._window.path,
            )  # fmt: skip
        elif not self._is_told:
            log.warning("x-ray mode: there is no log at %s; log mode is taken once one grows there", self._window.path)
        self._is_told = True


@asynccontextmanager
async def auto_mode(process: ProxyProcess) -> AsyncIterator[AutoMode]:
    """The tracer of auto mode. What x-ray asks comes after the log was read to its end."""
    async with opened_window(process) as window:
        logged = LogMode(process, window)
        try:
            async with x_ray(process) as x_rayed:
                yield AutoMode(window, logged, x_rayed)
        finally:
            await logged.close()
