"""Runs cases one after another in a process that may crash, as native engines can: the next goes on in a new one."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

Start: TypeAlias = Callable[[], Callable[[Any], Any]]
"""Called in the process: makes what is called with each case. What that gives is pickled."""


def isolated(cases: Sequence[Any], start: Start, *, seconds: float, gigabytes: int = 16) -> Iterator[Any]:
    """For each case what was made of it; None where the process ended, or took longer than `seconds`."""
    done = 0
    while done < len(cases):
        for found in _until_crash(cases[done:], start, seconds, gigabytes):
            yield found
            done += 1
        if done < len(cases):
            yield None
            done += 1


def _until_crash(cases: Sequence[Any], start: Start, seconds: float, gigabytes: int) -> Iterator[Any]:
    context = multiprocessing.get_context("fork")  # the cases need not be written
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(cases, start, gigabytes, writer))
    process.start()
    writer.close()
    try:
        for _ in cases:
            if not reader.poll(seconds):  # inside a native call no alarm is heard
                return
            yield reader.recv()
    except EOFError:
        return
    finally:
        process.kill()
        process.join()


def _work(cases: Sequence[Any], start: Start, gigabytes: int, results: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes << 30, gigabytes << 30))
    run = start()
    for case in cases:
        results.send(run(case))
