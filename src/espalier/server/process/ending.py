"""Ends a process in time: after SIGTERM or SIGINT running requests may finish, and then it ends, whatever still runs.

At the end of the drain every request that still runs is told so. Should some thread then keep the process from ending,
it is ended without being asked; SIGALRM does so even where the interpreter itself is stuck. SIGHUP, which a closing
terminal sends, is ignored. It works under every ASGI server whose main thread runs the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)
FORCED_AFTER = 0.8
"""Seconds after the drain. On a machine that many share, Python comes to the handler of a signal up to a second late;
with it the process is still gone two seconds after the drain."""
ALARM_AFTER = 1.0
"""The kernel ends what does not even come to that."""
GONE_AFTER = 2.0
"""What is promised."""
CUT_AFTER = 0.4
"""Seconds after the drain until connections are cut whose clients do not take what they are told."""
FORCED_STATUS = 1


class ShutdownPlan:
    """drain: seconds. finish: ends what still runs; called once, at the end of the drain. leave: ends the process."""

    def __init__(
        self, drain: float, finish: Callable[[], Awaitable[None]], *, leave: Callable[[int], Any] = os._exit
    ) -> None:
        self._drain, self._finish, self._leave = drain, finish, leave
        self._ends: float | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._is_armed = False

    @property
    def has_begun(self) -> bool:
        return self._ends is not None

    def left(self) -> float:
        """Seconds that requests may still run from now on."""
        return self._drain if self._ends is None else max(0.0, self._ends - time.monotonic())

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """From the loop's thread. Does nothing the second time."""
        if self._ends is not None:
            return
        self._ends = time.monotonic() + self._drain
        self.arm()
        loop.call_later(self._drain, self._begin_finishing)

    def arm(self) -> None:
        """Have the process ended in time from now on, whatever the loop does. Does nothing the second time."""
        if self._is_armed:
            return
        self._is_armed = True
        with suppress(ValueError, AttributeError):
            signal.setitimer(signal.ITIMER_REAL, self._drain + ALARM_AFTER)
        threading.Thread(target=self._force, name="espalier-ending", daemon=True).start()

    def _begin_finishing(self) -> None:
        self._finishing = asyncio.ensure_future(self._finish())

    def _force(self) -> None:
        time.sleep(self._drain + FORCED_AFTER)
        log.error("the process is ended by force: something still runs %g s after the drain", FORCED_AFTER)
        logging.shutdown()
        self._leave(FORCED_STATUS)


def end_with_supervisor() -> None:
    """In a worker process of several: end it, with its own worker processes, when the process that started it has been
    killed, which would leave it with the port and nobody to end it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def watch() -> None:
        supervisor.join()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    threading.Thread(target=watch, name="espalier-supervisor", daemon=True).start()


@contextmanager
def ending_on_signals(ending: ShutdownPlan) -> Iterator[None]:
    """While open, SIGTERM and SIGINT begin the ending, before what the ASGI server does on them. Elsewhere than in the
    main thread, where no handlers can be set, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def begin(number: int, frame: FrameType | None) -> None:
        ending.arm()  # a busy loop may come to the next call late
        loop.call_soon_threadsafe(ending.begin, loop)
        following = before[signal.Signals(number)]
        if callable(following):
            following(number, frame)

    # Python's own handler of SIGINT ends programs that are no servers, such as a notebook.
    replaced = [
        number for number, handler in before.items() if callable(handler) and handler is not signal.default_int_handler
    ]
    for signum in replaced:
        signal.signal(signum, begin)
    hangup = getattr(signal, "SIGHUP", None)
    ignores = hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL
    if ignores and hangup is not None:
        signal.signal(hangup, lambda *_: log.info("SIGHUP is ignored"))
    try:
        yield
    finally:
        # The ASGI server has taken its handlers back where it no longer waits for signals.
        for signum in replaced:
            if signal.getsignal(signum) is begin:
                signal.signal(signum, before[signum])
        if ignores and hangup is not None:
            signal.signal(hangup, signal.SIG_IGN)
