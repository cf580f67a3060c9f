"""The main function of a worker process: reads calls from stdin, one after the other, and answers on stdout.

The kernel holds the limits: RLIMIT_AS for memory, and for each call a timer of CPU time whose signal ends the process,
whatever code runs then. Before that, code that looks at `time_limit.check` ends by itself, which costs no process. A
process may be nicer than its parent, whose model then goes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from espalier.confined import frames
from espalier.memory import resident_bytes
from espalier.registry import imported
from espalier.time_limit import OutOfTime, time_limit

TIDY = 20_000_000
"""Bytes of memory that a process may gain until it gives back what it does not need, after a call."""
LARGE = 400_000_000
"""Bytes of memory that a process may keep after a call; with more it ends, and the next one begins small."""


def main() -> None:
    """argv: the most bytes of memory, how much nicer than its parent, then functions to call beforehand, each
    `module:function`."""
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:  # what a library prints must not stand between replies
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the parent decides; it closes the pipe or kills
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.nice(int(sys.argv[2]))
    _limit(resource.RLIMIT_CORE, 0)
    for function in sys.argv[3:]:
        imported(function)()
    _limit(resource.RLIMIT_AS, int(sys.argv[1]))
    replies.write(frames.packed({"ready": True}))
    replies.flush()
    resident = resident_bytes() or 0
    while True:
        try:
            call = frames.read(calls)
        except (EOFError, OSError):
            return
        reply, is_last = _answer_call(call)
        try:
            replies.write(frames.packed(reply))
            replies.flush()
        except OSError:  # nobody reads
            return
        if is_last:
            return
        if (resident_bytes() or 0) > resident + TIDY:
            _give_back()
            resident = max(resident, resident_bytes() or 0)


def _give_back() -> None:
    """Free what the call has left behind. The caller has its reply by now."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _limit(which: int, most: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (most, most))


def _answer_call(call: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The reply to one call, and whether the process must end after it."""
    began = _cpu()
    signal.setitimer(signal.ITIMER_PROF, call["kill"])
    is_last = False
    try:
        run: Callable[[Any], Any] = imported(call["run"])
        with time_limit(call["seconds"], what=call["what"]):
            reply: dict[str, Any] = {"value": run(call["given"])}
    except OutOfTime as error:
        reply = {"over": error.message}
    except MemoryError:
        reply, is_last = {"over": f"{call['what']} takes too much memory"}, True
    except Exception as error:  # noqa: BLE001  # the caller gets it
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    is_last = is_last or (resident_bytes() or 0) > LARGE
    return reply | {"cpu": _cpu() - began, "is_last": is_last}, is_last


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
