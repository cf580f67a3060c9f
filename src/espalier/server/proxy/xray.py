"""X-ray mode: asks a stock llama-server for more than the client did, takes that out again, and traces the reply.

`traced.py` serves the request; here is what such a server is asked for, and how its replies are followed.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from espalier.server.proxy.again import AsksAgain
from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.learning import Learning
from espalier.server.proxy.state import ProxyProcess
from espalier.server.proxy.traced import Followers, OutputTrace, TracedExchange, has_encoding, opened
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.xray.follow import following, has_gaps
from espalier.upstream.xray.known import ServerTokens
from espalier.upstream.xray.record import trace_of
from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.wire.reply import Tolds, stripped
from espalier.upstream.xray.wire.request import ClientRequest, UntracedRequest, read_request, rewritten
from espalier.upstream.xray.wire.spans import text_of

log = logging.getLogger(__name__)
SMALL = 1024
"""Up to so many tokens, the probabilities of all are asked for."""
MODEST = 16_384
"""The same for samplers that look at all of them."""
LEAST = 100
MARGIN = 64
UNTRUNCATED = 1000


class XRay:
    """The Tracer of x-ray mode. learning: of the server's tokens, when a request needs them."""

    def __init__(self, process: ProxyProcess) -> None:
        self._process = process
        proxy = process.proxy
        self._server = LlamaServer(process.link())
        self.learning = Learning(self._server, has_self_test=proxy.self_test)
        self._followers = Followers()

    async def serve(self, exchange: ProxyExchange) -> None:
        scope = exchange.scope
        if scope["method"] != "POST" or has_encoding(exchange):
            await exchange.pass_through()
            return
        path = scope["path"].removesuffix("/") or "/"
        try:
            read_request(path, b"{}")
        except UntracedRequest as why:
            if str(why) == "no generation":
                await exchange.pass_through()
                return

        async def understand(body: bytes) -> tuple[ClientRequest, ServerTokens]:
            return read_request(path, body), await self.learning.known()

        parts = await self._followers.read(exchange, self._process, understand)
        if parts is not None:
            await _LlamaExchange(self._followers, self._process, exchange, self._server, self.learning, *parts).serve()

    async def close(self) -> None:
        """Wait for the traces of replies that have been sent."""
        await self._followers.close()

    async def look(self) -> None:
        """Learn what there is to know before the first request, so that the log says at once what cannot be traced. A
        server that is not there yet is asked again when a request needs it."""
        with contextlib.suppress(UntracedRequest):
            await self.learning.known()


def x_ray(process: ProxyProcess) -> AbstractAsyncContextManager[XRay]:
    """The tracer of x-ray mode."""
    return opened(XRay(process), process)


class _LlamaExchange(TracedExchange):
    """One traced request of a llama-server."""

    def __init__(
        self,
        followers: Followers,
        process: ProxyProcess,
        exchange: ProxyExchange,
        server: LlamaServer,
        learning: Learning,
        parsed: ClientRequest,
        known: ServerTokens,
    ) -> None:
        super().__init__(followers, process, exchange, outputs=parsed.outputs)
        self._server, self._learning = server, learning
        self._asked, self._known = parsed, known
        self._tolds: Tolds = {}
        self._count = count_of(parsed, known.vocab.width, process.proxy.n_probs)
        # The last digits of the server's numbers depend on how many are asked for, so that the client's wish stands.
        self._wanted = parsed.top if parsed.top and process.proxy.n_probs is None else self._count

    def content(self) -> bytes:
        return rewritten(self._asked, self._wanted, new_seed)[0]

    def strip(self, raw: bytes) -> tuple[bytes, bool]:
        return stripped(raw, self._asked, self._tolds)

    def told(self, *, is_cut: bool) -> Iterator[int]:
        for index, output in sorted(self._tolds.items()):
            output.is_cut = is_cut and output.finish is None
            yield index

    def has_gaps(self) -> bool:
        return any(has_gaps(output, self._known) for output in self._tolds.values())

    def doubt(self) -> None:
        self._learning.doubt()

    def trace(self, index: int) -> OutputTrace:
        output = self._tolds[index]
        again = AsksAgain(self._server, self._asked) if self._process.proxy.refill else None
        with following(output, self._known, again, count=self._count) as followed:
            trace = trace_of(followed, output, self._asked, self._known, index=index)
            if followed.is_lost:
                self.doubt()
        return OutputTrace(trace, text_of("".join(output.text)), output.reply_id)


def count_of(parsed: ClientRequest, width: int, wanted: int | None) -> int:
    """How many probabilities to ask for: as many as decide nearly every step, and no more."""
    if wanted is not None:
        return width if wanted == 0 else min(wanted, width)
    body = parsed.body
    if width <= (MODEST if _needs_all(body) else SMALL):
        return width
    top_k = body.get("top_k")
    top_k = top_k if isinstance(top_k, int | float) and not isinstance(top_k, bool) else 40
    if top_k <= 0 or body.get("logit_bias"):
        return min(width, UNTRUNCATED)
    has_penalties = any(body.get(name) for name in ("presence_penalty", "frequency_penalty", "dry_multiplier"))
    has_penalties = has_penalties or body.get("repeat_penalty") not in (None, 1)
    return min(width, max(LEAST, int(top_k) + (MARGIN if has_penalties else 0)))


def _needs_all(body: Mapping[str, Any]) -> bool:
    """Whether a draw depends on all tokens, so that each would be asked for again."""
    given = {name: body.get(name) for name in ("mirostat", "top_n_sigma", "dynatemp_range")}
    return any(isinstance(setting, int | float) and setting > 0 for setting in given.values())


def new_seed() -> int:
    """A random seed that is not llama-server's word for one."""
    return secrets.randbelow(RANDOM_SEED)
