"""Which host names a server answers to, and whether a page of another origin sent a request.

A browser states both, and a page cannot change either: `Host` is the name that was looked up, `Origin` and
`Sec-Fetch-Site` say whose page asks. Other programs send no `Origin`. It knows no route and no key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from espalier.server.admit.auth import is_loopback

READING = frozenset({"GET", "HEAD"})
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def refuses_connection(server: str | None) -> bool:
    """For a server without keys: whether the connection came to an address that other machines reach. server: its
    local address; None, or a name, where it is no TCP connection."""
    return server is not None and _is_address(server) and not is_loopback(server)


def is_known_host(header: str | None, names: Sequence[str], *, server: str | None = None) -> bool:
    """Whether a `Host` header names this machine or one of `names`, where `*` is any and `*.example.org` is each name
    below that one. A page that has its own name point to this machine (DNS rebinding) comes with its name. Without a
    TCP connection (server: as above), as over a UNIX socket, names without a dot are known as well: no browser comes
    that way. So is a request without the header, which no browser sends."""
    name = re.sub(r":\d*$", "", (header or "").strip()).strip("[]").lower()
    if not name or is_loopback(name) or any(_matches(name, pattern.lower()) for pattern in names):
        return True
    return "." not in name and ":" not in name and not (server is not None and _is_address(server))


def is_foreign_page(method: str, headers: Headers, origins: Sequence[str]) -> bool:
    """Whether a page of another origin than the server's own sent this request, and is not among `origins`. Following a
    link to a page of the server is no such request. method: of a WebSocket, any but GET and HEAD."""
    origin = headers.get("origin")
    if "*" in origins or (origin is not None and origin in origins):
        return False
    site = headers.get("sec-fetch-site")
    if site == "same-origin":
        return False
    if site in ("cross-site", "same-site"):
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return not (is_link and method in READING)
    return origin is not None and not _is_same(origin, headers.get("host", ""))


def _matches(name: str, pattern: str) -> bool:
    return pattern in ("*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))


def _is_same(origin: str, host: str) -> bool:
    """Whether an origin is that of the host, whatever the scheme: a proxy in front may speak TLS."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    port = DEFAULT_PORTS.get(parts.scheme, "")
    return bool(parts.netloc) and parts.netloc.removesuffix(port) == host.strip().lower().removesuffix(port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
