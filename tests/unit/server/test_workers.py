"""The worker threads: how many tasks may wait, turns of owners, and results that nobody awaits."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from espalier.errors import Overloaded, Unavailable
from espalier.server.process.workers import Workers
from espalier.time_limit import check as look
from espalier.time_limit import time_limit
from tests.server_app import client


def nothing(_: object) -> None:
    raise AssertionError("nobody left")


def test_work_comes_back_and_so_do_its_errors() -> None:
    async def check() -> None:
        workers = Workers(threads=1, waiting=0)
        assert await workers.run(lambda: 5, abandoned=nothing) == 5

        def fails() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await workers.run(fails, abandoned=nothing)
        workers.close()

    asyncio.run(check())


def test_more_than_may_wait_is_refused_and_later_taken() -> None:
    async def check() -> None:
        workers, go = Workers(threads=1, waiting=1), threading.Event()
        tasks = [asyncio.create_task(workers.run(go.wait, abandoned=nothing)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await workers.run(go.wait, abandoned=nothing)
        go.set()
        assert await asyncio.gather(*tasks) == [True, True]
        assert await workers.run(lambda: 1, abandoned=nothing) == 1
        workers.close()

    asyncio.run(check())


def test_what_nobody_waits_for_any_more_is_handed_over_or_never_begun() -> None:
    async def check() -> None:
        workers, go, begun = Workers(threads=1, waiting=5), threading.Event(), threading.Event()
        left: list[str] = []
        over = threading.Event()

        def hand_over(found: str) -> None:
            left.append(found)
            over.set()

        def named(name: str) -> Callable[[], str]:
            def work() -> str:
                begun.set()
                go.wait()
                return name

            return work

        running = asyncio.create_task(workers.run(named("running"), abandoned=hand_over))
        waiting = asyncio.create_task(workers.run(named("waiting"), abandoned=hand_over))
        await asyncio.to_thread(begun.wait)
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        go.set()
        await asyncio.to_thread(over.wait)
        assert await workers.run(lambda: 1, abandoned=nothing) == 1
        assert left == ["running"]
        workers.close()

    asyncio.run(check())


def test_one_owner_leaves_a_thread_to_others() -> None:
    async def check() -> None:
        workers, go = Workers(threads=3, waiting=20), threading.Event()
        flood = [asyncio.create_task(workers.run(go.wait, abandoned=nothing, owner="flood")) for _ in range(9)]
        await asyncio.sleep(0)
        assert await workers.run(lambda: 1, abandoned=nothing, owner="innocent") == 1
        assert not any(task.done() for task in flood)
        go.set()
        assert await asyncio.gather(*flood) == [True] * 9
        workers.close()

    asyncio.run(check())


def test_owners_take_turns_at_a_thread() -> None:
    async def check() -> None:
        workers, go = Workers(threads=1, waiting=20), threading.Event()
        begun: list[str] = []

        def named(name: str) -> Callable[[], bool]:
            def work() -> bool:
                begun.append(name)
                return go.wait()

            return work

        owners = ["a", "a", "a", "b", "b"]
        tasks = [asyncio.create_task(workers.run(named(one), abandoned=nothing, owner=one)) for one in owners]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*tasks)
        assert begun == ["a", "b", "a", "b", "a"]
        workers.close()

    asyncio.run(check())


def test_a_flood_does_not_fill_the_queue_for_others() -> None:
    async def check() -> None:
        workers, go = Workers(threads=1, waiting=4), threading.Event()
        flood = [asyncio.create_task(workers.run(go.wait, abandoned=nothing, owner="flood")) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await workers.run(go.wait, abandoned=nothing, owner="flood")
        other = asyncio.create_task(workers.run(go.wait, abandoned=nothing, owner="other"))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(other, *flood) == [True] * 6
        workers.close()

    asyncio.run(check())


def test_who_waits_when_it_closes_is_told() -> None:
    async def check() -> None:
        workers, go = Workers(threads=1, waiting=4), threading.Event()
        running, waiting = (asyncio.create_task(workers.run(go.wait, abandoned=nothing)) for _ in range(2))
        await asyncio.sleep(0)
        workers.close()
        go.set()
        assert await running is True
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await workers.run(go.wait, abandoned=nothing)

    asyncio.run(check())


def test_what_is_compiled_for_a_client_that_left_stops() -> None:
    async def check() -> None:
        workers, begun, is_off = Workers(threads=1, waiting=4), threading.Event(), threading.Event()

        def compiles() -> None:
            with time_limit(1e9, cancelled=is_off.is_set):
                begun.set()
                while True:
                    look()

        async def asked() -> None:
            try:
                await workers.run(compiles, abandoned=nothing)
            finally:
                is_off.set()

        task = asyncio.create_task(asked())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await workers.run(lambda: 1, abandoned=nothing) == 1, "its thread is free again"
        workers.close()

    asyncio.run(check())


@pytest.mark.slow
def test_works_that_do_not_look_give_their_places_to_those_that_wait() -> None:
    async def main() -> None:
        workers, door = Workers(threads=2, waiting=20), threading.Event()
        stuck = [asyncio.create_task(workers.run(lambda: door.wait(60), owner="a")) for _ in range(5)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(workers.run(lambda: "light", owner="a"), 30) == "light"
        assert not any(task.done() for task in stuck)
        door.set()
        assert await asyncio.gather(*stuck) == [True] * 5
        assert workers._long == 0
        assert workers._running.total() == 0
        workers.close()

    asyncio.run(main())


def test_work_that_waits_and_looks_gives_its_place_to_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts of thirty texts kept all places while they waited for a process, and others' waited behind them."""
    monkeypatch.setattr("espalier.server.process.workers.WAITING_SECONDS", 0.0)
    monkeypatch.setattr("espalier.server.process.workers.SHORT_SECONDS", 1e9)
    go = threading.Event()

    def wait() -> None:
        while not go.wait(0.001):
            look()

    async def check() -> None:
        workers = Workers(threads=1, waiting=5)
        waiting = asyncio.create_task(workers.run(wait))
        await asyncio.sleep(0)
        assert await workers.run(lambda: "done") == "done"
        go.set()
        await waiting
        workers.close()

    asyncio.run(check())


