"""Assign the events of a rejection log to tasks: one for each output of each request. It knows no reply."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from espalier.trace.foreign.responses import whole

MAX_NAMED = 8
REMEMBERED = 4096
"""Events that are remembered, so that one that stands twice counts once."""


class TaskKey(NamedTuple):
    """part: a restarted server counts its tasks from the start again; the second task of a number is part 1. request,
    output: the request's name in a log of Espalier, and the index of its output."""

    task: int | None
    slot: int | None
    part: int = 0
    request: str = ""
    output: int = 0

    def __str__(self) -> str:
        again = f", part {self.part + 1}" if self.part else ""
        return f"task {self.task} (slot {self.slot}{again})"


class Tasks:
    """Assigns the events of a log, read in order, to tasks."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], tuple[int, int]] = {}  # part, and its last step or number
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def key(self, event: Mapping[str, Any]) -> TaskKey | None:
        """The task of the event; None for one that has been read before. Steps of a task only grow; if they do not,
        another task of the same number has begun. Events that are numbered say themselves what they belong to."""
        name = named(event)
        number = whole(event.get("number"))
        part, last = self._last.get(name, (0, -1))
        if number is not None:
            if number <= last:
                return None
            self._last[name] = part, number
            return TaskKey(name[0], name[1], 0, *name[2:])
        if self._is_known(event, name):
            return None
        if event["step"] <= last:
            part += 1
        self._last[name] = part, event["step"]
        return TaskKey(name[0], name[1], part, *name[2:])

    def _is_known(self, event: Mapping[str, Any], name: tuple[Any, ...]) -> bool:
        parts = [name, event["step"], *(event.get(field) for field in ("rejected", "resampled", "pre_masking"))]
        mark = hashlib.blake2b(json.dumps(parts, default=str).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if mark in self._seen:
            return True
        self._seen[mark] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return False


def named(event: Mapping[str, Any]) -> tuple[int | None, int | None, str, int]:
    """(task, slot, request, output) of an event, or of the note of a run's end."""
    request = event.get("request_id")
    return (
        whole(event.get("task_id")),
        whole(event.get("slot_id")),
        request if isinstance(request, str) else "",
        whole(event.get("output")) or 0,
    )


def named_tasks(keys: Iterable[TaskKey | str]) -> str:
    every = [str(key) for key in keys]
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    return ", ".join(every[:MAX_NAMED]) + more if every else "no task"
