"""What the proxy knows of the server behind it, learned when it is needed, and again when another model answers there.

It knows no client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from espalier.errors import EspalierError, UpstreamError
from espalier.server.proxy.self_test import self_test
from espalier.upstream.detect import LLAMA_SERVER, engine_behind
from espalier.upstream.link import BrokeOff
from espalier.upstream.llama_server import vocabulary
from espalier.upstream.llama_server.client import LlamaServer, Props
from espalier.upstream.xray.known import ServerTokens
from espalier.upstream.xray.wire.request import UntracedRequest

log = logging.getLogger(__name__)
RETRY_SECONDS = 10.0
LOOK_SECONDS = 5.0
"""How long the server is taken for the same without a look at its properties."""
AGAIN_SECONDS = 60.0
"""The least time between two readings of all tokens of a server whose properties are the same."""


class Learning:
    """The tokens of one server, self-tested."""

    def __init__(
        self, server: LlamaServer, *, has_self_test: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server, self._has_self_test, self._clock = server, has_self_test, clock
        self._known: ServerTokens | None = None
        self._props: Props | None = None
        self._learning = asyncio.Lock()
        self._tried = self._looked = self._read = -float("inf")
        self._is_doubted = False

    @property
    def has_known(self) -> bool:
        """Whether the server's tokens have been read."""
        return self._known is not None

    def doubt(self) -> None:
        """A reply did not fit what is known: it may be another model's."""
        self._is_doubted = True

    async def known(self) -> ServerTokens:
        """The server's tokens. Raises UntracedRequest if they cannot be had now."""
        async with self._learning:
            now = self._clock()
            if self._known is None and now - self._tried < RETRY_SECONDS:
                raise UntracedRequest("the server's tokens are not known")
            if self._known is None or self._is_doubted or now - self._looked >= LOOK_SECONDS:
                self._tried = now
                try:
                    self._known = await asyncio.to_thread(self._look_again, now)
                except EspalierError as error:
                    log.warning("nothing is traced: %s", error)
                    raise UntracedRequest("the server's tokens are not known") from error
            return self._known

    def _look_again(self, now: float) -> ServerTokens:
        """As `_look`. A busy llama-server drops a connection now and then: then it is looked at once more."""
        try:
            return self._look(now)
        except BrokeOff as error:
            log.info("%s; it is asked once more", error)
            return self._look(now)

    def _look(self, now: float) -> ServerTokens:
        """The server as it is known, or as it is read again if it may be another model's. Raises what
        `vocabulary.fetch` and `self_test` raise."""
        try:
            props = self._server.props()
        except UpstreamError as error:
            if self._known is None and engine_behind(self._server.link) != LLAMA_SERVER:
                raise UpstreamError(
                    f"{self._server.link.url} is no llama-server: it has OpenAI's routes alone, as vLLM has; requests "
                    "are passed on as they are",
                    hint=f"espalier serve --upstream {self._server.link.url} traces what such a server tells",
                ) from error
            raise
        if self._known is not None:
            is_due = self._is_doubted and now - self._read >= AGAIN_SECONDS
            if props == self._props and not is_due:
                self._looked = now
                return self._known
            log.warning("%s may have another model: its tokens are read again", self._server.link.url)
            self._known = None
        known = ServerTokens(vocabulary.fetch(self._server))
        if self._has_self_test:
            self_test(self._server, known)
            log.info(
                "replies of %s can be traced: %s, %d tokens", self._server.link.url, known.vocab.name, known.vocab.width
            )
        self._props, self._looked, self._read, self._is_doubted = props, now, now, False
        return known
