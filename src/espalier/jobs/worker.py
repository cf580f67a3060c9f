"""The worker: takes items from a queue, has them executed side by side, records how they ended. On one event loop.

Items are claimed a window ahead and begun by length, so that those of a forward pass are about as long as one another.
Results are recorded together, as many as have come. A heartbeat renews the leases and learns what is to be stopped. The
queue's calls block, so they run in a thread of their own, one after the other; what may take long, reading inputs and
ending batches, in another.

What goes wrong with an item is a result. What goes wrong with the queue ends `run`: every item that it had comes back
when its lease ends, and nothing that was recorded is run again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from espalier.errors import EspalierError, Overloaded, ReplicaLost, Unavailable
from espalier.jobs.ports import Executor, Queue
from espalier.jobs.retry import Retry
from espalier.jobs.values import ItemAnswer, ItemEnd, Lease, WorkItem
from espalier.wording import in_words

log = logging.getLogger(__name__)
T = TypeVar("T")

PIPELINE = 16
WINDOW = 4
"""Items that are claimed ahead, as a multiple of those that run at once."""
BEAT_SECONDS = 1.0
"""Between two heartbeats, so also until a pause or a cancellation in another process is noticed."""
IDLE_SECONDS = 1.0
"""Between two looks at a queue that had nothing."""
GATHER_SECONDS = 0.2
"""How long a result waits for others, so that they are recorded in one transaction, until the window runs low."""
FULL_SECONDS = 0.2
"""Before an item that the engine had no place for is tried again."""


@dataclass(slots=True)
class Tally:
    """What a worker has done since it began."""

    done: int = 0
    failed: int = 0
    again: int = 0
    invalid: int = 0
    judged: int = 0


def worker_name() -> str:
    """Another one for each worker: host, process, and some letters."""
    return f"{socket.gethostname()[:30]}:{os.getpid()}:{secrets.token_hex(4)}"


@dataclass(slots=True, kw_only=True)
class Worker:
    """pipeline: items that run at once. until_idle: end when no batch is open. told: called with each recorded result.
    beat: seconds between heartbeats; the lease of the queue is several of them."""

    queue: Queue
    executor: Executor
    name: str = field(default_factory=worker_name)
    pipeline: int = PIPELINE
    window: int = WINDOW
    retry: Retry = field(default_factory=Retry)
    until_idle: bool = False
    beat: float = BEAT_SECONDS
    idle: float = field(default_factory=lambda: IDLE_SECONDS)
    rng: random.Random = field(default_factory=random.Random)
    told: Callable[[ItemEnd], None] = lambda _: None
    tally: Tally = field(default_factory=Tally)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _low: asyncio.Event = field(default_factory=asyncio.Event)
    _input: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[Lease, asyncio.Task[None]] = field(default_factory=dict)
    _ahead: list[WorkItem] = field(default_factory=list)
    _ended: list[ItemEnd] = field(default_factory=list)
    _back: list[Lease] = field(default_factory=list)
    _lost: list[Lease] = field(default_factory=list)
    _tending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _threads: dict[str, ThreadPoolExecutor] = field(default_factory=dict)

    def wake(self) -> None:
        """There is something new: look at once. From the loop's thread."""
        self._wake.set()
        self._input.set()

    async def run(self) -> None:
        """Work until cancelled, or until nothing is open. Items that run then are given back. Raises OutputError and
        Unavailable of the queue."""
        for name in ("items", "batches"):
            self._threads[name] = ThreadPoolExecutor(1, thread_name_prefix=f"espalier-{name}")
        loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (self._work, self._beat, self._tend_often)
        tasks = [asyncio.create_task(loop()) for loop in loops]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended_task in ended:
                ended_task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()
            for thread in self._threads.values():
                thread.shutdown()

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            self._low.clear()
            await self._record()
            await self._lose()
            if await self._give_back():  # the engine is closing: it will not take them a moment later either
                await asyncio.sleep(self.idle)
            await self._claim()
            if not self._running and self.until_idle and not await self._tend():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self.idle):
                    await self._wake.wait()
            if not self._is_low:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_SECONDS):
                        await self._low.wait()

    async def _tend_often(self) -> None:
        while True:
            self._input.clear()
            await self._tend()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.idle):  # wait_for of Python 3.11 may lose a cancellation
                    await self._input.wait()

    async def _tend(self) -> bool:
        """Read new inputs, and move on what time moves. Returns whether any batch is open."""
        async with self._tending:
            while await self._ask(self.queue.validate, self.name, self.executor, thread="batches"):
                self._wake.set()
            return await self._ask(self.queue.tend, self.name, thread="batches")

    @property
    def _is_low(self) -> bool:
        """Whether half of the window has run."""
        return len(self._ahead) + len(self._running) <= self.pipeline * max(1, self.window) // 2

    async def _claim(self) -> None:
        """Claim more items when the window runs low, and begin them."""
        if self._is_low:
            room = self.pipeline * max(1, self.window) - len(self._ahead) - len(self._running)
            alone = not self._running and not self._ahead
            claimed = await self._ask(self.queue.claim, self.name, room, alone=alone)
            # The longest first: what is left at the end is short.
            self._ahead = sorted([*self._ahead, *claimed], key=lambda item: item.size)
        self._begin()

    def _begin(self) -> None:
        """Begin claimed items while there is room."""
        while self._ahead and len(self._running) < self.pipeline:
            item = self._ahead.pop()
            self._running[item.lease] = asyncio.create_task(self._execute(item))

    async def _execute(self, item: WorkItem) -> None:
        try:
            try:
                answer = await self._answer(item)
            except ReplicaLost as error:
                log.warning("%s", error, extra={"fields": {"batch": item.lease.batch, "line": item.lease.line}})
                self._lost.append(item.lease)
                return
            if answer is None:
                self._back.append(item.lease)
                return
            again = None if answer.is_good else self.retry.after(answer.status, item.attempts, self.rng, answer.passes)
            self._ended.append(ItemEnd(lease=item.lease, answer=answer, again=again))
        finally:
            self._running.pop(item.lease, None)
            self._wake.set()
            if self._is_low:
                self._low.set()
        self._begin()  # after an answer, so that no item waits for the queue's transactions

    async def _answer(self, item: WorkItem) -> ItemAnswer | None:
        """How the item ended, None if it is to be given back."""
        while True:
            try:
                return await self.executor.execute(item)
            except Overloaded:  # others fill the queue: the item has not begun
                await asyncio.sleep(FULL_SECONDS)
            except ReplicaLost:
                raise
            except Unavailable:  # the engine is closing
                return None
            except EspalierError as error:
                return failed(error.code, in_words(error.message, "http"), status=error.http_status)
            except Exception as error:
                log.exception("an item of a batch failed", extra={"fields": {"batch": item.lease.batch}})
                return failed("internal_error", f"something went wrong in the worker: {type(error).__name__}")

    async def _record(self) -> None:
        """Record what has ended. It stays here until the queue has it."""
        if not self._ended:
            return
        ended = list(self._ended)
        held = set(await self._ask(self.queue.record, self.name, ended))
        del self._ended[: len(ended)]
        for attempt in ended:
            if attempt.lease not in held:
                continue
            self.tally.again += attempt.again is not None
            if attempt.again is None:
                self.tally.done += attempt.answer.is_good
                self.tally.failed += not attempt.answer.is_good
                self.tally.judged += attempt.answer.valid is not None
                self.tally.invalid += attempt.answer.valid is False
                self.told(attempt)

    async def _give_back(self) -> bool:
        if not self._back:
            return False
        leases = list(self._back)
        await self._ask(self.queue.release, self.name, leases)
        del self._back[: len(leases)]
        return True

    async def _lose(self) -> None:
        """Items whose process died count that loss, so that one that kills its processes runs alone, and ends."""
        if not self._lost:
            return
        leases = list(self._lost)
        await self._ask(self.queue.lose, self.name, leases)
        del self._lost[: len(leases)]

    async def _beat(self) -> None:
        """Renew the leases; stop what is paused, cancelled, expired or lost."""
        while True:
            await asyncio.sleep(self.beat)
            leases = [
                *self._running,
                *(item.lease for item in self._ahead),
                *(attempt.lease for attempt in self._ended),
            ]
            if not leases:
                continue
            dropped = set(await self._ask(self.queue.renew, self.name, leases))
            if not dropped:
                continue
            self._ahead = [item for item in self._ahead if item.lease not in dropped]
            stopped = {lease: task for lease, task in self._running.items() if lease in dropped}
            for task in stopped.values():
                task.cancel()
            await asyncio.gather(*stopped.values(), return_exceptions=True)
            for lease in stopped:  # a task that was stopped before it began has not said so itself
                self._running.pop(lease, None)
            mine = {attempt.lease for attempt in self._ended}  # finished meanwhile: recorded, if the lease holds
            await self._ask(self.queue.release, self.name, [lease for lease in dropped if lease not in mine])
            self._wake.set()

    async def _leave(self) -> None:
        """Stop what runs, record what has ended, and give the rest back; as far as the queue still answers."""
        leases = [*self._running, *(item.lease for item in self._ahead), *self._back]
        self._ahead.clear()  # what ends now begins no other
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(EspalierError):
            await self._record()
        with suppress(EspalierError):
            await self._lose()
        with suppress(EspalierError):
            mine = {attempt.lease for attempt in self._ended}
            await self._ask(self.queue.release, self.name, [lease for lease in leases if lease not in mine])

    async def _ask(self, call: Callable[..., T], *arguments: Any, thread: str = "items", **named: Any) -> T:
        """A call of the queue, in its thread. A cancelled caller waits for it: half a call cannot be taken back."""
        work = partial(call, *arguments, **named)
        future = asyncio.get_running_loop().run_in_executor(self._threads[thread], work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                with suppress(EspalierError):
                    await future
            raise


def failed(code: str, message: str, *, status: int = 500) -> ItemAnswer:
    """The answer for an item that no route has answered."""
    return ItemAnswer(status=status, body=None, request_id="", error={"code": code, "message": message})
