"""Judges what a parser does with one input: the law that holds for every parser. It knows no parser."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import espalier
from espalier.errors import EspalierError

CPU_SECONDS = 2.0
MEMORY = 1 << 30
"""The most bytes by which a process may grow for one input."""
SOURCES = str(Path(espalier.__file__).parent)
Read = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one input."""

    #: `read`, or the code of an error of ours, or the class of another exception
    outcome: str
    #: what breaks the law; "" for nothing
    fault: str = ""
    #: where, so that many inputs with one fault are one finding
    cause: str = ""
    #: CPU time that reading took
    seconds: float = 0.0
    #: bytes by which the largest size of the process grew
    grown: int = 0


def judge(read: Read, data: bytes) -> Verdict:
    """Reads one input in this process."""
    start, before = time.process_time(), _largest_size()
    verdict = _read(read, data)
    seconds, grown = time.process_time() - start, _largest_size() - before
    fault, cause = verdict.fault, verdict.cause
    if not fault and seconds > CPU_SECONDS:
        fault, cause = f"takes {seconds:.1f} s of CPU", "time"
    if not fault and grown > MEMORY:
        fault, cause = f"takes {grown >> 20} MiB", "memory"
    return Verdict(outcome=verdict.outcome, fault=fault, cause=cause, seconds=seconds, grown=grown)


def _read(read: Read, data: bytes) -> Verdict:
    try:
        read(data)
    except EspalierError as error:
        return Verdict(outcome=error.code)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a panic of a library in Rust is no Exception
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(SOURCES)] or frames
        cause = f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"
        route = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[:-7:-1])
        return Verdict(outcome=type(error).__name__, fault=f"{cause}: {str(error)[:300]} ({route})", cause=cause)
    return Verdict(outcome="read")


def _largest_size() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
