"""Write a rejection log in llama.cpp's format: an event for each step at which a drawn token was refused.

The events use llama.cpp's names (`log_version`, `timestamp`, `events[]` with `task_id`, `slot_id`, `step`, `rejected`,
the three stages, `resampled`) and add `request_id`. The file is always valid JSON: where llama.cpp prints a bare
`-inf`, the candidate has no `logit`. Events of a run are numbered, and each run that ends leaves a note of how many it
had, so that a reader can tell "no rejection" from "not in this log". `foreign/log_reader.py` reads such logs;
`log_file.py` has the file and its lock.
"""

from __future__ import annotations

import heapq
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from espalier.errors import InputError
from espalier.trace.foreign.log_reader import LogError, LogReader
from espalier.trace.foreign.responses import whole
from espalier.trace.recorders.log_file import LogFile
from espalier.trace.recorders.protocol import RunInfo, RunRecorder
from espalier.trace.records import Candidate, StepRecord, Trace, TraceLevel

VERSION = "espalier-1"
LEAST_BYTES = 4096
"""The smallest limit on a file's size."""
MOST_NOTES = 200
"""Notes of ended runs that wait for the next event; the oldest is dropped beyond it."""


class RejectionLog:
    """A Recorder that writes rejections to one file, for any number of concurrent runs.

    The file is a complete JSON document after each event; a crash loses at most the event being written. It has one
    writer at a time and any number of readers. An existing log of Espalier is continued: a half-written last event is
    cut off, and task numbers go on.

    max_bytes: if the next event would exceed it, the file is renamed to `path.1`, the previous one to `path.2`, up to
    `path.<keep>`; older ones are deleted. clock: Unix time in seconds.

    Raises InputError for an invalid limit; OutputError naming the path if it cannot be written, another writer has it,
    or it holds anything else.
    """

    level: TraceLevel = "steps"

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_bytes: int | None = None,
        *,
        keep: int = 9,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if max_bytes is not None and max_bytes < LEAST_BYTES:
            raise InputError(f"max_bytes: {max_bytes} must be at least {LEAST_BYTES}", field="max_bytes")
        if keep < 0:
            raise InputError(f"keep: {keep} must be at least 0", field="keep")
        self._clock = clock
        self._lock = threading.Lock()
        self._next_task = 0
        self._next_slot = 0
        self._free: list[int] = []  # a heap of free slots below the next new one
        self._events = 0
        self._ended: list[dict[str, Any]] = []  # notes of runs that ended since the last event
        self._file = LogFile(Path(path), begin=self._head, scan=self._scan, max_bytes=max_bytes, keep=keep)
        if self._ended:
            self._file.end_with(self._notes())

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def events(self) -> int:
        """How many events were written."""
        return self._events

    def begin(self, info: RunInfo) -> RunRecorder:
        with self._lock:
            task, self._next_task = self._next_task, self._next_task + 1
            if self._free:
                slot = heapq.heappop(self._free)
            else:
                slot, self._next_slot = self._next_slot, self._next_slot + 1
        return _RecordedRun(self, info, task, slot)

    def close(self) -> None:
        """Stop writing and release the file to other writers. May be called twice. Raises OutputError."""
        with self._lock:
            self._file.close()

    def write(self, event: dict[str, Any]) -> None:
        """Write one event unchanged. Raises OutputError."""
        with self._lock:
            notes = {"ended": self._ended} if self._ended else {}
            self._file.append(_compact({**event, **notes}))
            self._ended = []
            self._events += 1

    def leave(self, slot: int, note: dict[str, Any]) -> None:
        """A run has ended: free its slot, and write the note. Raises OutputError."""
        with self._lock:
            heapq.heappush(self._free, slot)
            if not self._file.is_closed:
                self._ended = [*self._ended, note][-MOST_NOTES:]
                self._file.end_with(self._notes())

    def _notes(self) -> bytes:
        return b'"ended":' + _compact(self._ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _head(self) -> bytes:
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f'{{"log_version":"{VERSION}","timestamp":"{now}","events":['.encode("ascii")

    def _scan(self, path: Path) -> tuple[int, bool]:
        """The offset after the last complete event. Raises LogError for a log of another program."""
        has_any = False
        with path.open("rb") as file:
            log = LogReader(file)
            for event in log:
                has_any = True
                for entry in (event, *_notes_of(event)):
                    task = entry.get("task_id")
                    if isinstance(task, int):
                        self._next_task = max(self._next_task, task + 1)
            if log.offset == 0:  # a log of Espalier that was cut before its events is restarted
                file.seek(0)
                begun, head = file.read(200), self._head()
                same = min(len(begun), head.index(b"timestamp"))
                if len(begun) >= len(head) or begun[:same] != head[:same]:
                    raise LogError("it has no events")
            elif log.log_version != VERSION:
                raise LogError(f"its log_version is {log.log_version[:40]!r}, not {VERSION!r}")
            self._ended = _notes_of(log.header)[-MOST_NOTES:]
            self._next_task = max([self._next_task, *((whole(note.get("task_id")) or 0) + 1 for note in self._ended)])
        return log.offset, has_any


class _RecordedRun:
    """The recorder of one run."""

    def __init__(self, log: RejectionLog, info: RunInfo, task: int, slot: int) -> None:
        self._log, self._info, self._task, self._slot = log, info, task, slot
        self._is_over = False
        self._steps = self._events = 0

    def step(self, record: StepRecord) -> None:
        self._steps += 1
        if record.was_rejected and record.rejected is not None:
            number, self._events = self._events, self._events + 1  # also if it cannot be written: that is a gap
            self._log.write(event_of(record, self._info, task=self._task, slot=self._slot, number=number))

    def end(self, trace: Trace | None) -> None:
        if not self._is_over:
            self._is_over = True
            note = run_of(self._info, task=self._task, slot=self._slot)
            self._log.leave(self._slot, {**note, "steps": self._steps, "events": self._events})


def run_of(info: RunInfo, *, task: int, slot: int) -> dict[str, Any]:
    """The fields that name a run. `output` is left out for the first output."""
    fields: dict[str, Any] = {"task_id": task, "slot_id": slot, "request_id": info.request_id}
    return {**fields, "output": info.output} if info.output else fields


def event_of(record: StepRecord, info: RunInfo, *, task: int, slot: int, number: int) -> dict[str, Any]:
    """A step at which a token was refused, as an event of the log. number: of the event within its run. `blame` is left
    out if unknown."""
    event = run_of(info, task=task, slot=slot)
    event["step"] = record.step
    event["number"] = number
    if record.rejected is not None:
        event["rejected"] = _candidate(record.rejected)
    event["pre_masking"] = _candidates(record.pre_masking)
    event["post_grammar"] = _candidates(record.post_grammar)
    event["post_chain"] = _candidates(record.post_chain)
    event["resampled"] = _candidate(record.resampled)
    if record.blame is not None:
        event["blame"] = record.blame.to_json()
    return event


def _notes_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    notes = data.get("ended")
    return [dict(note) for note in notes if isinstance(note, Mapping)] if isinstance(notes, list) else []


def _compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _candidates(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [_candidate(candidate) for candidate in candidates]


def _candidate(candidate: Candidate) -> dict[str, Any]:
    """`bytes` is given only if the text does not determine them, as for a part of a character."""
    fields = candidate.to_json()
    fields.pop("allowed")
    if fields["logit"] is None:
        del fields["logit"]
    if candidate.text.encode("utf-8", "surrogatepass") == candidate.bytes:
        del fields["bytes"]
    return fields
