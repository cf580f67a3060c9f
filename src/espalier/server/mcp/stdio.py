"""The protocol on standard input and output. Nothing else is ever written to standard output: while it runs, what
prints there, Python or native code, is led to standard error.

The model is loaded beside the session, so that a client need not wait for it to say hello; calls do.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

import anyio
from mcp.server.stdio import stdio_server

from espalier.errors import EspalierError, Unavailable
from espalier.server.admit.auth import ANONYMOUS
from espalier.server.mcp.protocol import Context, Found, make_server
from espalier.server.ports import Caller
from espalier.server.process.state import Process

log = logging.getLogger(__name__)
LOCAL = Caller(name=ANONYMOUS)


class BackgroundProcess:
    """A process that is opened in the background. `failure` is why it could not be."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._process: Process | None = None
        self._changed = asyncio.Event()

    async def find(self, ctx: Context) -> Found:
        """Waits until there is a process. Raises Unavailable."""
        await self._changed.wait()
        if self._process is None:
            raise Unavailable(f"the model could not be loaded: {self.failure}")
        return self._process, LOCAL

    async def hold(self, opening: AbstractAsyncContextManager[Process], ended: asyncio.Event) -> None:
        """Hold it open until `ended`."""
        try:
            async with opening as process:
                self._process = process
                log.info("ready")
                self._changed.set()
                await ended.wait()
        except Exception as error:
            if self._process is not None:
                raise  # it failed while closing
            if not isinstance(error, EspalierError):
                log.exception("the model could not be loaded")
            self.failure = error
            self._changed.set()


async def serve_stdio(opening: AbstractAsyncContextManager[Process]) -> None:
    """Serve one client until it closes our standard input. Raises what opening the process raised, once the client has
    gone: until then every call says so."""
    opened, ended = BackgroundProcess(), asyncio.Event()
    server = make_server(opened.find)
    async with stdio_server() as (incoming, outgoing):  # from here on, nothing else reaches standard output
        holding = asyncio.create_task(opened.hold(opening, ended))
        try:
            await server.run(incoming, outgoing, server.create_initialization_options())
        finally:
            with anyio.CancelScope(shield=True):
                ended.set()
                await holding
    if opened.failure is not None:
        raise opened.failure
