"""Which replicas have answered the beginning of a prompt, so that the next request with it meets what they have kept.

Ray Serve's router that compares prompts reads them from the arguments of a call. Its proxies hand an ASGI application
the head of a request and stream the body behind it, so no router sees a prompt here. The edge does (`edge.py`): it
reads the body's beginning and puts digests of it into the head (`marks`), and the router (`routing.py`) asks `Prefixes`
who has had them. It imports no Ray, and parses nothing: where it is wrong, a request goes to another replica.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Sequence

MARK = "prefix:"
"""How the header begins that the edge adds; a client's own session does not."""
PROMPT = re.compile(rb'"(?:messages|prompt|input|system|tools)"\s*:')
"""Where a body comes to its prompt: what is before it (a seed, a temperature) changes from request to request."""
FIRST, GROWTH, LAST = 256, 1.25, 131_072
"""Bytes of the shortest beginning that is worth a replica, how much longer each next one is, and of the longest."""
LENGTHS = tuple(int(FIRST * GROWTH**step) for step in range(100) if FIRST * GROWTH**step <= LAST)
MOST = 20_000
"""Beginnings that a proxy remembers, some 10 MB."""
HOLDERS = 8
"""Replicas that are remembered for a beginning."""
SLACK = 4
"""A replica that has so many requests more than the idlest one is not asked again for what it has kept."""


def marks(body: bytes | bytearray) -> str | None:
    """A digest of each beginning of the prompt, shortest first; None where it is too short. body: JSON, or its first
    part."""
    match = PROMPT.search(body)
    prompt = body[match.start() :] if match else b""
    digest, at, digests = hashlib.blake2b(digest_size=9), 0, []
    for length in LENGTHS:
        if length > len(prompt):
            break
        digest.update(prompt[at:length])
        at = length
        digests.append(base64.urlsafe_b64encode(digest.digest()).decode())
    return MARK + ",".join(digests) if digests else None


def read_marks(session: str) -> Sequence[str] | None:
    """What `marks` wrote; None for a session that a client has named."""
    return session.removeprefix(MARK).split(",")[: len(LENGTHS)] if session.startswith(MARK) else None


class Prefixes:
    """What one proxy knows, least recently used first. Not for several threads."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[str, None]] = {}

    def holders(self, digests: Sequence[str], among: Collection[str]) -> list[str]:
        """Those of these replicas that have answered the longest beginning that any of them has."""
        for digest in reversed(digests):
            holders = [name for name in self._holders.get(digest, ()) if name in among]
            if holders:
                return holders
        return []

    def keep(self, digests: Sequence[str], replica: str) -> None:
        """The replica answers a prompt with these beginnings."""
        for digest in digests:
            known = self._holders.pop(digest, {})
            known.pop(replica, None)
            known[replica] = None
            if len(known) > HOLDERS:
                del known[next(iter(known))]
            self._holders[digest] = known
        while len(self._holders) > MOST:
            del self._holders[next(iter(self._holders))]
