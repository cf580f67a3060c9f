"""Ends worker processes with the process that started them, however that ends: by a signal of the kernel, which also
comes while a call computes and runs no Python.

A pipe has its only writing end in the parent. Each worker process opens the reading end anew, and asks the kernel for
SIGKILL once nobody can write any more. `PR_SET_PDEATHSIG` would end it with the thread that started it.

As a program, it is how a worker process begins: it watches before it imports anything of ours. argv: the end of the
pipe, then what `worker.main` takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
from pathlib import Path

NO_WATCH = -1
HAS_WATCH = sys.platform == "linux"


class ParentPipe:
    """The parent's side. reading: the end that is passed to worker processes, NO_WATCH where the system has no such
    signal: they then end when they next read a call."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe() if HAS_WATCH else (NO_WATCH, NO_WATCH)

    @property
    def passed(self) -> tuple[int, ...]:
        """File descriptors that a child inherits."""
        return () if self.reading == NO_WATCH else (self.reading,)

    def close(self) -> None:
        """Ends the processes that watch. Idempotent."""
        reading, writing = self.reading, self._writing
        self.reading = self._writing = NO_WATCH
        for end in (reading, writing):
            if end != NO_WATCH:
                os.close(end)


def end_with_parent(reading: int) -> None:
    """In a worker process: end at once when the parent has ended, or if it has already."""
    if reading == NO_WATCH:
        return
    with contextlib.suppress(OSError):  # without /proc it ends when it next reads a call
        own = os.open(Path("/proc/self/fd") / str(reading), os.O_RDONLY | os.O_NONBLOCK)
        os.close(reading)  # it is the parent's: the owner of its signal would be the last process that asked
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        poll = select.poll()
        poll.register(own, 0)
        if poll.poll(0):
            os._exit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv.pop(1)))
    from espalier.confined.worker import main

    main()
