"""Heavy work takes turns in slices, owner by owner; who leaves, leaves its turn; light work does not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import espalier.server.process.turns as turns_module
import espalier.server.process.workers as workers_module
from espalier.errors import Cancelled
from espalier.server.process.pools import make_pools
from espalier.server.process.turns import STUCK_SECONDS, Turns
from espalier.server.process.workers import LARGE_SECONDS, LIGHT_SECONDS, Workers
from espalier.time_limit import check


def burn(seconds: float, owner: str, said: list[str]) -> None:
    """Compute in this thread for so many seconds of CPU time, and say now and then who it is."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        check()
        if not said or said[-1] != owner:
            said.append(owner)


def test_heavy_work_of_two_owners_alternates_and_light_work_does_not_wait() -> None:
    async def main() -> None:
        workers = Workers(threads=1, waiting=20)
        said: list[str] = []
        heavy = [asyncio.create_task(workers.run(lambda o=o: burn(0.4, o, said), owner=o)) for o in ("a", "b")]  # type: ignore[misc]
        began = time.monotonic()
        while len(said) < 2 and time.monotonic() - began < 20:
            await asyncio.sleep(0)
        assert await workers.run(lambda: "light", owner="c") == "light"
        assert not all(task.done() for task in heavy)
        await asyncio.gather(*heavy)
        assert len(said) > 6, said
        workers.close()

    asyncio.run(main())


def test_who_leaves_stops_computing() -> None:
    async def main() -> None:
        workers, ended = Workers(threads=1, waiting=5), threading.Event()

        def work() -> None:
            try:
                burn(1000, "a", [])
            except Cancelled:
                ended.set()
                raise

        task = asyncio.create_task(workers.run(work, owner="a"))
        await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.to_thread(ended.wait, 20)
        assert await workers.run(lambda: 1) == 1
        workers.close()

    asyncio.run(main())


def test_closing_stops_what_computes() -> None:
    async def main() -> None:
        workers = Workers(threads=1, waiting=5)
        task = asyncio.create_task(workers.run(lambda: burn(1000, "a", []), owner="a"))
        await asyncio.sleep(0)
        workers.close()
        with pytest.raises(Exception, match="closing"):
            await task

    asyncio.run(main())


def test_light_work_lets_the_model_make_a_step_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first moments of sixty requests that came at once, none of them heavy, stopped all streams for 0.3 s."""
    monkeypatch.setattr(workers_module, "LIGHT_SECONDS", 1e9)
    asked: list[int] = []

    def steps() -> int:
        asked.append(len(asked))
        return len(asked)

    async def main() -> None:
        workers = Workers(threads=1, waiting=5, turns=Turns(steps))
        await workers.run(lambda: None)
        assert not asked
        await workers.run(lambda: burn(20 * workers_module.GIVE_WAY_SECONDS, "a", []))
        workers.close()

    asyncio.run(main())
    assert len(asked) >= 2 * 2  # before and after each of the steps that it waited for


def count_rounds(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """Say `round` whenever work asks for one."""
    ask = workers_module._Task.ask_round

    def asked(task: workers_module._Task) -> None:
        said.append("round")
        ask(task)

    monkeypatch.setattr(workers_module._Task, "ask_round", asked)


@pytest.mark.parametrize("light", [1e9, 0.0], ids=["light", "heavy"])
def test_work_that_computes_lets_the_event_loop_make_rounds(monkeypatch: pytest.MonkeyPatch, light: float) -> None:
    """Among threads that computed without a pause the loop had a fifth of the time: who came while the model rested
    waited half a second for the first token."""
    said: list[str] = []
    count_rounds(monkeypatch, said)
    monkeypatch.setattr(workers_module, "LIGHT_SECONDS", light)

    async def main() -> None:
        workers = Workers(threads=1, waiting=5)
        await workers.run(lambda: None)
        assert not said
        await workers.run(lambda: burn(0.1, "a", []), owner="a")
        workers.close()

    asyncio.run(main())
    assert len(said) >= 4


def test_what_is_prepared_begins_once_the_loop_has_read_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    count_rounds(monkeypatch, said)

    async def main() -> None:
        pools = make_pools(waiting=5)
        await pools.preparing.run(lambda: said.append("begun"))
        await pools.known.run(lambda: said.append("known"))
        pools.close()

    asyncio.run(main())
    assert said == ["round", "begun", "known"]


def test_short_work_asks_for_no_look_at_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at which all garbage is collected, which stops every thread."""
    monkeypatch.setattr(workers_module, "LIGHT_SECONDS", 0.0)

    async def main() -> None:
        workers = Workers(threads=1, waiting=5)
        await workers.run(lambda: burn(LARGE_SECONDS / 2, "a", []))
        assert workers.ended_long == 0
        await workers.run(lambda: burn(4 * LARGE_SECONDS, "a", []))
        assert workers.ended_long == 1
        workers.close()

    asyncio.run(main())


class Piece:
    """A piece of heavy work that somebody else moves."""

    def __init__(self, owner: str) -> None:
        self.owner, self.turn, self.slice_began, self.is_abandoned = owner, threading.Event(), -1000.0, False
        self.round_began, self.has_round = -1000.0, threading.Event()

    def ask_round(self) -> None:
        self.has_round.set()


def test_the_owner_that_waited_longest_is_next_and_an_abandoned_turn_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "STUCK_SECONDS", 1e9)  # nobody loses a turn because this thread is slow
    turns = Turns()
    first, second, third = Piece("a"), Piece("a"), Piece("b")
    turns.pace(first)
    threads = [threading.Thread(target=turns.pace, args=(one,), daemon=True) for one in (second, third)]
    for thread in threads:
        thread.start()
    while len(turns._waiting) < 2:
        time.sleep(0)
    turns.leave(first)
    assert third.turn.wait(20), "b has had no turn yet"
    second.is_abandoned = True
    threads[0].join(20)
    assert not second.turn.is_set()
    turns.leave(third)
    turns.pace(first)
    assert LIGHT_SECONDS > 0


def test_who_waits_for_a_lock_of_another_loses_its_turn() -> None:
    """Otherwise the one who has the lock and waits for its turn would wait for ever."""
    turns = Turns()
    stuck, next_one = Piece("a"), Piece("b")
    turns.pace(stuck)
    thread = threading.Thread(target=turns.pace, args=(next_one,), daemon=True)
    thread.start()
    thread.join(20 + STUCK_SECONDS)
    assert next_one.turn.is_set()
    turns.leave(next_one)
    turns.pace(stuck)  # it comes back, and has its turn again
    assert stuck.turn.is_set()
