"""Merge a response and a rejection log into the combined form of the rejection tracer, field by field.

The model's side of a step comes from the response, rejections come from the log, or without a log from an estimate that
is marked as such. A step at which neither says anything is `unknown`. The log is read twice, and never held in memory.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from espalier.errors import InputError
from espalier.files.limits import LOG, REPLY
from espalier.files.reading import open_file
from espalier.files.reading import read_bytes as read_file
from espalier.trace.files import json_text, write_text
from espalier.trace.foreign.estimate import Estimate, estimates
from espalier.trace.foreign.evidence import Evidence
from espalier.trace.foreign.log_reader import STAGES, LogReader
from espalier.trace.foreign.matching import Link, Survey, TaskKey, Tasks, Unmatched
from espalier.trace.foreign.placing import Placed, placed
from espalier.trace.foreign.responses import ApiChoice, ApiStep, Response, read_response

NO_REJECTION = "no rejection: the first token that was sampled was accepted"
NOT_COVERED = "unknown: the log does not cover this step"
NO_LINK = "unknown: nothing of the log is known to belong to this response"
CONTRADICTED = "unknown: the response shows a rejection here, and the log has none"
UNPLACED = "unknown: the response leaves out tokens, so that this step's place is not certain"
LONGEST = 600.0
"""Seconds that a response may have taken if it does not say."""
OWN = "espalier-"
"""The log_version of Espalier's logs begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """data: the combined form, plain JSON. warnings: messages for a person. link: how the log was linked to the
    response; None for an estimate."""

    data: dict[str, Any]
    warnings: tuple[str, ...] = ()
    link: Link | None = None

    @property
    def task(self) -> TaskKey | None:
        """The log's task, None if none is known to be this response's."""
        return None if self.link is None or self.link.how == "none" else self.link.key

    @property
    def is_matched(self) -> bool:
        return self.link is None or self.link.how != "none"

    def check(self) -> None:
        """Raises Unmatched if nothing of the log is known to belong to the response."""
        if self.link is None or self.is_matched:
            return
        task = "" if self.link.key is None or self.link.key.task is None else f"--task {self.link.key.task} takes it; "
        raise Unmatched(
            f"unmatched, and nothing is written: {self.link.reason}", hint=f"{task}--estimate does without a log"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The reply's side of a merge: its tokens, what it proves of them alone, and its temperature."""

    response: Response
    choice: ApiChoice
    reply: Placed
    estimates: Sequence[Estimate] | None
    heat: float | None

    @staticmethod
    def of(response: Response, *, choice: int = 0, temperature: float | None = None) -> Sides:
        """temperature: if the reply does not tell it. Raises ResponseError."""
        chosen = response.choice(choice)
        reply = placed(chosen)
        found = None
        # The samplers of a server that names its requests are ours, and need not draw before they mask.
        if response.request is None and not any(one.after for one in reply.steps):
            found = estimates(response, reply.steps, temperature=temperature)
        heat = response.temperature if temperature is None else temperature
        return Sides(response=response, choice=chosen, reply=reply, estimates=found, heat=heat)

    def survey(self, *, log_version: str = "", keep: bool = False, is_alone: bool = False) -> Survey:
        """A survey of a log beside this reply. keep, is_alone: as in `Survey`."""
        evidence = Evidence(self.reply, self.estimates, is_exact=log_version.startswith(OWN))
        return Survey(evidence, heat=self.heat, keep=keep, is_alone=is_alone)


OpenLog = Callable[[], LogReader]


def merge(
    response: Response,
    log: OpenLog,
    *,
    choice: int = 0,
    request: str | None = None,
    task: int | None = None,
    slot: int | None = None,
    temperature: float | None = None,
) -> Combined:
    """log: starts reading the log anew at each call. choice: index in the response. request, task, slot: in the log, if
    known. temperature: of the reply, if it does not tell. Without a link every step is unknown, and `is_matched` is
    false.

    Raises MatchError if several tasks fit, ResponseError, LogError, InputError.
    """
    sides = Sides.of(response, choice=choice, temperature=temperature)
    read = log()
    events = iter(read)
    first = next(events, None)  # the version is read by then
    survey = sides.survey(log_version=read.log_version)
    if first is not None:
        survey.add(first)
    for event in events:
        survey.add(event)
    late = _is_late(response, read.timestamp)
    survey.close(is_closed=read.is_closed, is_late=late, header=read.header)
    link = survey.choose(
        request=request,
        own=response.request,
        output=choice,
        task=response.task if task is None and request is None and slot is None else task,
        slot=slot,
        reported_slot=response.slot,
    )
    mine = [] if link.how == "none" or link.key is None else _events_of(log(), link.key)
    return combined(sides, link, mine, log_version=read.log_version, timestamp=read.timestamp)


def combined(
    sides: Sides, link: Link, events: Iterable[Mapping[str, Any]], *, log_version: str, timestamp: str
) -> Combined:
    """The combined form of a reply and of the events of the task that it is linked to."""
    by_step = {event["step"]: event for event in events if 0 <= event["step"] < len(sides.reply.steps)}
    sampled = [_sampled(sides, link, place, by_step.get(place)) for place in range(len(sides.reply.steps))]
    warnings = [] if link.how != "none" else [link.reason]
    many = len(sides.response.choices)
    if many > 1:
        warnings.append(f"the response has {many} choices; this is choice {sides.choice.index}")
    metadata = {"rejection_log_version": log_version, "rejection_log_timestamp": timestamp, "link": link.to_json()}
    data = _combined(sides, sampled, metadata)
    unknown = data["summary"]["unknown_steps"]
    if unknown and link.how != "none":
        warnings.append(f"of {unknown} of {len(sampled)} steps the log does not say whether a token was rejected")
    return Combined(data=data, warnings=tuple(warnings), link=link)


