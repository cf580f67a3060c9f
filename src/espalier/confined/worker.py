"""The main function of a worker process: reads calls from stdin, one after the other, and answers on stdout.

The kernel holds the limits: RLIMIT_AS for memory, and for each call a timer of CPU time whose signal ends the process,
whatever code runs then. Before that, code that looks at `time_limit.check` ends by itself, which costs no process. The
process is nicer than its parent, whose model goes first.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from espalier.confined import frames
from espalier.registry import imported
from espalier.time_limit import OutOfTime, time_limit

NICER = 5
LARGE = 400_000_000
"""Bytes of peak memory after which the process ends, so that the next one begins small."""


def main() -> None:
    """argv: the most bytes of memory, then modules to import beforehand."""
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:  # what a library prints must not stand between replies
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the parent decides; it closes the pipe or kills
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.nice(NICER)
    _limit(resource.RLIMIT_CORE, 0)
    for module in sys.argv[2:]:
        importlib.import_module(module)
    _limit(resource.RLIMIT_AS, int(sys.argv[1]))
    replies.write(frames.packed({"ready": True}))
    replies.flush()
    while True:
        try:
            call = frames.read(calls)
        except (EOFError, OSError):
            return
        reply, is_last = _answered(call)
        try:
            replies.write(frames.packed(reply))
            replies.flush()
        except OSError:  # nobody reads
            return
        if is_last:
            return


def _limit(which: int, most: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (most, most))


def _answered(call: dict[str, Any]) -> tuple[dict[str, Any], bool]:
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
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    is_last = is_last or peak > LARGE
    return reply | {"cpu": _cpu() - began, "is_last": is_last}, is_last


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
