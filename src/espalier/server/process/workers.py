"""A small thread pool for blocking work, with a bounded queue in which owners take turns. It does not know the work.

Work that turns out to be long gives its thread's place to the next one, so that short work never waits behind it, and
goes on in turns with other long work (`turns.py`). It notices at `time_limit.check`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from espalier.engines.scheduling.fair_queue import FairQueue
from espalier.errors import Cancelled, Overloaded, Unavailable
from espalier.server.process.turns import Turns, wait_for_round
from espalier.time_limit import check, time_limit

T = TypeVar("T")
Charge: TypeAlias = Callable[[str, float], None]
"""Told how many CPU seconds were spent for an owner; any thread calls it."""
LIGHT_SECONDS = 0.02
"""CPU time after which work is heavy: from then on it takes turns. With less, honest requests whose constraints take
some 10 ms each would go one at a time through the server, two steps of the model each."""
LARGE_SECONDS = 0.02
"""CPU time after which work may have taken much memory."""
GIVE_WAY_SECONDS = 0.003
"""CPU time after which light work waits for a step of the model: the first moments of many requests that come at once
are as long as heavy work."""
WAITING_SECONDS = 0.05
"""After which work that only waits, and looks, gives its place to the next one."""
SHORT_SECONDS = 0.25
"""After which work that does not look gives its place to the next one."""
IDLE_SECONDS = 5.0
"""How long a thread without a task is kept."""
MOST_LONG = 64
"""Long works at once; beyond them, long work keeps its place."""


def nobody(owner: str, seconds: float) -> None:
    """Charges nobody."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Task:
    work: Callable[[], Any]
    owner: str
    number: int
    is_heavy: bool
    loop: asyncio.AbstractEventLoop
    future: Future[Any] = field(default_factory=Future)
    abandoned: threading.Event = field(default_factory=threading.Event)
    turn: threading.Event = field(default_factory=threading.Event)
    has_round: threading.Event = field(default_factory=threading.Event)
    slice_began: float = 0.0
    round_began: float = 0.0
    cpu_began: float = 0.0
    cpu_charged: float = 0.0
    cpu_gave_way: float = 0.0
    began: float = 0.0
    is_long: bool = False

    @property
    def is_abandoned(self) -> bool:
        return self.abandoned.is_set()

    def ask_round(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self.has_round.set)
        except RuntimeError:  # the loop is closed
            self.has_round.set()


