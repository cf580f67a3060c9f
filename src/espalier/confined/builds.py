"""Builds what takes long in worker processes, so that no thread of a server computes for seconds beside the model, nor
keeps the memory that building takes.

Only work with a limit goes there (a server's), after a first try in its own thread. What comes back is a file of bytes,
or an error as it was raised. It knows nothing of what is built.
"""

from __future__ import annotations

import os
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from espalier import errors
from espalier.confined.pool import Processes, is_supported
from espalier.errors import EspalierError
from espalier.owners import owner
from espalier.time_limit import HINT, OutOfTime, check, is_limited, left, spend, time_limit

T = TypeVar("T")
Remote: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""A function that a worker process calls: it writes a file, and returns what is wrong with the input, None if nothing
is."""
NEAR_SECONDS = 0.1
"""CPU time that a build may take in the caller's thread; with more it begins again in a worker process."""
MOST_SECONDS = 60.0
"""CPU time that one build may take, where the limit of the caller leaves more."""
PROCESSES = 2
FOR_ONE = PROCESSES - 1
"""Processes that one owner may have at a time, so that another one's build never waits for its long ones."""
NICER = 5
WHAT = "compiling the constraint"


class Elsewhere(Exception):
    """Raised by what makes a build here, before it begins: it takes so long that a worker process does it at once."""


class Builds:
    """warm: functions of modules that every process calls at its start. Thread-safe; the processes begin with `start`
    or the first long build, and end with the object."""

    def __init__(self, warm: Sequence[Callable[[], None]] = ()) -> None:
        self._warm = warm
        self._lock = threading.Lock()
        self._processes: Processes | None = None

    def start(self) -> None:
        """Start the processes, so that the first long build finds them ready. Raises ConfinedError."""
        if is_supported():
            self._start_processes().start()

    def build(
        self,
        make: Callable[[], T],
        *,
        run: Remote,
        given: Mapping[str, Any],
        read: Callable[[bytes], T],
        near: Callable[[], T] | None = None,
        is_near: bool = True,
    ) -> T:
        """What `make` returns: made here where there is no limit, or where it is quick. Otherwise a worker process
        calls `run`, a function of a module that returns `answered(given, ...)`, and `read` reads its file. given: JSON.
        near: makes the same, or raises Elsewhere where it knows beforehand that it is not quick. is_near: whether it is
        tried here at all. Raises as `make`, and with a limit OutOfTime, Cancelled, ConfinedError."""
        if not (is_limited() and is_supported()):
            return make()
        if is_near:
            try:
                with time_limit(min(NEAR_SECONDS, left()), what=WHAT):
                    return (near or make)()
            except Elsewhere:
                pass
            except OutOfTime as error:
                check()  # who has no time left is told the limit that was set, not what was left of it
                traceback.clear_frames(error.__traceback__)  # what was built so far is free at once
        return read(self._far(run, given))

    def _far(self, run: Remote, given: Mapping[str, Any]) -> bytes:
        processes = self._start_processes()
        handle, name = tempfile.mkstemp(prefix="espalier-")
        os.close(handle)
        path = Path(name)
        try:
            seconds = round(min(left(), MOST_SECONDS), 1)
            try:
                failed = processes.call(
                    run, {**given, "file": name}, seconds=seconds, what=WHAT, owner=owner(), used=spend
                )
            except OutOfTime as error:
                check()
                raise OutOfTime(error.message, hint=HINT) from error
            if failed is not None:
                raise _error_of(failed)
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)

    def _start_processes(self) -> Processes:
        with self._lock:
            if self._processes is None:
                self._processes = Processes(count=PROCESSES, for_one=FOR_ONE, nicer=NICER, warm=self._warm)
                weakref.finalize(self, self._processes.close)
            return self._processes


def answered(given: Mapping[str, Any], make: Callable[[], bytes]) -> dict[str, Any] | None:
    """In a worker process: write what `make` returns to the file; returns what is wrong with the input, None if nothing
    is."""
    try:
        data = make()
    except OutOfTime:
        raise
    except EspalierError as error:
        known = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == errors.__name__)
        fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int | None)}
        return {"class": known, "text": str(error.args[0]), "fields": fields}
    Path(given["file"]).write_bytes(data)
    return None


def _error_of(failed: Mapping[str, Any]) -> EspalierError:
    """The error as it was raised over there."""
    cls: type[EspalierError] = getattr(errors, failed["class"])
    error = cls.__new__(cls)
    Exception.__init__(error, failed["text"])
    error.__dict__.update(failed["fields"])
    return error
