"""A small thread pool for blocking work, with a bounded queue in which owners take turns. It does not know the work."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from espalier.engines.serving.fair_queue import FairQueue
from espalier.errors import Overloaded, Unavailable

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class _Task:
    work: Callable[[], Any]
    owner: str
    number: int
    future: Future[Any] = field(default_factory=Future)


class Workers:
    """threads: how many tasks run at once. waiting: how many may wait. One owner gets at most all threads but one (or
    the only one), so that slow work of one owner leaves a thread to the others."""

    def __init__(self, *, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="espalier-work")
        self._threads, self._limit = threads, threads + waiting
        self._for_one = max(1, threads - 1)
        self._lock = threading.Lock()
        self._queue: FairQueue[_Task] = FairQueue()
        self._running: Counter[str] = Counter()  # by owner
        self._numbers = itertools.count()
        self._last: str | None = None  # the owner whose task ended last
        self._is_closed = False

    async def run(self, work: Callable[[], T], *, abandoned: Callable[[T], None], owner: str = "") -> T:
        """Run `work` in a thread and return its result. If the caller is cancelled, work that has not begun is dropped;
        the result of work that has begun goes to `abandoned`. owner: whose turn it takes. Raises Overloaded if the
        queue is full, Unavailable once closed."""
        task = _Task(work=work, owner=owner, number=next(self._numbers))
        with self._lock:
            if self._is_closed:
                raise Unavailable("the server is closing")
            if not self._queue.has_place(owner, self._limit - self._running.total()):
                raise Overloaded("too many requests wait to be prepared", hint="try again")
            self._queue.add(task)
            self._begin()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        task.future.add_done_callback(lambda _: _on_loop(loop, ended.set))
        is_taken = False
        try:
            await ended.wait()
            is_taken = True
            if task.future.cancelled():  # by `close`
                raise Unavailable("the server is closing")
            found: T = task.future.result()
            return found
        finally:
            if not is_taken:
                self._drop(task)
                task.future.add_done_callback(lambda one: _hand_over(one, abandoned))

    def close(self) -> None:
        """Refuse new work and cancel what waits. Running work ends by itself."""
        with self._lock:
            self._is_closed = True
            waiting, self._queue = [*self._queue], FairQueue()
        for task in waiting:
            task.future.cancel()
        self._pool.shutdown(wait=False)

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
            self._pool.submit(self._do, task)

    def _may(self, task: _Task | None) -> bool:
        return task is not None and self._running[task.owner] < self._for_one

    def _do(self, task: _Task) -> None:
        """Runs in a thread of the pool."""
        try:
            found = task.work()
        except BaseException as error:  # noqa: BLE001  # raised in the task that awaits the result
            self._ended(task)
            task.future.set_exception(error)
        else:
            self._ended(task)
            task.future.set_result(found)

    def _ended(self, task: _Task) -> None:
        with self._lock:
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
