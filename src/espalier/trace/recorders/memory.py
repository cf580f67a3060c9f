"""Two recorders: `MemoryRecorder` keeps runs in memory, `JsonLinesRecorder` writes one line of JSON per step."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from espalier.errors import InputError, OutputError
from espalier.trace.recorders.protocol import RunInfo, RunRecorder
from espalier.trace.records import LEVELS, StepRecord, Trace, TraceLevel


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """One recorded run. dropped: number of oldest steps that exceeded the limit. trace: None until the run is over, and
    if it was stopped, failed, or no trace was requested."""

    info: RunInfo
    steps: deque[StepRecord] = field(default_factory=deque)
    dropped: int = 0
    trace: Trace | None = None
    is_over: bool = False


class MemoryRecorder:
    """A Recorder that keeps the last runs. max_runs: how many, at least 1; beyond that the oldest are dropped, finished
    runs first. max_steps: the number of last steps kept per run. level: how much of a step it requires."""

    def __init__(self, *, max_runs: int = 100, max_steps: int = 100_000, level: TraceLevel = "steps") -> None:
        for name, value in (("max_runs", max_runs), ("max_steps", max_steps)):
            if value < 1:
                raise InputError(f"{name}: {value} must be at least 1", field=name)
        self._level = checked_level(level)
        self._max_runs, self._max_steps = max_runs, max_steps
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, RecordedRun] = OrderedDict()
        self._next = 0

    @property
    def level(self) -> TraceLevel:
        return self._level

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """In the order in which they began."""
        with self._lock:
            return tuple(self._runs.values())

    def begin(self, info: RunInfo) -> RunRecorder:
        run = RecordedRun(info=info)
        with self._lock:
            self._runs[self._next] = run
            self._next += 1
            while len(self._runs) > self._max_runs:
                over = (number for number, earlier in self._runs.items() if earlier.is_over)
                del self._runs[next(over, next(iter(self._runs)))]
        return _MemoryRun(run, self._max_steps)


class _MemoryRun:
    def __init__(self, run: RecordedRun, most: int) -> None:
        self._run, self._most = run, most

    def step(self, record: StepRecord) -> None:
        self._run.steps.append(record)
        if len(self._run.steps) > self._most:
            self._run.steps.popleft()
            self._run.dropped += 1

    def end(self, trace: Trace | None) -> None:
        self._run.trace, self._run.is_over = trace, True


class JsonLinesRecorder:
    """A Recorder that appends to a file: one line per step, as `StepRecord.to_json()` with `run`, `request_id` and
    `output` in front, and one at the end of each run with `end`, `finish_reason`, `text` and `summary` (null without a
    trace). run: a number that this recorder assigns. Lines of concurrent runs are interleaved, each complete. level:
    how much of a step it requires.

    Raises OutputError naming the path if it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, level: TraceLevel = "steps") -> None:
        self.path = Path(path)
        self._level = checked_level(level)
        self._lock = threading.Lock()
        self._next = 0
        try:
            self._file = self.path.open("ab+", buffering=0)
            is_cut = self._file.seek(0, os.SEEK_END) > 0 and self._last_byte() != b"\n"
            if is_cut:  # by a crash: the broken line stays a line of its own
                self._file.write(b"\n")
        except OSError as error:
            raise self._cannot(error) from error

    @property
    def level(self) -> TraceLevel:
        return self._level

    def begin(self, info: RunInfo) -> RunRecorder:
        with self._lock:
            number, self._next = self._next, self._next + 1
        return _LinesRun(self, {"run": number, "request_id": info.request_id, "output": info.output}, info)

    def write(self, line: dict[str, Any]) -> None:
        """Write one line, whole; a reader of lines never sees half of it. Raises OutputError."""
        text = _text(line).encode("ascii") + b"\n"
        with self._lock:
            if self._file.closed:
                raise OutputError(f"{self.path} is closed")
            try:
                rest = text
                while rest:
                    rest = rest[self._file.write(rest) or 0 :]
            except OSError as error:
                raise self._cannot(error) from error

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _last_byte(self) -> bytes:
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1)

    def _cannot(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self.path}: {error.strerror or error}")


class _LinesRun:
    def __init__(self, lines: JsonLinesRecorder, front: dict[str, Any], info: RunInfo) -> None:
        self._lines, self._front, self._info = lines, front, info

    def step(self, record: StepRecord) -> None:
        self._lines.write(self._front | record.to_json())

    def end(self, trace: Trace | None) -> None:
        last = {
            "end": True,
            "model": self._info.model,
            "strategy": self._info.strategy,
            "seed": self._info.seed,
            "finish_reason": None if trace is None else trace.finish_reason,
            "text": None if trace is None else trace.text,
            "summary": None if trace is None else trace.summary(),
        }
        self._lines.write(self._front | last)


def _text(line: Mapping[str, Any]) -> str:
    try:
        return json.dumps(line, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no infinities: they become null
        return json.dumps(_finite(line), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked_level(level: TraceLevel) -> TraceLevel:
    """Raises InputError for an unknown level."""
    if level not in LEVELS:
        raise InputError(f"unknown trace level {level!r}", hint=", ".join(LEVELS), field="level")
    return level
