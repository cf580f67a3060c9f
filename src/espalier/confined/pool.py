"""A few worker processes, kept warm: each call goes to an idle one; one that exceeds its limits is killed and replaced.

It knows no function. Owners of calls take turns; who may call how often is decided above.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from espalier.confined import frames, parent
from espalier.confined.parent import ParentPipe
from espalier.errors import EspalierError, Unavailable
from espalier.registry import import_name
from espalier.time_limit import OutOfTime, check

T = TypeVar("T")
MEMORY_BYTES = 1_000_000_000
"""Address space of one process, its libraries included."""
GRACE_SECONDS = 0.5
"""CPU time that a call may take beyond its limit, until it looks at the limit itself; then the kernel kills."""
LOOK_SECONDS = 0.02
"""How often a waiting caller looks whether it was cancelled."""
START_SECONDS = 60.0
"""By the clock, for a process to be ready for its first call, usually a second: a start that hangs uses no CPU time."""
STOPPED_SECONDS = 5.0
"""By the clock, after which a process that a signal has stopped in a call is killed: it uses no CPU time."""


class ConfinedError(EspalierError):
    """A call in a worker process failed: the function raised, or the process ended by itself."""

    http_status = 500


class ProcessCrash(ConfinedError):
    """A worker process ended in the middle of a call: the code that it ran crashed."""

    def __init__(self, what: str, number: int | None) -> None:
        #: the signal that ended it, by name
        self.signal_name = _signal_name(number)
        super().__init__(f"{what} ended its process ({self.signal_name})")


def _signal_name(number: int | None) -> str:
    """`SIGSEGV`; real-time signals have numbers alone."""
    if number is None:
        return "no signal"
    names = {each.value: each.name for each in signal.Signals}
    return names.get(number, f"signal {number}")


class Processes:
    """Worker processes. `call` may be called from any thread. nicer: what is added to their niceness. warm:
    functions of modules that every process calls at its start, so that no call pays for what is done once.
    for_one: how many processes one owner may have at a time, all of them by default. files: descriptors that every
    process inherits under the same numbers.

    A process takes one call at a time. Processes are started by `start`, or by the first call; a killed one is replaced
    at once, so that the next call finds it warm. One that is not ready within start_seconds is killed and replaced too.
    """

    def __init__(
        self,
        *,
        count: int,
        memory_bytes: int = MEMORY_BYTES,
        nicer: int = 0,
        warm: Sequence[Callable[[], None]] = (),
        start_seconds: float = START_SECONDS,
        for_one: int | None = None,
        files: Sequence[int] = (),
    ) -> None:
        self._files = files
        self._for_one = count if for_one is None else for_one
        self._waiting: list[tuple[int, str]] = []  # the numbers of calls, and their owners
        self._numbers = itertools.count()
        self._busy: Counter[str] = Counter()  # processes, by owner
        self._served: dict[str, int] = {}  # by owner that waits: the number of its latest call that had a process
        self._parent = ParentPipe()
        self._count, self._command = count, _command(memory_bytes, nicer, self._parent.reading, warm)
        self._start_seconds = start_seconds
        self._changed = threading.Condition()
        self._idle: deque[_Process] = deque()
        self._all: set[_Process] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start the processes without waiting for them. Raises ConfinedError, Unavailable."""
        with self._changed:
            if self._is_closed:
                raise Unavailable("the server is closing")
            while len(self._all) < self._count:
                process = _Process(self._command, (*self._parent.passed, *self._files))
                self._all.add(process)
                self._idle.append(process)

    def call(
        self,
        run: Callable[[Any], T],
        given: Any,
        *,
        seconds: float,
        what: str,
        owner: str = "",
        ends: bool = True,
        still: Callable[[], bool] = lambda: True,
        used: Callable[[float], None] = lambda seconds: None,
    ) -> T:
        """What `run`, a function of a module, returns for `given`; both are JSON. what: names the work in messages.
        owner: whose turn it takes. ends: whether a caller who leaves ends the process; for short calls a new one would
        cost more. still: whether the call is still worth making once a process is free. used: told the CPU seconds
        that the call took, however it ended.

        Raises OutOfTime once the call has used `seconds` of CPU time or its memory, Cancelled and OutOfTime where
        `time_limit.check` of the calling thread does, which ends the call, ConfinedError (also where the process does
        not start in time), Unavailable once closed.
        """
        message = frames.packed(
            {"run": import_name(run), "given": given, "seconds": seconds, "what": what, "kill": seconds + GRACE_SECONDS}
        )
        process = self._take_process(owner)
        try:
            self._wait_until_ready(process)
            if not still():
                self._back(process, is_usable=True)
                raise OutOfTime(f"{what} was not tried")
            value: T = self._call_process(process, message, seconds, what, ends, used)
            return value
        finally:
            with self._changed:
                self._busy[owner] -= 1
                self._busy += Counter()  # drops owners without a process
                self._changed.notify_all()

    def _call_process(
        self, process: _Process, message: bytes, seconds: float, what: str, ends: bool, used: Callable[[float], None]
    ) -> Any:
        reply: dict[str, Any] | None = None
        before = process.cpu()
        try:
            reply = process.answer(message, look=check if ends else _no_look)
        except (EOFError, OSError, ValueError):
            pass  # it has ended: by its limit, or by `close`, which also closes its pipes
        finally:
            used(reply["cpu"] if reply is not None else process.cpu() - before)
            self._back(process, is_usable=reply is not None and not reply["is_last"])
        if reply is None:
            if process.ended_by == signal.SIGPROF:
                raise OutOfTime(f"{what} takes longer than {seconds:g} s")
            if self._is_closed:
                raise Unavailable("the server is closing")
            raise ProcessCrash(what, process.ended_by)
        if "over" in reply:
            raise OutOfTime(reply["over"])
        if "error" in reply:
            raise ConfinedError(f"{what} failed: {reply['error']}")
        return reply["value"]

    def close(self) -> None:
        """Kill every process. Idempotent."""
        with self._changed:
            self._is_closed = True
            ended = [*self._all]
            self._all.clear()
            self._idle.clear()
            self._changed.notify_all()
            self._parent.close()
        for process in ended:
            process.kill()

    def _take_process(self, owner: str) -> _Process:
        """An idle process, waited for: it goes to the owner that has the fewest, then to the one that was served
        longest ago, with its oldest call."""
        self.start()
        with self._changed:
            mine = next(self._numbers), owner
            self._waiting.append(mine)
        try:
            while True:
                with self._changed:
                    if self._is_closed:
                        raise Unavailable("the server is closing")
                    if self._idle and self._is_next(mine):
                        self._busy[owner] += 1
                        waits = {who for _, who in self._waiting}
                        self._served = {who: at for who, at in self._served.items() if who in waits} | {owner: mine[0]}
                        return self._idle.popleft()
                    self._changed.wait(LOOK_SECONDS)
                check()
        finally:
            with self._changed:
                self._waiting.remove(mine)
                self._changed.notify_all()

    def _is_next(self, mine: tuple[int, str]) -> bool:
        busy, served = self._busy, self._served
        allowed = [(number, who) for number, who in self._waiting if busy[who] < self._for_one]
        may = [(busy[who], served.get(who, -1), (number, who)) for number, who in allowed]
        return bool(may) and min(may)[2] == mine

    def _wait_until_ready(self, process: _Process) -> None:
        """A caller who leaves meanwhile ends nothing: what has begun to start is of use to the next one. Raises what
        `check` raises, ConfinedError, Unavailable."""
        try:
            process.wait_until_ready(self._start_seconds)
        except (EOFError, OSError, ValueError):
            self._back(process, is_usable=False)
            if self._is_closed:
                raise Unavailable("the server is closing") from None
            raise ConfinedError(f"a worker process ended while it started ({process.ended_by})") from None
        except BaseException as error:
            self._back(process, is_usable=not isinstance(error, ConfinedError))
            raise

    def _back(self, process: _Process, *, is_usable: bool) -> None:
        if not is_usable:
            process.kill()
        with self._changed:
            if is_usable and not self._is_closed:
                self._idle.append(process)
                self._changed.notify()
                return
            self._all.discard(process)
            is_closed = self._is_closed
        if is_usable:
            process.kill()
        if not is_closed:
            self.start()
            with self._changed:
                self._changed.notify()


