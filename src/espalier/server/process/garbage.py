"""Collects the garbage of a server where that disturbs least, and gives memory back to the system.

A collection of all objects stops every thread, for a time that can be told from how many there are. It knows no work
and no model.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from espalier.constraints.cache import ConstraintCache
from espalier.memory import resident_bytes
from espalier.server.process.pools import Pools

LOOK_SECONDS = 3.0
THRESHOLDS = (1_000, 1, 1_000_000)
"""Collections of all objects are not made by themselves. Young objects are looked at in small numbers, which costs no
more in all and stops a step for 4 ms at most, where 60,000 at once took 45."""
DUE, OVERDUE, LAST = 500, 5_000, 20_000
"""Younger collections since the last one of all objects, after which another is made: where it is quick, where it is
short, and in any case."""
QUICK_SECONDS = 0.05
"""A collection that may be made beside steps of the model."""
SHARE = 0.03
"""Of the time, that collections may take while the model works, where they are not quick: one of 0.1 s every 3 s."""
SHORT_SECONDS = 0.15
"""A longer one is made where the model has rested for two looks, or when it must be."""
BLOCK_SECONDS = 6e-8
"""What a collection takes for each block of memory that objects hold: 52 to 82 ns were measured on a quiet machine."""
GARBAGE_TIMES = 2.2
"""How much longer it takes for a block of garbage, which it also frees."""
SLOWEST = 3.0
"""How many times as long it may take on a busy machine: what took even longer says little about the next one."""
GROWN_BYTES = 256_000_000
"""More memory than after the last collection, after which another one is made even where it is long: a longer pause is
better than one that grows with all garbage that waits for it."""
GROWN_BLOCKS = 500_000
"""New blocks since the last collection after which another one is made at once, if there are as many new ones as old:
most are garbage of compilations, and to wait with them made pauses of 0.9 s of some of 0.2 s."""
LOOKS_AT_BLOCKS = 6
"""For each other look: in half a second compilations make a million blocks at most."""
TRIMMED_BYTES = 64_000_000
"""More memory than after it was last given back, after which it is again, though no work was long."""
MANY = 1_000_000
"""Blocks of which a collection says how long the next one takes; of fewer, what is the same for all counts too much."""


class Objects:
    """The objects that were made since the start, where those of before are frozen."""

    def __init__(self) -> None:
        self._before = sys.getallocatedblocks()
        self._rate = BLOCK_SECONDS
        self._left = 0

    @property
    def have_grown(self) -> bool:
        """Whether so many are new that they are looked at now."""
        return self._blocks() - self._left >= max(GROWN_BLOCKS, self._left)

    def seconds(self) -> float:
        """CPU seconds that a collection of all of them will take, about; telling it takes a microsecond."""
        return self._blocks() * self._rate

    def collect(self) -> None:
        """Collect all garbage, and learn from it how long that takes. What was garbage does not count as what stays: by
        a rate that was learned from much of it, the next collection is put off until it takes seconds."""
        blocks, began = self._blocks(), time.thread_time()
        gc.collect()
        self._left = left = min(blocks, self._blocks())
        work = left + GARBAGE_TIMES * (blocks - left)
        if work >= MANY:
            rate = (time.thread_time() - began) / work
            self._rate = min(max(BLOCK_SECONDS, rate), SLOWEST * BLOCK_SECONDS)

    def freeze(self) -> None:
        """Leave out all that is there: it stays, so it is not looked at again."""
        gc.freeze()
        self._before, self._left = sys.getallocatedblocks(), 0

    def _blocks(self) -> int:
        return max(0, sys.getallocatedblocks() - self._before)


def is_due(takes: float, *, since: int, has_ended: bool, waited: float, rested: int, is_full: bool = False) -> bool:
    """Whether all garbage is collected now. takes: seconds that it will take. since: younger collections since the
    last one. has_ended: whether long work has ended since. waited: seconds since. rested: for how many looks in turn
    the model has rested. is_full: garbage takes so much memory that it cannot wait."""
    if since >= LAST or is_full:
        return True
    if takes > SHORT_SECONDS:
        return rested >= 2 and (since >= DUE or has_ended)
    may = takes < QUICK_SECONDS or waited * SHARE >= takes or rested > 0
    return since >= OVERDUE or (may and (since >= DUE or has_ended))


@asynccontextmanager
async def memory_returned(
    pools: Pools, steps: Callable[[], int], *, constraints: ConstraintCache | None = None, freezes: bool = False
) -> AsyncIterator[None]:
    """While open, give memory back to the system after long work, which may have taken much of it, and collect garbage
    where it disturbs least. steps: how many steps the model has made; while it makes none from one look to the next, it
    rests. That nothing runs at the moment of a look is not enough: there are such moments between two streams.
    constraints: those that are compiled here; a quarter of their ceiling of garbage cannot wait. freezes: whether what
    the first collection leaves is not looked at again: tables and modules that came with the first requests."""

    async def keep() -> None:
        collected, trimmed, waited, rested, objects = 0, 0, 0.0, 0, Objects()
        left = returned = resident_bytes() or 0
        to_freeze = freezes
        made = -1

        async def collect() -> None:
            nonlocal to_freeze
            await asyncio.to_thread(objects.collect)
            if to_freeze:
                objects.freeze()
                to_freeze = False
            if constraints is not None:
                constraints.collected()

        while True:
            for _ in range(LOOKS_AT_BLOCKS):
                await asyncio.sleep(LOOK_SECONDS / LOOKS_AT_BLOCKS)
                if objects.have_grown:
                    await collect()
            waited += LOOK_SECONDS
            before, made = made, steps()
            rested = rested + 1 if made == before else 0
            ended = pools.ended_long
            takes, has_ended = objects.seconds(), ended != collected
            is_full = (resident_bytes() or 0) - left > GROWN_BYTES
            if constraints is not None:
                await asyncio.to_thread(constraints.measure)
                is_full = is_full or constraints.has_much_garbage
            due = is_due(
                takes, since=gc.get_count()[2], has_ended=has_ended, waited=waited, rested=rested, is_full=is_full
            )
            if due:
                await collect()
                collected, waited = ended, 0.0
            if due or ended != trimmed or (resident_bytes() or 0) - returned > TRIMMED_BYTES:
                trimmed = ended
                await asyncio.to_thread(_return_memory)
                returned = resident_bytes() or 0
            if due:
                left = resident_bytes() or 0

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _return_memory() -> None:
    """What the allocator holds and nobody uses."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None  # of glibc
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def short_collections() -> Iterator[bool]:
    """What was loaded stays, so it is not looked at again, and collections of all objects are left to
    `memory_returned`. What the process has frozen itself stays frozen; nothing joins it. Yields whether more may be
    frozen."""
    before, is_ours = gc.get_threshold(), not gc.get_freeze_count()
    gc.collect()
    if is_ours:
        gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield is_ours
    finally:
        gc.set_threshold(*before)
        if is_ours:
            gc.unfreeze()