def test_heavy_work_takes_its_turn_before_it_begins() -> None:
    """Bodies of 2 MB were parsed two at a time, beside the model's steps: each in one step that never looks."""
    at_once: list[int] = []
    running = 0

    def parse() -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        running -= 1

    async def check() -> None:
        workers = Workers(threads=4, waiting=9)
        await asyncio.gather(*(workers.run(parse, owner=str(i), heavy=True) for i in range(6)))
        workers.close()

    asyncio.run(check())
    assert at_once == [1] * 6


def test_what_failed_work_held_is_free_when_it_ends() -> None:
    """Automata half built kept hundreds of megabytes until all garbage was collected."""

    class Held:
        pass

    kept: list[weakref.ref[Held]] = []

    def fails() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        raise ValueError("broken")

    async def check() -> None:
        workers = Workers(threads=1, waiting=0)
        with pytest.raises(ValueError, match="broken") as caught:
            await workers.run(fails)
        assert caught.value is not None
        assert kept[0]() is None  # although the error is still there
        workers.close()

    asyncio.run(check())


def test_a_thread_that_waits_for_work_holds_nothing_of_what_it_has_done() -> None:
    """A kept thread held its first task, with a whole run and its trace, for weeks."""

    class Held:
        pass

    async def check() -> None:
        workers = Workers(threads=1, waiting=0)
        kept: list[weakref.ref[Held]] = []

        def work_on(held: Held) -> Callable[[], Held]:
            def work() -> Held:
                found = Held()
                kept.extend((weakref.ref(held), weakref.ref(found)))
                return found

            return work

        for _ in range(3):
            await workers.run(work_on(Held()))
        while any(one() for one in kept):  # the thread may still be telling the last
            await asyncio.sleep(0)
            gc.collect()
        assert len(kept) == 6
        workers.close()

    asyncio.run(asyncio.wait_for(check(), 60))


def test_who_finds_no_thread_is_told_and_who_waits_for_one_gets_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not start another died with the task that it had just been handed, which never ended."""
    started, left = threading.Thread.start, [0]

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("espalier-few"):
            if not left[0]:
                raise RuntimeError("can't start new thread")
            left[0] -= 1
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)

    async def check() -> None:
        workers, go = Workers(threads=3, waiting=9, name="few"), threading.Event()
        with pytest.raises(Overloaded, match="no thread"):
            await workers.run(lambda: 1)
        left[0] = 1
        tasks = [asyncio.create_task(workers.run(go.wait, owner=owner)) for owner in "abcabc"]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*tasks) == [True] * 6
        workers.close()

    asyncio.run(check())


def test_what_needs_no_compiling_does_not_wait_behind_what_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose schema was compiled long ago waited 0.4 s behind sixty expressions that were being compiled."""
    with client("aaa") as http:

        def status(**more: object) -> int:
            reply = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3, **more})
            return int(reply.status_code)

        known, new = ({"structured_outputs": {"regex": pattern}} for pattern in ("a{1,9}", "a{1,8}"))
        assert status(**known) == 200

        async def is_full(*args: object, **options: object) -> None:
            raise Overloaded("full")

        monkeypatch.setattr(http.app.state.process.pools.preparing, "run", is_full)  # type: ignore[attr-defined]
        assert [status(), status(**known), status(**new)] == [200, 200, 503]
