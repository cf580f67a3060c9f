"""`ProxyExchange`: one request of a client with its reply; and `Tracer`, which serves exchanges. It knows no mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.types import Scope

from espalier.server.http.browsers import TRACE_HEADER
from espalier.server.proxy.forward import IncomingRequest, Outgoing, Upstream, pass_through


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyExchange:
    """request_id: ours. caller: the name of the client's key. trace_ids: of its stored traces, or those promised to a
    stream, by the index of the output."""

    scope: Scope
    incoming: IncomingRequest
    outgoing: Outgoing
    upstream: Upstream
    request_id: str
    caller: str
    trace_ids: dict[int, str] = field(default_factory=dict)

    def trace_header(self) -> list[tuple[bytes, bytes]]:
        """The header that names the traces; empty without any."""
        ids = ", ".join(trace_id for _, trace_id in sorted(self.trace_ids.items()))
        return [(TRACE_HEADER.encode(), ids.encode())] if ids else []

    async def pass_through(self, begun: bytes | None = None) -> None:
        """Pass everything on untouched. begun: the part of the body that was read. Raises as `pass_through`."""
        await pass_through(self.upstream, self.scope, self.incoming, self.outgoing, begun=begun)


class Tracer(Protocol):
    """Serves the requests of clients."""

    async def serve(self, exchange: ProxyExchange) -> None:
        """Answer the client. Raises EspalierError before the reply has begun, Cancelled also later."""


class PassOnly:
    """Traces nothing."""

    async def serve(self, exchange: ProxyExchange) -> None:
        await exchange.pass_through()


@asynccontextmanager
async def pass_only(_process: Any) -> AsyncIterator[Tracer]:
    """The tracer that traces nothing."""
    yield PassOnly()
