"""Garbage is collected where that is quick or while the model rests, and in any case before much has come together."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import weakref

import pytest

pytest.importorskip("fastapi")

from espalier.server.process import garbage
from espalier.server.process.garbage import DUE, LAST, OVERDUE, QUICK_SECONDS, SHARE, SHORT_SECONDS, Objects, is_due
from espalier.server.process.pools import make_pools

SOME, LONG = QUICK_SECONDS * 2, SHORT_SECONDS * 5


@pytest.mark.parametrize(
    ("takes", "since", "has_ended", "waited", "rested", "due"),
    [
        (0.0, DUE - 1, False, 9.0, 0, False),
        (0.0, DUE, False, 0.0, 0, True),
        (0.0, 0, True, 0.0, 0, True),
        # A model that never rests kept the memory of long work until ten million objects had come together.
        (SOME, DUE, True, SOME / SHARE * 0.9, 0, False),
        (SOME, DUE, True, SOME / SHARE * 1.1, 0, True),
        (SOME, DUE, True, 0.0, 1, True),
        (SOME, OVERDUE, False, 0.0, 0, True),
        # The pause between two streams was taken for rest, and all others waited for seconds.
        (LONG, OVERDUE, True, 1e9, 0, False),
        (LONG, OVERDUE, True, 1e9, 1, False),
        (LONG, 0, True, 0.0, 2, True),
        (LONG, 0, False, 1e9, 2, False),
        (LONG, LAST, False, 0.0, 0, True),
    ],
)
def test_when_all_objects_are_looked_at(
    takes: float, since: int, has_ended: bool, waited: float, rested: int, due: bool
) -> None:
    assert is_due(takes, since=since, has_ended=has_ended, waited=waited, rested=rested) == due


def test_much_garbage_is_collected_though_the_model_never_rests() -> None:
    """Three keys with new schemas took a server from 0.46 to 5 GB: a collection that was long was put off for ever."""
    seen = {"since": 1, "has_ended": False, "waited": 0.0, "rested": 0}
    assert not is_due(LONG, **seen)
    assert is_due(LONG, **seen, is_full=True)


def test_how_long_a_collection_takes_follows_from_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects()
    before = sys.getallocatedblocks()
    held = [[number, (number,)] for number in range(10_000, 60_000)]
    made = sys.getallocatedblocks() - before
    assert made > len(held)
    assert objects.seconds() == pytest.approx(made * garbage.BLOCK_SECONDS, rel=0.1)
    clock = iter((0.0, 2 * made * garbage.BLOCK_SECONDS))
    monkeypatch.setattr(garbage, "MANY", 1)
    monkeypatch.setattr(garbage.time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(gc, "collect", lambda: None)
    objects.collect()  # which takes twice as long
    assert objects.seconds() == pytest.approx(2 * made * garbage.BLOCK_SECONDS, rel=0.1)
    clock = iter((0.0, 1000.0))
    objects.collect()  # which says nothing about the next one
    assert objects.seconds() == pytest.approx(garbage.SLOWEST * made * garbage.BLOCK_SECONDS, rel=0.1)
    del held
    monkeypatch.setattr(garbage.time, "thread_time", lambda: 0.0)
    objects.collect()  # which takes none: what is known of quiet machines counts
    assert objects.seconds() < made * garbage.BLOCK_SECONDS / 2


def test_many_new_objects_are_looked_at_before_there_are_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage of compilations waited for one collection of 0.9 s, where four of 0.2 s would have done."""
    blocks = [0]
    monkeypatch.setattr(garbage.sys, "getallocatedblocks", lambda: blocks[0])
    monkeypatch.setattr(gc, "collect", lambda: None)
    objects = Objects()
    blocks[0] = garbage.GROWN_BLOCKS - 1
    assert not objects.have_grown
    blocks[0] += 1
    assert objects.have_grown
    objects.collect()  # all of them stay
    assert not objects.have_grown
    blocks[0] = 2 * garbage.GROWN_BLOCKS - 1
    assert not objects.have_grown
    blocks[0] += 1
    assert objects.have_grown
    objects.collect()
    blocks[0] += garbage.GROWN_BLOCKS  # a collection of much that stays is made when as much is new
    assert not objects.have_grown


