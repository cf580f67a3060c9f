"""Finds llama-completion, or an old llama-cli, learns its flags, and runs it: in a process group of its own, with a
time-out, and ended with all its children. It knows no model and no output.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from espalier.errors import Cancelled, CapabilityError, InputError, UpstreamError, UpstreamTimeout

NAMES = ("llama-completion", "llama-cli")
NEEDED = ("--model", "--file", "--grammar-file", "--no-display-prompt", "--no-conversation", "--no-escape", "--seed")
HELP_SECONDS = 60.0
MOST_OUTPUT = 64 * 2**20
GRACE = 2.0
"""Seconds between the request to end and the kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run that ended by itself. status: negative for a signal."""

    status: int
    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class LlamaProgram:
    """path: of the executable. flags: the names of all that its `--help` lists."""

    path: str
    flags: frozenset[str]

    def run(self, arguments: Sequence[str], *, seconds: float) -> RunningProgram:
        """Start it. Raises UpstreamError where it cannot be started."""
        try:
            process = subprocess.Popen(
                [self.path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its arguments hold a NUL"
            raise UpstreamError(f"{self.path} cannot be started: {reason}") from error
        return RunningProgram(self.path, process, seconds)


class RunningProgram:
    """A process that runs. For one reader; `interrupt` may be called from any thread."""

    def __init__(self, path: str, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._path, self._process, self._seconds = path, process, seconds
        self._lock = threading.Lock()
        self._interrupted = False

    def wait(self) -> Ran:
        """Raises UpstreamTimeout, UpstreamError for too much output, Cancelled if it was interrupted. The process and
        its children are gone afterwards."""
        try:
            out, err = self._process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired as error:
            raise UpstreamTimeout(
                f"{self._path} ran for more than {self._seconds:g} s", hint="fewer tokens, or a longer --timeout"
            ) from error
        finally:
            self.end()
        if self._interrupted:
            raise Cancelled
        if len(out) > MOST_OUTPUT:
            raise UpstreamError(f"{self._path} wrote more than {MOST_OUTPUT} bytes")
        return Ran(status=self._process.returncode, out=out, err=err)

    def interrupt(self) -> None:
        with self._lock:
            self._interrupted = True
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        """End the whole group: first asked, then killed. Idempotent."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=GRACE)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone already
            os.killpg(self._process.pid, number)  # its session is its own, so the group has its id


def find_program(binary: str | None) -> LlamaProgram:
    """The program of that path or name; without one, the first of NAMES on the PATH. Raises InputError where there is
    none, CapabilityError for a program that cannot answer one prompt and end."""
    wanted = NAMES if binary is None else (str(Path(binary).expanduser()),)
    for name in wanted:
        path = shutil.which(name)
        if path is not None:
            return _probe_program(path, os.stat(path).st_mtime_ns)
    raise InputError(
        f"there is no program {' or '.join(wanted)}",
        hint="build llama.cpp's llama-completion, and name it: --binary FILE",
        field="binary",
    )


@lru_cache(maxsize=8)
def _probe_program(path: str, changed: int) -> LlamaProgram:
    """changed: the time of its last change, so that a new build is asked again."""
    ran = LlamaProgram(path, frozenset()).run(["--help"], seconds=HELP_SECONDS).wait()
    shown = (ran.out + ran.err).decode("utf-8", "replace")
    flags = frozenset(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", shown))
    missing = [flag for flag in NEEDED if flag not in flags]
    if missing:
        raise CapabilityError(
            f"{path} has no {', '.join(missing)}: it is no llama-completion",
            hint="newer llama-cli programs only chat; use llama-completion",
            field="binary",
        )
    return LlamaProgram(path, flags)


def _environment() -> dict[str, str]:
    """Without LLAMA_ARG_…, which would set options behind our back, and without a debugger's trace on stdout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    return kept | {"GGML_NO_BACKTRACE": "1", "LC_ALL": "C"}
