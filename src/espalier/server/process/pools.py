"""The thread pools of a process, apart from one another: what one kind of work does keeps no other kind waiting.

It knows no work. A step of the model waits for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from espalier.server.process.turns import Turns
from espalier.server.process.workers import Charge, Workers, nobody

PREPARING = 4
KNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """preparing: rendering, encoding, compiling. known: the same, where nothing has to be compiled any more. tokens:
    the routes that tokenize and render alone. bodies: reading what was sent. results: parsing what was generated, and
    waiting for verdicts. saving: writing to the store. reading: stored traces. replies: encoding what is sent."""

    preparing: Workers
    known: Workers
    tokens: Workers
    bodies: Workers
    results: Workers
    saving: Workers
    reading: Workers
    replies: Workers

    @property
    def ended_long(self) -> int:
        """How many long works have ended, in all pools."""
        return sum(getattr(self, field.name).ended_long for field in fields(self))

    def close(self) -> None:
        for field in fields(self):
            getattr(self, field.name).close()


def make_pools(*, waiting: int, steps: Callable[[], int | None] = lambda: None, charge: Charge = nobody) -> Pools:
    """waiting: how many tasks may wait in each pool. steps: how many steps the model has made, None while it rests.
    charge: see `Workers`."""
    turns = Turns(steps)

    def pool(threads: int, name: str, *, patient: bool = False) -> Workers:
        return Workers(threads=threads, waiting=waiting, turns=turns, name=name, charge=charge, patient=patient)

    return Pools(
        preparing=pool(PREPARING, "preparing", patient=True),
        known=pool(KNOWN, "preparing what is known"),
        tokens=pool(2, "tokens"),
        bodies=pool(2, "bodies"),
        results=pool(4, "results"),
        saving=pool(2, "saving"),
        reading=pool(2, "reading"),
        replies=pool(2, "replies"),
    )