def test_they_are_looked_at_while_a_server_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = asyncio.Event()
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(garbage, "GROWN_BLOCKS", 1)
    monkeypatch.setattr(garbage, "is_due", lambda *_, **__: False)
    held: list[list[int]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(gc, "collect", lambda: loop.call_soon_threadsafe(collected.set))
        pools = make_pools(waiting=1)
        async with garbage.memory_returned(pools, itertools.count().__next__):
            held.extend([number] for number in range(1000))
            await collected.wait()
        pools.close()

    asyncio.run(run())


def test_memory_is_given_back_after_many_short_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """What six texts of two megabytes had taken stayed for good: none of them took long."""
    resident = iter([0, 10**6, 10**6, *[2 * garbage.TRIMMED_BYTES] * 1000])
    given_back = asyncio.Event()
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(garbage, "GROWN_BYTES", 10**12)
    monkeypatch.setattr(garbage, "is_due", lambda *_, **__: False)
    monkeypatch.setattr(garbage, "resident_bytes", lambda: next(resident))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(garbage, "_return_memory", lambda: loop.call_soon_threadsafe(given_back.set))
        pools = make_pools(waiting=1)
        async with garbage.memory_returned(pools, itertools.count().__next__):
            await given_back.wait()
        pools.close()

    asyncio.run(run())


def test_what_the_first_collection_leaves_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    over = asyncio.Event()
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(garbage, "is_due", lambda *_, **__: True)
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def collect() -> None:
            told.append("collect")
            if told.count("collect") == 3:
                loop.call_soon_threadsafe(over.set)

        monkeypatch.setattr(gc, "collect", collect)
        pools = make_pools(waiting=1)
        async with garbage.memory_returned(pools, itertools.count().__next__, freezes=True):
            await over.wait()
        pools.close()

    asyncio.run(run())
    assert told[:4] == ["collect", "freeze", "collect", "collect"]


def test_a_collection_that_found_much_garbage_does_not_put_off_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage takes longer than what stays: after much of it the next collection seemed to take three times as long,
    was put off, and then took 3.4 s."""
    blocks = iter((0, 2_000_000, 100_000, 2_000_000))
    took = (100_000 + garbage.GARBAGE_TIMES * 1_900_000) * garbage.BLOCK_SECONDS
    clock = iter((0.0, took))
    monkeypatch.setattr(garbage.sys, "getallocatedblocks", lambda: next(blocks))
    monkeypatch.setattr(garbage.time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(gc, "collect", lambda: None)
    objects = Objects()
    objects.collect()
    assert objects.seconds() == pytest.approx(2_000_000 * garbage.BLOCK_SECONDS)


def test_garbage_goes_while_a_server_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        pass

    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    left = weakref.ref(node)
    del node
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, DUE))

    async def run() -> None:
        pools = make_pools(waiting=1)
        async with garbage.memory_returned(pools, itertools.count().__next__):
            while left() is not None:
                await asyncio.sleep(0)
        pools.close()

    asyncio.run(run())


def test_a_moment_between_two_streams_is_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks that fell between streams took the model to rest, and a collection of 1.1 s stopped the next ones."""
    rested: list[int] = []
    steps = iter((0, 5, 9, 9, 9, 10, 10, 12))
    over = asyncio.Event()

    def note(takes: float, **seen: int) -> bool:
        rested.append(seen["rested"])
        return False

    def made() -> int:
        found = next(steps, None)
        if found is None:
            over.set()
        return found or 0

    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(garbage, "is_due", note)

    async def run() -> None:
        pools = make_pools(waiting=1)
        async with garbage.memory_returned(pools, made):
            await over.wait()
        pools.close()

    asyncio.run(run())
    assert rested[:8] == [0, 0, 0, 1, 2, 0, 1, 0]


@pytest.mark.parametrize(("frozen", "done"), [(0, ["freeze", "unfreeze"]), (7, [])])
def test_what_a_process_has_frozen_itself_stays_frozen(
    frozen: int, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a server inside another program thawed what that program had frozen."""
    told: list[str] = []
    thresholds = gc.get_threshold()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: told.append("unfreeze"))
    with garbage.short_collections() as may_freeze:
        assert may_freeze == (not frozen)
        assert gc.get_threshold() == garbage.THRESHOLDS
    assert told == done
    assert gc.get_threshold() == thresholds