class _Process:
    """One worker process. For one caller at a time; `kill` is for any thread."""

    def __init__(self, command: Sequence[str], passed: Sequence[int]) -> None:
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=passed
            )
        except OSError as error:
            raise ConfinedError(f"a worker process cannot be started: {error.strerror or error}") from error
        self._is_ready, self._began, self._cpu = False, time.monotonic(), 0.0

    @property
    def ended_by(self) -> int | None:
        """The signal that ended it, None where none did."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def wait_until_ready(self, seconds: float) -> None:
        """seconds: since it was started. Raises ConfinedError after them, EOFError or OSError where the process has
        ended, and what `check` raises."""

        def look() -> None:
            check()
            if time.monotonic() - self._began > seconds:
                raise ConfinedError(f"a worker process did not start within {seconds:g} s")

        if not self._is_ready:
            self._reply(look)
            self._is_ready = True

    def answer(self, message: bytes, *, look: Callable[[], None]) -> dict[str, Any]:
        """look: called while it waits. Raises EOFError or OSError where the process has ended, and what `look`
        raises."""
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        self._process.stdin.flush()
        return self._reply(look)

    def _reply(self, look: Callable[[], None]) -> dict[str, Any]:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout.fileno(), select.POLLIN | select.POLLHUP)
        went_on = time.monotonic()
        while not poll.poll(LOOK_SECONDS * 1000):
            look()
            if not self._is_stopped():
                went_on = time.monotonic()
            elif time.monotonic() - went_on > STOPPED_SECONDS:
                self._process.kill()
        try:
            reply: dict[str, Any] = frames.read(self._process.stdout)
        except EOFError:
            self._cpu = self.cpu()  # what a process has used is gone once its exit status is taken
            self._process.wait()
            raise
        return reply

    def cpu(self) -> float:
        """CPU seconds that it has used; on a system that does not say, 0.0."""
        try:
            return sum(map(int, self._stat()[11:13])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return self._cpu

    def _is_stopped(self) -> bool:
        """Whether a signal has stopped it; on a system that does not say, False."""
        try:
            return self._stat()[:1] == ["T"]
        except OSError:
            return False

    def _stat(self) -> list[str]:
        """What the kernel says of it, from its state on. Raises OSError."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
        return fields.rpartition(")")[2].split()

    def kill(self) -> None:
        """End it and take its exit status."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not flushed has no reader
                    pipe.close()


def _command(memory_bytes: int, nicer: int, reading: int, warm: Sequence[Callable[[], None]]) -> list[str]:
    """-P: a module of the working directory must not stand for one of ours."""
    limits = [str(reading), str(memory_bytes), str(nicer)]
    return [sys.executable, "-P", parent.__file__, *limits, *map(import_name, warm)]


def _no_look() -> None:
    """Wait on."""


def is_supported() -> bool:
    """Whether this system has the limits that a worker process needs."""
    return os.name == "posix"
