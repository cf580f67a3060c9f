"""The headers that a proxy passes on: all but those of one connection, and those by which a browser and a server agree
on origins, about which the proxy decides itself. It knows no body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]

HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1)."""
OF_ORIGINS = (b"access-control-", b"sec-fetch-")
"""How headers about origins begin, beside `Origin`: a llama-server would let pages of every origin read its replies."""


def passed_on(headers: Iterable[tuple[bytes, bytes]], *, without: Iterable[bytes] = ()) -> Headers:
    """The headers in order with names in lower case, but for those of the connection, those that its `Connection`
    header names, those about origins, and those in `without`."""
    given = [(name.lower(), value) for name, value in headers]
    named = {
        name_listed.strip().lower()
        for name, value in given
        if name == b"connection"
        for name_listed in value.split(b",")
    }
    left_out = HOP | named | {b"origin", *without}
    return [(name, value) for name, value in given if name not in left_out and not name.startswith(OF_ORIGINS)]


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first header of this lower-case name."""
    return next((value for header, value in headers if header.lower() == name), None)
