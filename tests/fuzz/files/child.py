"""Reads one file in a process of its own, with limits: what it raised, how much CPU time and memory it took."""

from __future__ import annotations

import io
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from random import Random

from espalier.errors import EspalierError

CPU_SECONDS = 2.0
MEMORY = 200 << 20
ROOM = 1 << 30
"""Address space beyond what the process has: far more than MEMORY, so that what asks for more shows."""
WALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """outcome: `done`, `exit N`, or the name of an error of our tree. fault: what is wrong, "" if nothing is."""

    outcome: str
    fault: str = ""


def read_in_child(work: Callable[[], object], *, size: int = 0) -> Ending:
    """Fork, run, report. size: bytes of what is read, which may take CPU_SECONDS more for each MiB."""
    here, there = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(here)
        try:
            report = _run(work, CPU_SECONDS * (1 + size / (1 << 20)))
            os.write(there, report.encode("utf-8", "backslashreplace")[:60_000])
        finally:
            os._exit(0)
    os.close(there)
    ready, _, _ = select.select([here], [], [], WALL_SECONDS)
    text = b"" if not ready else _all(here)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.close(here)
    _, status = os.waitpid(child, 0)
    if not ready:
        return Ending(outcome="hangs", fault=f"hangs for {WALL_SECONDS:g} s")
    if os.WIFSIGNALED(status) or not text:
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no report"
        slow = ": far more CPU time than it may take" if name == "SIGXCPU" else ""
        return Ending(outcome="ended", fault=f"the process ends with {name}{slow}")
    outcome, _, fault = text.decode("utf-8", "replace").partition("\n")
    return Ending(outcome=outcome, fault=fault.strip())


def _all(handle: int) -> bytes:
    parts = []
    while piece := os.read(handle, 65_536):
        parts.append(piece)
    return b"".join(parts)


def _run(work: Callable[[], object], most_seconds: float) -> str:
    """The outcome, and on the following lines what is wrong."""
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):  # libraries write there themselves
        os.dup2(null, handle)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    with open("/proc/self/statm", encoding="ascii") as file:
        pages, resident = (int(one) * resource.getpagesize() for one in file.read().split()[:2])
    resource.setrlimit(resource.RLIMIT_AS, (pages + ROOM, hard))
    resource.setrlimit(resource.RLIMIT_CPU, (int(most_seconds) + 8, resource.RLIM_INFINITY))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    fault = ""
    try:
        with redirect_stdout(out), redirect_stderr(as_stderr()):
            result = work()
        outcome = f"exit {result}" if type(result) is int else "done"
    except EspalierError as error:
        outcome = error.code
        if len(str(error)) > 3000:
            fault = f"an error of {len(str(error)):,} characters: {str(error)[:200]!r}"
    except BaseException as error:  # noqa: BLE001  # what is looked for
        outcome = type(error).__name__
        fault = f"{type(error).__name__}: {str(error)[:300]}\n{_where(error)}"
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds, grown = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 - resident
    if seconds > most_seconds and not fault:
        fault = f"takes {seconds:.1f} s of CPU"
    if not fault and grown > MEMORY:
        fault = f"takes {grown >> 20} MiB"
    return f"{outcome}\n{fault}"


def as_stderr() -> io.TextIOWrapper:
    """A file that takes every text, as Python's standard error does."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{os.path.relpath(one.filename)}:{one.lineno}" for one in frames[:-7:-1])


def seeded(seed: int) -> Random:
    return Random(seed)
