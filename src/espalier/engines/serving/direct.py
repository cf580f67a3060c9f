"""Serves an engine that schedules its own requests, such as a client of another server.

Each request runs in its reader's thread. Nothing is batched or queued here: the number of open requests is limited.
Deadlines and cancellations are checked between events, and interrupt an engine that can be interrupted. It knows no
model.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, Protocol, runtime_checkable

from espalier.constraints.judging import Judge, in_this_process
from espalier.engines.base import Event, FinishEvent, Load, Progress, Request
from espalier.engines.capabilities import check_capabilities
from espalier.engines.protocols import Engine, Interruptible, Running
from espalier.errors import Cancelled, DeadlineExceeded, InputError, Overloaded, Unavailable
from espalier.owners import working_for

LATE = 0.01
"""Seconds after the deadline at which it is certain to be over."""


@runtime_checkable
class JudgedEvents(Protocol):
    """Events whose texts can be judged elsewhere than in this process."""

    def judge_with(self, judge: Judge, owner: str) -> None: ...


class DirectService:
    """A ServingEngine over any Engine. queue_size: open requests beyond those that the engine runs at once. Raises
    InputError for a number below 1."""

    def __init__(
        self,
        engine: Engine,
        *,
        queue_size: int,
        clock: Callable[[], float] = time.monotonic,
        judge: Judge = in_this_process,
    ) -> None:
        if queue_size < 1:
            raise InputError(f"queue_size is a whole number from 1 on, not {queue_size!r}", field="queue_size")
        self._engine, self._clock, self._judge = engine, clock, judge
        self._most = queue_size + (engine.capabilities.max_sequences or 0)
        # Reentrant: a finalizer may run in a thread that holds it.
        self._changed = threading.Condition(threading.RLock())
        self._open: dict[int, threading.Event] = {}  # by the number of the request: set once it is cancelled
        self._begun = 0
        self._is_closing = False

    @property
    def engine(self) -> Engine:
        return self._engine

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        if deadline is not None and not deadline > 0:
            raise InputError(f"a deadline is a number of seconds above 0, not {deadline}", field="deadline")
        check_capabilities(self._engine, request)
        end = None if deadline is None else self._clock() + deadline
        with working_for(owner):
            events = self._engine.run([request])
        if isinstance(events, JudgedEvents):
            events.judge_with(self._judge, owner)
        with self._changed:
            if self._is_closing:
                raise Unavailable("the engine is closing")
            if len(self._open) >= self._most:
                raise Overloaded(f"{len(self._open)} requests are open already", hint="try again in a few seconds")
            self._begun += 1
            number, cancelled = self._begun, threading.Event()
            self._open[number] = cancelled
        running = _DirectRun(events, cancelled, lambda: end is not None and self._clock() > end)
        if deadline is not None and isinstance(events, Interruptible):
            running.end_after(deadline)
        running.release = weakref.finalize(running, self._release, number)
        running.release.atexit = False
        return running

    def load(self) -> Load:
        with self._changed:
            return Load(running=len(self._open))

    def close(self, *, drain: float = 0.0) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.wait_for(lambda: not self._open, timeout=drain)
            for cancelled in self._open.values():
                cancelled.set()

    def _release(self, number: int) -> None:
        with self._changed:
            self._open.pop(number, None)
            self._changed.notify_all()


class _DirectRun:
    """One request of a DirectService. A `Running`."""

    release: weakref.finalize[..., _DirectRun]

    def __init__(self, events: Iterator[Event], cancelled: threading.Event, is_late: Callable[[], bool]) -> None:
        self._iterator, self._cancelled, self._is_late = events, cancelled, is_late
        self._reading = threading.Lock()  # held while the engine computes the next event
        self._is_read = False
        self._timer: threading.Timer | None = None

    def end_after(self, seconds: float) -> None:
        """Interrupt the engine once the deadline is over, though it may be silent then."""
        self._timer = threading.Timer(seconds + LATE, _interrupt, (weakref.ref(self._iterator),))
        self._timer.daemon = True
        self._timer.start()

    @property
    def progress(self) -> Progress:
        return Progress(queued=0.0)

    def __iter__(self) -> Iterator[Event]:
        self._read_once()
        return self._events()

    def events(self) -> AsyncIterator[Event]:
        self._read_once()
        return self._async_events()

    def bursts(self) -> AsyncGenerator[list[Event]]:
        self._read_once()
        return one_by_one(self._async_events())

    def cancel(self) -> None:
        self._cancelled.set()
        self._end()

    def _events(self) -> Iterator[Event]:
        try:
            is_finished = False
            while not is_finished:
                event = self._next()
                is_finished = isinstance(event, FinishEvent)
                yield event
        finally:
            self.cancel()

    async def _async_events(self) -> AsyncGenerator[Event]:
        try:
            is_finished = False
            while not is_finished:
                event = await asyncio.to_thread(self._next)
                is_finished = isinstance(event, FinishEvent)
                yield event
        finally:
            self.cancel()

    def _next(self) -> Event:
        with self._reading:
            try:
                self._check()
                try:
                    event = next(self._iterator, None)
                except Cancelled:
                    self._check()  # it was the deadline that interrupted
                    raise
            finally:
                if self._cancelled.is_set():  # by another thread, which could not close the iterator meanwhile
                    self._close()
            if event is None:
                raise AssertionError("an engine ends every request with Finished")
            if not isinstance(event, FinishEvent):
                self._check()
            return event

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        if self._is_late():
            raise DeadlineExceeded

    def _end(self) -> None:
        """Close the engine's iterator, unless it is computing an event: then `_next` closes it."""
        if self._reading.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._reading.release()
        elif isinstance(self._iterator, Interruptible):
            self._iterator.interrupt()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        close = getattr(self._iterator, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self.release()

    def _read_once(self) -> None:
        if self._is_read:
            raise InputError("the events of a request can be read once, by one reader")
        self._is_read = True


async def one_by_one(events: AsyncGenerator[Event]) -> AsyncGenerator[list[Event]]:
    """Bursts of one event each."""
    async with aclosing(events):
        async for event in events:
            yield [event]


def _interrupt(events: weakref.ref[Any]) -> None:
    if (running := events()) is not None:
        running.interrupt()