def estimate(response: Response, *, choice: int = 0, temperature: float | None = None) -> Combined:
    """The combined form without a log: what the response alone proves, marked as estimated. Raises as `estimates`."""
    chosen = response.choice(choice)
    reply = placed(chosen)
    found = estimates(response, reply.steps, temperature=temperature)
    sides = Sides(response=response, choice=chosen, reply=reply, estimates=found, heat=temperature)
    sampled = [_estimated(one) for one in found]
    data = _combined(sides, sampled, {"estimated": True})
    data["summary"] |= {"estimated": True}
    unknown = data["summary"]["unknown_steps"]
    warnings = ["rejections are estimated from the response alone"]
    if unknown:
        warnings.append(f"of {unknown} of {len(found)} steps it cannot be told whether a token was rejected")
    return Combined(data=data, warnings=tuple(warnings))


def merge_files(response: str | os.PathLike[str], log: str | os.PathLike[str], **options: Any) -> Combined:
    """As `merge`, from files, each read once: a pipe will do. Raises InputError naming a file that cannot be read."""
    read = read_response(read_bytes(response))
    with open_file(log, LOG) as file:

        def begin() -> LogReader:
            file.seek(0)
            return LogReader(file)

        return merge(read, begin, **options)


def check_target(target: str, inputs: Sequence[str], *, force: bool) -> None:
    """Before anything is read: a file that is there is overwritten only by force, and an input never, whatever it is
    called. `-` is stdout. Raises InputError."""
    if target == "-" or not os.path.exists(target):
        return
    for one in inputs:
        if os.path.exists(one) and os.path.samefile(target, one):
            raise InputError(f"{target} is one of the files to merge, and is not overwritten", field="out")
    if not force and stat.S_ISREG(os.stat(target).st_mode):
        raise InputError(f"{target} exists already", hint="--force overwrites it", field="out")


def save(combined: Combined, path: str | os.PathLike[str]) -> None:
    """Write JSON with an indent of 2, whole or not at all. Raises OutputError naming the path."""
    write_text(path, text_of(combined))


def text_of(combined: Combined) -> str:
    """The text that `save` writes: characters unescaped, infinities and NaN as null."""
    return json_text(combined.data, indent=2)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a reply's file. Raises InputError naming it, TooLarge."""
    return read_file(path, REPLY)


def _events_of(events: Iterable[dict[str, Any]], key: TaskKey) -> list[dict[str, Any]]:
    tasks = Tasks()
    return [event for event in events if tasks.key(event) == key]


def _is_late(response: Response, timestamp: str) -> bool:
    """Whether the log may have been begun after the response's request, as far as both tell the time."""
    try:
        begun = datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return False
    return response.created > 0 and begun > response.created - (response.seconds or LONGEST) - 1


def _sampled(sides: Sides, link: Link, place: int, event: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the log says of one step."""
    if link.how == "none" or link.fit is None:
        return _unknown(NO_LINK)
    if not sides.reply.sure[place]:
        return _unknown(UNPLACED)
    if event is not None:
        return _rejected(event)
    if not link.fit.coverage.knows(place):
        return _unknown(NOT_COVERED)
    if sides.estimates is not None and sides.estimates[place].verdict == "rejected":
        return _unknown(CONTRADICTED)
    return {"was_rejected": False, "note": NO_REJECTION}


def _unknown(note: str) -> dict[str, Any]:
    return {"was_rejected": None, "verdict": "unknown", "note": note}


def _rejected(event: Mapping[str, Any]) -> dict[str, Any]:
    known = ("task_id", "slot_id", "was_rejected", "rejected", *STAGES, "resampled")
    internal = ("step", "number", "ended")
    rest = {name: value for name, value in event.items() if name not in (*known, *internal)}
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
        return {"was_rejected": False if one.verdict == "accepted" else None, **estimated}
    first = None if one.rejected is None else {
        "id": one.rejected.get("id"),
        "text": one.rejected.get("token"),
        "prob": math.exp(one.rejected["logprob"]),
    }  # fmt: skip
    return {"was_rejected": True, "rejected": first, **{name: [] for name in STAGES}, "resampled": None, **estimated}


def _combined(sides: Sides, sampled: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> dict[str, Any]:
    response, steps = sides.response, sides.reply.steps
    rejected = sum(one["was_rejected"] is True for one in sampled)
    accepted = sum(one["was_rejected"] is False for one in sampled)
    after = {"post_sampling_probs": True} if any(one.after for one in steps) else {}
    return {
        "metadata": {
            "request_id": response.request_id,
            "model": response.model,
            "created": response.created,
            **metadata,
            **after,
        },
        "steps": [_step(place, one, sampled[place]) for place, one in enumerate(steps)],
        "summary": {
            "total_steps": len(steps),
            "rejected_steps": rejected,
            "rejection_rate": rejected / (rejected + accepted) if rejected + accepted else 0.0,
            "final_output": sides.choice.text,
            "accepted_steps": accepted,
            "unknown_steps": len(steps) - rejected - accepted,
        },
    }


def _step(place: int, one: ApiStep, sampled: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": place,
        "token": {
            "id": one.id,
            "text": one.text,
            "bytes": None if one.bytes is None else list(one.bytes),
            "logprob": one.logprob,
            **({"is_missing": True} if one.is_missing else {}),
        },
        "api_top_logprobs": [dict(candidate) for candidate in one.top],
        "rejection_sampling": dict(sampled),
    }
