"""Merge a response and a rejection log into the combined form of the rejection tracer, field by field.

The model's side of a step comes from the response, rejections come from the log, or without a log from an estimate that
is marked as such. The log is read twice, and never held in memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.files.limits import LOG, REPLY
from espalier.files.reading import open_file
from espalier.files.reading import read_bytes as read_file
from espalier.trace.files import json_text, write_text
from espalier.trace.foreign.estimate import Estimate, estimates
from espalier.trace.foreign.log_reader import STAGES, LogReader
from espalier.trace.foreign.matching import MatchError, TaskKey, Tasks, choose, misfit, try_all
from espalier.trace.foreign.responses import ApiChoice, ApiStep, Response, read_response

NO_REJECTION = "no rejection: the first token that was sampled was accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """data: the combined form, plain JSON. warnings: messages for a person. task: the log's task, None if the log has
    none for this response."""

    data: dict[str, Any]
    warnings: tuple[str, ...] = ()
    task: TaskKey | None = None


OpenLog = Callable[[], LogReader]


def merge(
    response: Response,
    log: OpenLog,
    *,
    choice: int = 0,
    task: int | None = None,
    slot: int | None = None,
) -> Combined:
    """log: starts reading the log anew at each call. choice: index in the response. task, slot: in the log, if known.

    Raises MatchError if several tasks fit, ResponseError, LogError, InputError.
    """
    chosen = response.choice(choice)
    steps = chosen.steps or ()
    read = log()
    found = try_all(read, steps)
    key, warnings = choose(found, task=task, slot=slot, reported_slot=response.slot)
    if key is None and found:
        warnings += _without_task(response, steps, found=len(found))
    events: dict[int, Mapping[str, Any]] = {}
    if key is not None:
        events = {event["step"]: event for event in _events_of(log(), key) if 0 <= event["step"] < len(steps)}
        strange = [event for event in events.values() if misfit(event, steps)]
        warnings += [f"step {event['step']} of the log is not this response's" for event in strange]
    many = len(response.choices)
    if many > 1:
        warnings.append(f"the response has {many} choices; this is choice {choice}")
    sampled = [_sampled(events.get(place)) for place in range(len(steps))]
    metadata = {"rejection_log_version": read.log_version, "rejection_log_timestamp": read.timestamp}
    data = _combined(response, chosen, sampled, metadata)
    return Combined(data=data, warnings=tuple(warnings), task=key)


def estimate(response: Response, *, choice: int = 0, temperature: float | None = None) -> Combined:
    """The combined form without a log: what the response alone proves, marked as estimated. Raises as `estimates`."""
    chosen = response.choice(choice)
    found = estimates(response, chosen.steps or (), temperature=temperature)
    sampled = [_estimated(one) for one in found]
    data = _combined(response, chosen, sampled, {"estimated": True})
    unknown = sum(one.verdict == "unknown" for one in found)
    data["summary"] |= {"estimated": True, "unknown_steps": unknown}
    warnings = ["rejections are estimated from the response alone"]
    if unknown:
        warnings.append(f"of {unknown} of {len(found)} steps it cannot be told whether a token was rejected")
    return Combined(data=data, warnings=tuple(warnings))


def merge_files(
    response: str | os.PathLike[str],
    log: str | os.PathLike[str],
    *,
    choice: int = 0,
    task: int | None = None,
    slot: int | None = None,
) -> Combined:
    """As `merge`, from files. Raises InputError naming a file that cannot be read."""
    read = read_response(read_bytes(response))
    with open_file(log, LOG) as file:

        def begin() -> LogReader:
            file.seek(0)
            return LogReader(file)

        return merge(read, begin, choice=choice, task=task, slot=slot)


def save(combined: Combined, path: str | os.PathLike[str]) -> None:
    """Write JSON with an indent of 2, whole or not at all. Raises OutputError naming the path."""
    write_text(path, text_of(combined))


def text_of(combined: Combined) -> str:
    """The text that `save` writes: characters unescaped, infinities and NaN as null."""
    return json_text(combined.data, indent=2)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a reply's file. Raises InputError naming it, TooLarge."""
    return read_file(path, REPLY)


def _events_of(events: Iterable[dict[str, Any]], key: TaskKey) -> Iterator[dict[str, Any]]:
    tasks = Tasks()
    return (event for event in events if tasks.key(event) == key)


def _without_task(response: Response, steps: Sequence[ApiStep], *, found: int) -> list[str]:
    """The warnings if no task fits: fine for a response without rejections. Raises MatchError if its probabilities
    prove some."""
    sure = 0
    if not any(one.after for one in steps):
        sure = sum(one.verdict == "rejected" for one in estimates(response, steps))
    if sure:
        raise MatchError(
            f"none of the log's {found} tasks fits this response, which shows {sure} rejected steps",
            hint="is it the right log? --task takes one all the same, --estimate none",
            field="log",
        )
    return [f"none of the log's {found} tasks fits: taken as a response without rejections"]


def _sampled(event: Mapping[str, Any] | None) -> dict[str, Any]:
    if event is None:
        return {"was_rejected": False, "note": NO_REJECTION}
    known = ("task_id", "slot_id", "was_rejected", "rejected", *STAGES, "resampled")
    rest = {name: value for name, value in event.items() if name not in known and name != "step"}
    return {
        "task_id": event.get("task_id"),
        "slot_id": event.get("slot_id"),
        "was_rejected": True,
        "rejected": event.get("rejected"),
        **{name: event.get(name) or [] for name in STAGES},
        "resampled": event.get("resampled"),
        **rest,
    }


def _estimated(one: Estimate) -> dict[str, Any]:
    bounds = {"lower": one.lower, "upper": one.upper}
    estimated = {"estimated": True, "verdict": one.verdict, "removed_mass": bounds, "note": one.why}
    if one.verdict != "rejected":
        return {"was_rejected": False, **estimated}
    first = None if one.rejected is None else {
        "id": one.rejected.get("id"),
        "text": one.rejected.get("token"),
        "prob": math.exp(one.rejected["logprob"]),
    }  # fmt: skip
    return {"was_rejected": True, "rejected": first, **{name: [] for name in STAGES}, "resampled": None, **estimated}


def _combined(
    response: Response, choice: ApiChoice, sampled: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    steps = choice.steps or ()
    rejected = sum(bool(one["was_rejected"]) for one in sampled)
    after = {"post_sampling_probs": True} if any(one.after for one in steps) else {}
    return {
        "metadata": {
            "request_id": response.request_id,
            "model": response.model,
            "created": response.created,
            **metadata,
            **after,
        },
        "steps": [
            {
                "step": place,
                "token": {
                    "id": one.id,
                    "text": one.text,
                    "bytes": None if one.bytes is None else list(one.bytes),
                    "logprob": one.logprob,
                },
                "api_top_logprobs": [dict(candidate) for candidate in one.top],
                "rejection_sampling": dict(sampled[place]),
            }
            for place, one in enumerate(steps)
        ],
        "summary": {
            "total_steps": len(steps),
            "rejected_steps": rejected,
            "rejection_rate": rejected / len(steps) if steps else 0.0,
            "final_output": choice.text,
        },
    }
