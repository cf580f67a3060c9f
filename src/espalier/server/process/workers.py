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
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from espalier.engines.serving.fair_queue import FairQueue
from espalier.errors import Cancelled, Overloaded, Unavailable
from espalier.server.process.turns import Turns
from espalier.time_limit import check, time_limit

T = TypeVar("T")
Charge: TypeAlias = Callable[[str, float], None]
"""Told how many CPU seconds were spent for an owner; any thread calls it."""
LIGHT_SECONDS = 0.02
"""CPU time after which work is heavy: from then on it takes turns."""
SHORT_SECONDS = 0.25
"""After which work that only waits gives its place to the next one."""
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
    future: Future[Any] = field(default_factory=Future)
    abandoned: threading.Event = field(default_factory=threading.Event)
    turn: threading.Event = field(default_factory=threading.Event)
    slice_began: float = 0.0
    cpu_began: float = 0.0
    cpu_charged: float = 0.0
    began: float = 0.0
    is_long: bool = False

    @property
    def is_abandoned(self) -> bool:
        return self.abandoned.is_set()


class Workers:
    """threads: how many tasks run at once, long ones not counted. waiting: how many may wait. One owner gets at most
    all threads but one (or the only one), so that slow work of one owner leaves a thread to the others. turns: shared
    by pools of one process. ended_long: how many long tasks have ended. name: for the threads and in messages. charge:
    told how many CPU seconds were spent for an owner, while long work runs and at the end."""

    def __init__(
        self,
        *,
        threads: int,
        waiting: int,
        turns: Turns | None = None,
        name: str = "work",
        charge: Charge = nobody,
    ) -> None:
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
        task = _Task(work=work, owner=owner, number=next(self._numbers), is_heavy=heavy)
        with self._lock:
            if self._is_closed:
                raise Unavailable("the server is closing")
            if not self._queue.has_place(owner, self._limit - self._running.total()):
                raise Overloaded(f"too many requests wait ({self._name})", hint="try again")
            self._queue.add(task)
            self._begin()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        task.future.add_done_callback(lambda _: _on_loop(loop, ended.set))
        is_taken = False
        try:
            while not ended.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), SHORT_SECONDS)
                self._relieve()
            is_taken = True
            if task.future.cancelled():  # by `close`
                raise Unavailable("the server is closing")
            try:
                found: T = task.future.result()
            except Cancelled:
                raise Unavailable("the server is closing") if self._is_closed else Cancelled from None
            return found
        finally:
            if not is_taken:
                task.abandoned.set()
                self._drop(task)
                if abandoned is not None:
                    task.future.add_done_callback(lambda one: _hand_over(one, abandoned))

    async def aside(self, work: Callable[[], T], owner: str) -> T:
        """As `run`, for work whose result nobody misses."""
        return await self.run(work, owner=owner)

    def close(self) -> None:
        """Refuse new work, cancel what waits, and tell what runs that nobody wants it any more."""
        with self._lock:
            self._is_closed = True
            waiting, self._queue = [*self._queue], FairQueue()
            running = [*self._tasks]
        for task in waiting:
            task.future.cancel()
        for task in running:
            task.abandoned.set()

    def _begin(self) -> None:
        """Start the next tasks while threads are free. The caller holds the lock."""
        while not self._is_closed and self._running.total() < self._threads:
            # The owner that ran last counts as still running: otherwise a single thread would not alternate.
            had = self._running + Counter([self._last] if self._last is not None else [])
            task = next((one for one in map(self._queue.next, (had, self._running)) if self._may(one)), None)
            if task is None:
                return
            self._last = None
            self._queue.remove(task)
            self._running[task.owner] += 1
            self._tasks.add(task)
            # A thread for each task: nothing is kept of a crowd once it has gone, and none keeps the process alive.
            threading.Thread(target=self._do, args=(task,), name=f"espalier-{self._name}", daemon=True).start()

    def _may(self, task: _Task | None) -> bool:
        return task is not None and self._running[task.owner] < self._for_one

    def _do(self, task: _Task) -> None:
        """A thread's function."""
        self._local.task = task
        task.began, task.cpu_began = time.monotonic(), time.thread_time()
        task.cpu_charged = task.cpu_began
        try:
            charge = partial(self._charge, task.owner)
            with time_limit(None, cancelled=task.abandoned.is_set, pace=self._pace, spent=charge):
                if task.is_heavy:
                    self._turns.pace(task)
                    check()
                found = task.work()
        except BaseException as error:  # noqa: BLE001  # raised in the task that awaits the result
            traceback.clear_frames(error.__traceback__)  # what the work held is free now, not when it is collected
            self._ended(task)
            task.future.set_exception(error)
        else:
            self._ended(task)
            task.future.set_result(found)

    def _pace(self) -> None:
        """Called by the work of this thread, every few milliseconds."""
        task: _Task = self._local.task
        is_heavy = time.thread_time() - task.cpu_began >= LIGHT_SECONDS
        if not task.is_long and (is_heavy or time.monotonic() - task.began >= SHORT_SECONDS):
            with self._lock:
                self._make_long(task)
        if is_heavy:
            self._charge_for(task)
            self._turns.pace(task)

    def _relieve(self) -> None:
        """Give the places of works that have not looked for long to those that wait."""
        with self._lock:
            if not len(self._queue):
                return
            ends = time.monotonic() - SHORT_SECONDS
            for task in [one for one in self._tasks if 0 < one.began <= ends]:
                self._make_long(task)

    def _make_long(self, task: _Task) -> None:
        """The caller holds the lock."""
        if not task.is_long and task in self._tasks and self._long < MOST_LONG:
            self._long += 1
            task.is_long = True
            self._leave_place(task)

    def _charge_for(self, task: _Task) -> None:
        """In the task's own thread."""
        now = time.thread_time()
        self._charge(task.owner, now - task.cpu_charged)
        task.cpu_charged = now

    def _ended(self, task: _Task) -> None:
        self._charge_for(task)
        self._turns.leave(task)
        with self._lock:
            self._tasks.discard(task)
            if task.is_long:
                self._long -= 1
                self.ended_long += 1
            else:
                self._leave_place(task)

    def _leave_place(self, task: _Task) -> None:
        """Let the next task begin. The caller holds the lock."""
        self._running[task.owner] -= 1
        self._running += Counter()  # drops owners with no running task
        self._last = task.owner
        self._begin()

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


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
