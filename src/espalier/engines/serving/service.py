"""Serves a StepEngine to many callers: one thread runs the scheduler, readers build their own events.

The thread computes masks, sampling and forward passes (`scheduler.py`); checking, rendering and compiling happen in the
threads of callers, turn parsing in those of readers, and so do verdicts and traces, save that an asynchronous reader
has them made aside wherever they may take long. It knows no HTTP.

A service may be garbage-collected without being closed: the thread holds the scheduler and the model, not the service,
whose finalizer tells the thread to end. The thread is a daemon, so it keeps no process alive; at exit it is stopped and
joined, since a model must not be freed during a pass.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from espalier.constraints.judging import Judge, in_this_process
from espalier.decoding.plan import Outcome, SampledToken
from espalier.engines.base import Event, FinishEvent, Load, Progress, Request
from espalier.engines.local.prepared_run import PreparedRun
from espalier.engines.local.step_engine import StepEngine
from espalier.engines.protocols import Running
from espalier.engines.scheduling.lanes import PlanEvent, Ticket
from espalier.engines.scheduling.scheduler import Scheduler
from espalier.engines.serving.delivery import Mailbox, hand_out
from espalier.errors import InputError
from espalier.owners import this_request, working_for
from espalier.time_limit import check

logger = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE = 64
"""The most events of a burst."""


class Aside(Protocol):
    """Runs work in a thread, for an owner, and returns its result. If the caller is cancelled, the work is told so at
    its next `time_limit.check`."""

    async def __call__(self, work: Callable[[], T], owner: str) -> T: ...


async def in_any_thread(work: Callable[[], T], owner: str) -> T:
    """In a thread of the event loop's own pool, which owners do not share out."""
    return await asyncio.to_thread(work)


Box: TypeAlias = "Mailbox[tuple[int, PlanEvent]]"
"""A mailbox of (index of the request among those of this reader, event)."""


class Service:
    """A ServingEngine over a StepEngine. It owns the engine until it is closed: `engine.run` goes through it too.

    judge: judges outputs. aside: where the end of an output is parsed, judged and traced, and the records of its steps
    are made, off the event loop of its reader; a short end that costs less than a thread is made on the loop. options:
    a Scheduler's. Nothing runs before the first request. Raises InputError for an option out of range, and if the
    engine is served or generates already.
    """

    def __init__(
        self,
        engine: StepEngine,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        judge: Judge = in_this_process,
        aside: Aside = in_any_thread,
        **options: Any,
    ) -> None:
        self._engine, self._clock, self._judge, self.aside = engine, clock, judge, aside
        deliver = partial(_deliver, clock=clock)
        self._scheduler = Scheduler(engine.model, deliver, clock=clock, cpu=cpu, **options)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closing = threading.Lock()
        self._is_closed = False
        engine.serve_with(self)
        # It only asks the thread to end: a finalizer must not wait for a lock that its own thread may hold.
        weakref.finalize(self, self._scheduler.stop).atexit = False

    @property
    def engine(self) -> StepEngine:
        return self._engine

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        if deadline is not None and not deadline > 0:
            raise InputError(f"a deadline is a number of seconds above 0, not {deadline}", field="deadline")
        end = None if deadline is None else self._clock() + deadline
        self._scheduler.check(owner)  # before the work; `_begin` checks again
        with working_for(owner):
            prepared = self._engine.prepare(request)
        prepared.judge_with(self._judge, owner)
        running = _ServiceRun(self._scheduler, prepared, owner, end, keep=self)
        self._begin(running.ticket)
        return running

    def drive(self, runs: Sequence[PreparedRun]) -> Generator[tuple[int, SampledToken | Outcome], None, None]:
        """Like `scheduling.drive`, next to all other requests. These runs come from the engine itself, so the queue's
        limit does not apply."""
        tickets: list[Ticket] = []
        box: Box = Mailbox(partial(_cancel, self._scheduler, tickets))
        tickets += [_ticket(run, (box, index)) for index, run in enumerate(runs)]
        left = len(tickets)
        try:
            self._begin(*tickets, limited=False)
            while left:
                for index, happened in box.take():
                    if isinstance(happened, Exception):
                        raise happened
                    left -= isinstance(happened, Outcome)
                    yield index, happened
        finally:
            _cancel(self._scheduler, tickets)

    def load(self) -> Load:
        return self._scheduler.load()

    def close(self, *, drain: float = 0.0) -> None:
        self._scheduler.refuse("the engine is closing")
        with self._closing:
            if self._is_closed:
                return
            with self._starting:
                thread = self._thread
            if thread is not None:
                self._scheduler.wait_idle(drain)
                self._scheduler.stop()
                thread.join()
            else:
                self._scheduler.end()
            self._is_closed = True
            self._engine.serve_with(None)

    def _begin(self, *tickets: Ticket, limited: bool = True) -> None:
        with self._starting:
            self._scheduler.submit(*tickets, limited=limited)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_serve, args=(self._scheduler,), name=f"espalier {self._engine.name}", daemon=True
                )
                self._thread.start()


