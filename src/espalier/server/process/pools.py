"""The thread pools of a process, apart from one another: what one kind of work does keeps no other kind waiting.

It knows no work. A step of the model waits for none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields

from espalier.server.process.turns import Turns
from espalier.server.process.workers import Workers

PREPARING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """preparing: rendering, encoding, compiling. bodies: reading what was sent. results: parsing what was generated,
    and waiting for verdicts. saving: writing to the store. reading: stored traces. replies: encoding what is sent."""

    preparing: Workers
    bodies: Workers
    results: Workers
    saving: Workers
    reading: Workers
    replies: Workers

    def close(self) -> None:
        for one in fields(self):
            getattr(self, one.name).close()


def make_pools(*, waiting: int, busy: Callable[[], bool] = lambda: False) -> Pools:
    """waiting: how many tasks may wait in each pool. busy: whether the model is generating."""
    turns = Turns(busy)

    def pool(threads: int, name: str) -> Workers:
        return Workers(threads=threads, waiting=waiting, turns=turns, name=name)

    return Pools(
        preparing=pool(min(PREPARING, 2 * (os.cpu_count() or 1)), "preparing"), bodies=pool(2, "bodies"),
        results=pool(4, "results"), saving=pool(2, "saving"), reading=pool(2, "reading"), replies=pool(2, "replies"),
    )  # fmt: skip
