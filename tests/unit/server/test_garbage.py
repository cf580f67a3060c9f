"""Garbage is collected while the model rests, and in any case before much has come together."""

from __future__ import annotations

import asyncio
import gc

import pytest

pytest.importorskip("fastapi")

from espalier.server.process import opening
from espalier.server.process.pools import make_pools


@pytest.mark.parametrize(
    ("younger", "rests", "collects"),
    [
        (opening.DUE - 1, True, False), (opening.DUE, True, True),
        (opening.DUE - 1, False, False), (opening.DUE, False, True),
    ],
)  # fmt: skip
def test_all_objects_are_looked_at_when_enough_has_come_together(
    younger: int, rests: bool, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[int] = []
    looks = 0

    def rest() -> bool:
        return rests

    def count() -> tuple[int, int, int]:
        nonlocal looks
        looks += 1
        return 0, 0, younger

    monkeypatch.setattr(gc, "get_count", count)
    monkeypatch.setattr(gc, "collect", lambda *given: collected.append(looks) or 0)
    monkeypatch.setattr(opening, "RETURN_SECONDS", 0.0)

    async def run() -> None:
        pools = make_pools(waiting=1)
        async with opening._memory_returned(pools, rest):
            while looks < 3:
                await asyncio.sleep(0)
        pools.close()

    asyncio.run(run())
    assert bool(collected) == collects


@pytest.mark.parametrize(
    ("seconds", "share", "again"),
    [
        (opening.QUICK_SECONDS / 2, 0.0, True), (opening.QUICK_SECONDS * 2, 0.0, False),
        (opening.QUICK_SECONDS * 2, 1e12, True),
    ],
)  # fmt: skip
def test_while_the_model_works_garbage_is_collected_if_that_was_quick_before(
    seconds: float, share: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that never rests kept the memory of long work until ten million objects had come together; so it did
    where one collection had not been quick: now the next one only waits for longer."""
    collected: list[int] = []
    looks = 0

    def count() -> tuple[int, int, int]:
        nonlocal looks
        looks += 1
        return 0, 0, opening.OVERDUE - 1

    def collect() -> float:
        collected.append(looks)
        return seconds

    monkeypatch.setattr(gc, "get_count", count)
    monkeypatch.setattr(opening, "_collected", collect)
    monkeypatch.setattr(opening, "RETURN_SECONDS", 1e-9)
    monkeypatch.setattr(opening, "SHARE", share)

    async def run() -> None:
        pools = make_pools(waiting=1)
        async with opening._memory_returned(pools, lambda: False):
            while looks < 4:
                await asyncio.sleep(0)
        pools.close()

    asyncio.run(run())
    assert collected[0] == 1
    assert (len(collected) > 1) == again


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
    with opening._short_collections():
        assert gc.get_threshold() == opening.THRESHOLDS
    assert told == done
    assert gc.get_threshold() == thresholds