class _ServiceRun:
    """One request of a Service: a `Running`."""

    def __init__(
        self, scheduler: Scheduler, prepared: PreparedRun, owner: str, deadline: float | None, *, keep: Service
    ) -> None:
        self._scheduler, self._prepared, self._service = scheduler, prepared, keep
        self._is_read = False
        self._read = 0  # events
        tickets: list[Ticket] = []
        # The mailbox must not refer to this object, or it would never be collected when nobody reads any more.
        self._box: Box = Mailbox(partial(_cancel, scheduler, tickets))
        self.ticket = _ticket(prepared, (self._box, 0), owner=owner, deadline=deadline)
        tickets.append(self.ticket)
        weakref.finalize(self, scheduler.cancel, self.ticket).atexit = False

    @property
    def progress(self) -> Progress:
        began = self.ticket.began
        queued = None if began is None else began - self.ticket.arrived
        return Progress(compiled=self._prepared.compile_seconds, queued=queued)

    def __iter__(self) -> Iterator[Event]:
        self._read_once()
        return self._events()

    def events(self) -> AsyncIterator[Event]:
        return self._async_events(self.bursts())

    def bursts(self) -> AsyncGenerator[list[Event]]:
        self._read_once()
        return self._bursts()

    def cancel(self) -> None:
        self._scheduler.cancel(self.ticket)

    def _events(self) -> Iterator[Event]:
        try:
            while True:
                for _, happened in self._box.take():
                    event = self._event(happened)
                    yield event
                    if isinstance(event, FinishEvent):
                        return
        finally:
            self.cancel()  # the reader stopped, or an error; does nothing after the end
            self._prepared.close()

    @staticmethod
    async def _async_events(bursts: AsyncGenerator[list[Event]]) -> AsyncIterator[Event]:
        async with aclosing(bursts):
            async for burst in bursts:
                for event in burst:
                    yield event

    async def _bursts(self) -> AsyncGenerator[list[Event]]:
        try:
            while True:
                burst: list[Event] = []
                last: Outcome | Exception | None = None
                for _, happened in await self._box.take_async():
                    if not isinstance(happened, SampledToken):
                        last = happened  # nothing follows it
                        break
                    if len(burst) == AT_ONCE:
                        yield burst
                        burst = []
                        await asyncio.sleep(0)  # a reader that was slow has much to read, and others wait
                    try:
                        burst.append(self._event(happened))
                    except Exception as error:  # noqa: BLE001  # raised below, after what came before it
                        last = error
                        break
                if burst:
                    yield burst
                if isinstance(last, Outcome):
                    if self._prepared.is_soon_told(last):
                        yield [self._end(last)]
                    else:  # judging the output may take long, so it does not run on the event loop
                        yield [await self._service.aside(partial(self._end, last), self.ticket.owner)]
                    return
                if last is not None:
                    raise last
        finally:
            self.cancel()
            self._prepared.close()

    def _event(self, happened: PlanEvent) -> Event:
        if isinstance(happened, Exception):
            raise happened
        times, count = self.ticket.times, self._read
        self._read += 1
        after = None if times is None or not isinstance(happened, SampledToken) else times[count]
        return self._prepared.event(happened, reused=self.ticket.reused, after=after)

    def _end(self, outcome: Outcome) -> Event:
        """The last event, with the records of all steps made: a reader on an event loop finds no work in them."""
        event = self._event(outcome)
        if isinstance(event, FinishEvent):
            for result in (event.result, *event.result.others):
                for record in result.records:
                    check()
                    record.make()
        return event

    def _read_once(self) -> None:
        if self._is_read:
            raise InputError("the events of a request can be read once, by one reader")
        self._is_read = True


def _ticket(run: PreparedRun, reader: tuple[Box, int], *, owner: str = "", deadline: float | None = None) -> Ticket:
    return Ticket(
        plan=run.plan(),
        prompt=run.job.prompt,
        size=run.size,
        sequences=run.sequences,
        owner=owner,
        deadline=deadline,
        reader=reader,
        cost_key=run.cost_key,
        watch=run.watch,
        request=this_request(),
        # What recorders get is not put off.
        times=[] if run.request.whole and not run.request.recorders else None,
    )


def _cancel(scheduler: Scheduler, tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        scheduler.cancel(ticket)


def _deliver(batch: Sequence[tuple[Ticket, PlanEvent]], clock: Callable[[], float] = time.monotonic) -> None:
    """Hand out what happened. clock: the scheduler's."""
    events: dict[Ticket, list[PlanEvent]] = {}
    for ticket, event in batch:
        events.setdefault(ticket, []).append(event)
    posted: list[tuple[Box, list[tuple[int, PlanEvent]], bool]] = []
    for ticket, happened in events.items():
        box, index = ticket.reader
        wakes, times = True, ticket.times
        if times is not None:
            wakes, after = not isinstance(happened[-1], SampledToken), clock() - ticket.arrived
            times += [after] * (len(happened) - wakes)
        posted.append((box, [(index, event) for event in happened], wakes))
        if ticket.is_over:
            ticket.reader = None  # breaks the reference cycle of mailbox and ticket, so that both are freed at once
    hand_out(posted)


def _serve(scheduler: Scheduler) -> None:
    """The thread's function."""
    leave = _AtExit(scheduler, threading.current_thread())
    atexit.register(leave)
    try:
        while scheduler.wait():
            scheduler.round()
    except BaseException as error:
        logger.exception("the thread that generates has stopped")
        scheduler.end(error)
    else:
        scheduler.end()
    finally:
        atexit.unregister(leave)


class _AtExit:
    """Called at interpreter exit while the thread still runs."""

    def __init__(self, scheduler: Scheduler, thread: threading.Thread) -> None:
        self._scheduler, self._thread = scheduler, thread

    def __call__(self) -> None:
        self._scheduler.stop()
        self._thread.join()
