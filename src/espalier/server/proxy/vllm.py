"""X-ray mode in front of a vLLM: asks it for log probabilities and ids of tokens, takes them out of the reply again,
and makes a trace of what the model wanted and what was taken.

`traced.py` serves the request. Where vLLM's own mask hides what the model wanted, the finished text is scored by one
further request (`--no-refill` leaves that out).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from espalier.errors import EspalierError
from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.state import ProxyProcess
from espalier.server.proxy.traced import Followers, OutputTrace, TracedExchange, has_encoding
from espalier.server.proxy.vllm_constraints import VllmConstraints
from espalier.upstream.vllm.record import needs_scores, trace_of
from espalier.upstream.vllm.reply import ListedOutput, ListedStep, stripped
from espalier.upstream.vllm.request import PATHS, VllmRequest, read_request, rewritten
from espalier.upstream.vllm.server import VllmFacts, VllmServer
from espalier.upstream.xray.wire.request import UntracedRequest

log = logging.getLogger(__name__)
RETRY_SECONDS = 10.0
LOOK_SECONDS = 60.0
"""How long the server is taken for the same without a look at it."""
MOST_SCORED = 32_768
"""Tokens of a prompt and its output that are scored: the server answers with all of them."""


class VllmXRay:
    """The Tracer in front of a vLLM."""

    def __init__(self, process: ProxyProcess, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._process, self._clock = process, clock
        proxy = process.proxy
        self._server = VllmServer(process.link())
        self._constraints = VllmConstraints(proxy.tokenizer)
        self._followers = Followers()
        self._facts: VllmFacts | None = None
        self._learning = asyncio.Lock()
        self._tried = -float("inf")

    async def serve(self, exchange: ProxyExchange) -> None:
        path = exchange.scope["path"].removesuffix("/") or "/"
        if exchange.scope["method"] != "POST" or path not in PATHS or has_encoding(exchange):
            await exchange.pass_through()
            return

        async def understand(body: bytes) -> tuple[VllmRequest, VllmFacts]:
            request = read_request(path, body)
            facts = await self.known()
            if facts is None:
                raise UntracedRequest("what this server lists of its tokens is not known", request)
            return request, facts

        parts = await self._followers.read(exchange, self._process, understand)
        if parts is None:
            return
        request, facts = parts
        vocab = await asyncio.to_thread(self._constraints.vocab, facts.root)
        traced = _VllmExchange(
            self._followers,
            self._process,
            exchange,
            self._server,
            self._constraints,
            request,
            facts,
            names_ids=vocab is not None,
            doubts=self._doubt,
        )
        await traced.serve()

    async def known(self) -> VllmFacts | None:
        """What the server's lists mean, None where it cannot be learned now. A server that was started again may be
        another one: it is looked at now and then."""
        async with self._learning:
            now = self._clock()
            since = now - self._tried
            if since >= (RETRY_SECONDS if self._facts is None else LOOK_SECONDS):
                self._tried = now
                try:
                    self._facts = await asyncio.to_thread(self._server.learn)
                except EspalierError as error:
                    log.warning("nothing is traced: %s", error)
                    self._facts = None
                else:
                    log.info("replies of %s can be traced: vLLM %s", self._server.link.url, self._facts.version)
            return self._facts

    def _doubt(self) -> None:
        self._tried = -float("inf")

    async def close(self) -> None:
        """Wait for the traces of replies that have been sent."""
        await self._followers.close()


class _VllmExchange(TracedExchange):
    """One traced request of a vLLM."""

    def __init__(
        self,
        followers: Followers,
        process: ProxyProcess,
        exchange: ProxyExchange,
        server: VllmServer,
        constraints: VllmConstraints,
        request: VllmRequest,
        facts: VllmFacts,
        *,
        names_ids: bool,
        doubts: Callable[[], None],
    ) -> None:
        super().__init__(followers, process, exchange, outputs=request.outputs)
        self._server, self._constraints, self._asked, self._facts = server, constraints, request, facts
        self._names_ids, self._doubts = names_ids, doubts
        self._outputs_so_far: dict[int, ListedOutput] = {}
        wanted = process.proxy.n_probs
        self._count = min(facts.most, wanted) if wanted else facts.most

    def content(self) -> bytes:
        return rewritten(self._asked, self._count, as_ids=self._names_ids)

    def strip(self, raw: bytes) -> tuple[bytes, int]:
        return stripped(raw, self._asked, self._outputs_so_far)

    def told(self, *, is_cut: bool) -> Iterator[int]:
        for index, output in sorted(self._outputs_so_far.items()):
            output.is_cut = is_cut and output.finish is None
            if not output.prompt_ids and index and index < self._asked.copies:
                output.prompt_ids = self._outputs_so_far[0].prompt_ids if 0 in self._outputs_so_far else []
            yield index

    def doubt(self) -> None:
        self._doubts()

    def trace(self, index: int) -> OutputTrace:
        output = self._outputs_so_far[index]
        followed = self._constraints.followed(self._asked, self._facts.root)
        trace = trace_of(output, self._asked, self._facts, followed, scores=self._scores(output), index=index)
        return OutputTrace(trace, "".join(output.text), output.reply_id)

    def _scores(self, output: ListedOutput) -> Sequence[ListedStep] | None:
        """What the model wanted, where the reply does not tell it and the server may be asked."""
        if not self._process.proxy.refill or not output.ids or not needs_scores(output, self._asked, self._facts):
            return None
        if len(output.prompt_ids) + len(output.ids) > MOST_SCORED:
            return None
        model = str(self._asked.body.get("model") or self._facts.model)
        try:
            return self._server.scores(model, output.prompt_ids, output.ids, count=self._count)
        except EspalierError as error:
            log.info("what the model wanted could not be asked for: %s", error, extra=self._fields)
            return None
