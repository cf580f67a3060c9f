"""Which replica is a session's, by rendezvous hashing: a replica that leaves or joins moves its own sessions alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def ranked(session: str, replicas: Iterable[str]) -> list[str]:
    """The names, the session's own first, then where it goes if that one is full or gone."""

    def weight(name: str) -> bytes:
        return hashlib.blake2b(f"{session}\n{name}".encode(), digest_size=8).digest()

    return sorted(replicas, key=weight, reverse=True)
