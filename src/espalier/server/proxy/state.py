"""`ProxyProcess`: what the process of a proxy holds, in the shape in which routes and middleware ask for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from espalier.server.ports import Gate, TraceStore
from espalier.server.process.pools import Pools
from espalier.server.proxy.forward import Upstream
from espalier.server.proxy.keeping import TraceKeeper
from espalier.server.proxy.settings import ProxySettings
from espalier.server.settings import ServerSettings
from espalier.upstream.link import ServerLink


class NoMeter:
    """Counts nothing: `/metrics` is the server's behind the proxy."""

    def answered(self, *, route: str, status: int) -> None:
        """A response was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProcess:
    """gate, pools, store, meter: as in `Process`, for the routes of traces and for the middleware."""

    settings: ServerSettings
    proxy: ProxySettings
    gate: Gate
    pools: Pools
    store: TraceStore
    upstream: Upstream
    keeper: TraceKeeper
    meter: NoMeter = field(default_factory=NoMeter)

    def link(self) -> ServerLink:
        """A link to the server behind, for what the proxy itself asks."""
        return ServerLink(self.proxy.llama_url, key=self.proxy.upstream_key, silence=self.proxy.read_seconds)
