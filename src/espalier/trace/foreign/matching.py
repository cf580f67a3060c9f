"""Find the task of a rejection log that a response belongs to.

A log holds the rejections of many requests, and a response does not name its task. Both know the tokens taken at each
step, and perhaps the slot. A wrong match would show another request's rejections, so an uncertain one is refused. This
module reads no file; the log is read twice and never held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.errors import InputError
from espalier.trace.foreign.responses import ApiStep, spelled_bytes

MAX_NAMED = 8
LOST = "\ufffd".encode()
"""The bytes that llama-server gives for a part of a character: they carry no information."""


class MatchError(InputError):
    """The task of the log that the response belongs to cannot be determined."""


class TaskKey(NamedTuple):
    """part: a restarted server counts its tasks from the start again; the second task of a number is part 1."""

    task: int | None
    slot: int | None
    part: int = 0

    def __str__(self) -> str:
        again = f", part {self.part + 1}" if self.part else ""
        return f"task {self.task} (slot {self.slot}{again})"


@dataclass(slots=True)
class TaskFit:
    """How a task fits the response. last: its last step. events: how many it has; wrong: how many do not fit."""

    last: int = -1
    events: int = 0
    wrong: int = 0
    first_wrong: str = ""


class Tasks:
    """Assigns the events of a log, read in order, to tasks."""

    def __init__(self) -> None:
        self._last: dict[tuple[int | None, int | None], tuple[int, int]] = {}  # part, and its last step

    def key(self, event: Mapping[str, Any]) -> TaskKey:
        """The task of the event. Steps of a task only grow; if they do not, another task of the same number has
        begun."""
        name = _whole(event.get("task_id")), _whole(event.get("slot_id"))
        part, last = self._last.get(name, (0, -1))
        if event["step"] <= last:
            part += 1
        self._last[name] = part, event["step"]
        return TaskKey(*name, part)


def try_all(events: Iterable[Mapping[str, Any]], steps: Sequence[ApiStep]) -> dict[TaskKey, TaskFit]:
    """Every task of a log, and how well its events fit the tokens of a response."""
    tasks, found = Tasks(), dict[TaskKey, TaskFit]()
    for event in events:
        fit = found.setdefault(tasks.key(event), TaskFit())
        fit.events += 1
        fit.last = event["step"]
        fault = misfit(event, steps)
        if fault:
            fit.wrong += 1
            fit.first_wrong = fit.first_wrong or fault
    return found


def misfit(event: Mapping[str, Any], steps: Sequence[ApiStep]) -> str:
    """Why an event cannot belong to this response, "" if it can: its step must exist, and the token drawn again must be
    the response's token there."""
    step = event["step"]
    if not 0 <= step < len(steps):
        return f"step {step} is beyond the {len(steps)} tokens of the response"
    taken, reported = event.get("resampled"), steps[step]
    if not isinstance(taken, Mapping):
        return f"step {step} does not say what was drawn again"
    if reported.id is not None and _whole(taken.get("id")) is not None:
        return (
            ""
            if taken["id"] == reported.id
            else f"step {step} took token {taken['id']}, the response has {reported.id}"
        )
    same = taken.get("text") == reported.text
    exact = spelled_bytes(taken.get("bytes"))
    if same and exact is not None and reported.bytes is not None and bytes(reported.bytes) != LOST:
        same = exact == reported.bytes  # parts of characters are all shown as U+FFFD
    return "" if same else f"step {step} took {taken.get('text')!r}, the response has {reported.text!r}"


def choose(
    found: Mapping[TaskKey, TaskFit],
    *,
    task: int | None = None,
    slot: int | None = None,
    reported_slot: int | None = None,
) -> tuple[TaskKey | None, list[str]]:
    """The task of a response, None if the log has none for it, and messages for a person.

    task, slot: requested by the caller; a requested task is taken even if it does not fit, with a message.
    reported_slot: the slot that the response names. Raises MatchError if several tasks fit, and for a task or slot that
    the log does not have.
    """
    named = {key: one for key, one in found.items() if task in (None, key.task) and slot in (None, key.slot)}
    if (task is not None or slot is not None) and not named:
        asked = f"task {task}" if task is not None else f"slot {slot}"
        raise MatchError(f"the log has no {asked}", hint=f"it has {named_tasks(found)}", field="task")
    if reported_slot is not None and slot is None and task is None:
        named = {key: one for key, one in named.items() if key.slot in (None, reported_slot)}
    fitting = [key for key, one in named.items() if not one.wrong]
    if len(fitting) == 1:
        return fitting[0], []
    if len(fitting) > 1:
        raise MatchError(
            f"{len(fitting)} tasks of the log fit this response: {named_tasks(fitting)}",
            hint="say which with --task or --slot",
            field="task",
        )
    if task is None:
        return None, []
    if len(named) > 1:
        raise MatchError(f"{named_tasks(named)} have that number", hint="say which with --slot", field="task")
    (key, one), *_ = named.items()
    return key, [f"{key} does not fit: {one.wrong} of its {one.events} events, the first: {one.first_wrong}"]


def named_tasks(keys: Iterable[TaskKey]) -> str:
    every = [str(key) for key in keys]
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    return ", ".join(every[:MAX_NAMED]) + more if every else "no task"


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