class Workers:
    """threads: how many tasks run at once, long ones not counted. waiting: how many may wait. One owner gets at most
    all threads but one (or the only one), so that slow work of one owner leaves a thread to the others. turns: shared
    by pools of one process. ended_long: how many long tasks have ended that computed for LARGE_SECONDS. name: for the
    threads and in messages. charge: told how many CPU seconds were spent for an owner, while long work runs and at the
    end. patient: work begins once the event loop has read all that has come: what begins at once takes the interpreter
    from the loop, so that of twenty requests the last one is read when most of the others have been worked on."""

    def __init__(
        self,
        *,
        threads: int,
        waiting: int,
        turns: Turns | None = None,
        name: str = "work",
        charge: Charge = nobody,
        patient: bool = False,
    ) -> None:
        self._is_patient = patient
        self._name, self._turns, self._charge = name, turns or Turns(), charge
        self._threads, self._limit = threads, threads + waiting
        self._for_one = max(1, threads - 1)
        self._lock = threading.Lock()
        self._queue: FairQueue[_Task] = FairQueue()
        self._running: Counter[str] = Counter()  # by owner
        self._tasks: set[_Task] = set()  # that have begun
        self._long = 0
        self.ended_long = 0
        self._numbers = itertools.count()
        self._last: str | None = None  # the owner whose task ended last
        self._is_closed = False
        self._local = threading.local()
        self._idle = 0  # threads that wait, less tasks that were handed to them
        self._handed: SimpleQueue[_Task | None] = SimpleQueue()

    async def run(
        self,
        work: Callable[[], T],
        *,
        abandoned: Callable[[T], None] | None = None,
        owner: str = "",
        heavy: bool = False,
    ) -> T:
        """Run `work` in a thread and return its result. If the caller is cancelled, work that has not begun is dropped;
        work that has begun is cancelled at its next `time_limit.check`, and a result that it has all the same goes to
        `abandoned`. owner: whose turn it takes. heavy: it begins with a turn, for work that never looks whether its
        slice is over. Raises Overloaded if the queue is full, Unavailable once closed."""
        loop = asyncio.get_running_loop()
        task = _Task(work=work, owner=owner, number=next(self._numbers), is_heavy=heavy, loop=loop)
        with self._lock:
            if self._is_closed:
                raise Unavailable("the server is closing")
            if not self._queue.has_place(owner, self._limit - self._running.total()):
                raise Overloaded(f"too many requests wait ({self._name})", hint="try again")
            self._queue.add(task)
            try:
                self._begin()
            except Overloaded:
                self._queue.remove(task)
                raise
        ended: asyncio.Future[None] = loop.create_future()
        task.future.add_done_callback(lambda _: _on_loop(loop, partial(_end, ended)))
        timer: asyncio.TimerHandle

        def relieve() -> None:
            nonlocal timer
            self._relieve()
            timer = loop.call_later(SHORT_SECONDS, relieve)

        timer = loop.call_later(SHORT_SECONDS, relieve)
        is_taken = False
        try:
            await ended
            is_taken = True
            if task.future.cancelled():  # by `close`
                raise Unavailable("the server is closing")
            try:
                result: T = task.future.result()
            except Cancelled:
                raise Unavailable("the server is closing") if self._is_closed else Cancelled from None
            return result
        finally:
            timer.cancel()
            if not is_taken:
                task.abandoned.set()
                self._drop(task)
                if abandoned is not None:
                    task.future.add_done_callback(lambda future: _hand_over(future, abandoned))

    async def aside(self, work: Callable[[], T], owner: str) -> T:
        """As `run`, for work whose result nobody misses."""
        return await self.run(work, owner=owner)

    def close(self) -> None:
        """Refuse new work, cancel what waits, and tell what runs that nobody wants it any more."""
        with self._lock:
            self._is_closed = True
            waiting, self._queue = [*self._queue], FairQueue()
            running = [*self._tasks]
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0
        for task in waiting:
            task.future.cancel()
        for task in running:
            task.abandoned.set()

    def _begin(self) -> None:
        """Start the next tasks while threads are free. The caller holds the lock. Raises Overloaded if no thread can be
        started and none runs that could go on with them."""
        while not self._is_closed and self._running.total() < self._threads:
            # The owner that ran last counts as still running: otherwise a single thread would not alternate.
            had = self._running + Counter([self._last] if self._last is not None else [])
            task = next((task for task in map(self._queue.next, (had, self._running)) if self._may(task)), None)
            if task is None:
                return
            if self._idle:
                self._idle -= 1
            elif not self._has_started():
                return
            self._last = None
            self._queue.remove(task)
            self._running[task.owner] += 1
            self._tasks.add(task)
            self._handed.put(task)

    def _has_started(self) -> bool:
        """Start a thread for a task that is handed over next. False if there can be none now."""
        thread = threading.Thread(target=self._serve, name=f"espalier-{self._name}", daemon=True)
        try:
            thread.start()  # without the task, which it would keep
        except RuntimeError as error:  # the system has none left
            if not self._tasks:
                raise Overloaded(f"no thread can be started ({self._name})", hint="try again") from error
            return False
        return True

    def _may(self, task: _Task | None) -> bool:
        return task is not None and self._running[task.owner] < self._for_one

    def _serve(self) -> None:
        """A thread's function: the tasks that come while the thread is kept, since starting one costs more than most
        tasks. No more idle ones are kept than tasks may run, each for IDLE_SECONDS: under steady traffic they stay, so
        none may hold on to what it has done."""
        stays = True
        while stays and (task := self._wait()) is not None:
            tell = Context().run(self._do, task)  # nothing of one task is seen by the next
            self._local.task = None
            stays = self._free_place(task)
            del task
            tell()
            del tell

    def _wait(self) -> _Task | None:
        """The next task for this thread, which is counted as idle; None if there is none for long."""
        try:
            return self._handed.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                try:
                    return self._handed.get_nowait()  # it came just now
                except Empty:
                    self._idle -= 1
                    return None

    def _do(self, task: _Task) -> Callable[[], None]:
        """Do a task. Returns what tells its result."""
        self._local.task = task
        task.began, task.cpu_began = time.monotonic(), time.thread_time()
        task.cpu_charged = task.cpu_gave_way = task.cpu_began
        try:
            charge = partial(self._charge, task.owner)
            try:
                with time_limit(None, cancelled=task.abandoned.is_set, pace=self._pace, spent=charge):
                    if self._is_patient:
                        wait_for_round(task)
                        check()
                    if task.is_heavy:
                        self._turns.pace(task)
                        check()
                    result = task.work()
            finally:
                self._turns.leave(task)
                self._charge_for(task)
        except BaseException as error:  # noqa: BLE001  # raised in the task that awaits the result
            traceback.clear_frames(error.__traceback__)  # what the work held is free now, not when it is collected
            return partial(task.future.set_exception, error)
        return partial(task.future.set_result, result)

    def _pace(self) -> None:
        """Called by the work of this thread, every few milliseconds."""
        task: _Task = self._local.task
        used = time.thread_time()
        is_heavy = used - task.cpu_began >= LIGHT_SECONDS
        if not task.is_long and (is_heavy or time.monotonic() - task.began >= WAITING_SECONDS):
            with self._lock:
                self._make_long(task)
        if is_heavy:
            self._charge_for(task)
            self._turns.pace(task)
        elif used - task.cpu_gave_way >= GIVE_WAY_SECONDS:
            task.cpu_gave_way = used
            self._turns.give_way(task)

    def _relieve(self) -> None:
        """Give the places of works that have not looked for long to those that wait."""
        with self._lock:
            if not self._queue.count:
                return
            ends = time.monotonic() - SHORT_SECONDS
            for task in [task for task in self._tasks if 0 < task.began <= ends]:
                self._make_long(task)

    def _make_long(self, task: _Task) -> None:
        """The caller holds the lock."""
        if not task.is_long and task in self._tasks and self._long < MOST_LONG:
            self._long += 1
            task.is_long = True
            self._leave_place(task)
            self._begin()

    def _charge_for(self, task: _Task) -> None:
        """In the task's own thread."""
        now = time.thread_time()
        self._charge(task.owner, now - task.cpu_charged)
        task.cpu_charged = now

    def _free_place(self, task: _Task) -> bool:
        """Free the task's place, which whoever learns of its end may have at once, count the thread as idle, unless
        there are enough, and let the next tasks begin. Returns whether the thread is kept. It has still to tell the
        result, which cannot fail: no task is handed to a thread that may yet do so."""
        with self._lock:
            self._tasks.discard(task)
            if task.is_long:
                self._long -= 1
                self.ended_long += task.cpu_charged - task.cpu_began >= LARGE_SECONDS
            else:
                self._leave_place(task)
            stays = not self._is_closed and self._idle < self._threads
            self._idle += stays
            self._begin()
        return stays

    def _leave_place(self, task: _Task) -> None:
        """The caller holds the lock, and lets the next task begin."""
        self._running[task.owner] -= 1
        self._running += Counter()  # drops owners with no running task
        self._last = task.owner

    def _drop(self, task: _Task) -> None:
        """Remove a task that has not begun."""
        with self._lock:
            if task not in self._queue:
                return
            self._queue.remove(task)
        task.future.cancel()


def _hand_over(future: Future[T], abandoned: Callable[[T], None]) -> None:
    if not future.cancelled() and future.exception() is None:
        abandoned(future.result())


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call)
