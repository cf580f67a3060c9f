"""Merge a response and a rejection log into the combined form of the rejection tracer, field by field.

The model's side of a step comes from the response, rejections come from the log, or without a log from an estimate that
is marked as such. A step at which neither says anything is `unknown`. The log is read twice, and never held in memory.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from espalier.errors import InputError
from espalier.files.limits import LOG, REPLY
from espalier.files.reading import open_file
from espalier.files.reading import read_bytes as read_file
from espalier.trace.files import json_text, write_text
from espalier.trace.foreign.estimate import Estimate, estimates
from espalier.trace.foreign.evidence import Evidence
from espalier.trace.foreign.log_reader import STAGES, LogReader
from espalier.trace.foreign.matching import LogLink, Survey, Unmatched
from espalier.trace.foreign.placing import GAP, PlacedSequence, placed
from espalier.trace.foreign.responses import ApiChoice, ApiStep, Response, read_response, whole
from espalier.trace.foreign.tasks import TaskKey, Tasks

NO_REJECTION = "no rejection: the first token that was sampled was accepted"
NOT_COVERED = "unknown: the log does not cover this step"
DIFFERENT = "unknown: the tasks that this response may be of differ here"
NO_LINK = "unknown: nothing of the log is known to belong to this response"
CONTRADICTED = "unknown: the response shows a rejection here, and the log has none"
UNPLACED = "unknown: the response leaves out tokens, so that this step's place is not certain"
LONGEST = 600.0
"""Seconds that a response may have taken if it does not say."""
_MERGED = re.compile(rb'\s*\{\s*"metadata"\s*:\s*\{\s*"request_id"')
OWN = "espalier-"
"""The log_version of Espalier's logs begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedTrace:
    """data: the combined form, plain JSON. warnings: messages for a person. link: how the log was linked to the
    response; None for an estimate."""

    data: dict[str, Any]
    warnings: tuple[str, ...] = ()
    link: LogLink | None = None

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
        key = self.link.key
        forced = "" if key is None or key.task is None else f"--task {key.task} --force takes it all the same; "
        raise Unmatched(
            f"unmatched, and nothing is written: {self.link.reason}", hint=f"{forced}--estimate does without a log"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySide:
    """The reply's side of a merge: its tokens, what it proves of them alone, and its temperature."""

    response: Response
    choice: ApiChoice
    reply: PlacedSequence
    estimates: Sequence[Estimate] | None
    heat: float | None

    @staticmethod
    def of(response: Response, *, choice: int = 0, temperature: float | None = None) -> ReplySide:
        """temperature: if the reply does not tell it. Raises ResponseError."""
        chosen = response.choice(choice, is_bare=True)
        reply = placed(chosen)
        estimated = None
        # The samplers of a server that names its requests are ours, and need not draw before they mask.
        if chosen.steps is not None and response.request is None and not any(step.after for step in reply.steps):
            estimated = estimates(response, reply.steps, temperature=temperature)
        heat = response.temperature if temperature is None else temperature
        return ReplySide(response=response, choice=chosen, reply=reply, estimates=estimated, heat=heat)

    def reaching(self, last: int) -> ReplySide:
        """These, with a step for each token up to `last` where the reply itself does not tell how many it has."""
        if not self.is_bare or self.reply.is_whole:
            return self
        reply = self.reply
        more = last + 1 - len(reply.steps)
        longer = replace(reply, steps=reply.steps + (GAP,) * more, sure=reply.sure + (True,) * more)
        return replace(self, reply=longer)

    @property
    def is_bare(self) -> bool:
        """Whether the reply has no log probabilities, so that only the log knows tokens."""
        return self.choice.steps is None

    def survey(self, *, log_version: str = "", keep: bool = False, is_alone: bool = False) -> Survey:
        """A survey of a log beside this reply. keep, is_alone: as in `Survey`."""
        text = None
        if self.is_bare:
            text = self.choice.reasoning + self.choice.text if self.choice.has_text else ""
        evidence = Evidence(self.reply, self.estimates, is_exact=log_version.startswith(OWN), text=text)
        return Survey(evidence, heat=self.heat, keep=keep, is_alone=is_alone, is_finished=self.choice.is_finished)


OpenLog = Callable[[], LogReader]


def merge(
    response: Response,
    log: OpenLog,
    *,
    choice: int = 0,
    request: str | None = None,
    task: int | None = None,
    slot: int | None = None,
    most_recent: bool = False,
    force: bool = False,
    temperature: float | None = None,
) -> CombinedTrace:
    """log: starts reading the log anew at each call. choice: index in the response. request, task, slot: in the log, if
    known. most_recent, force: as in `Survey.choose`. temperature: of the reply, if it does not tell. Without a link
    every step is unknown, and `is_matched` is false. A reply without log probabilities is merged from the log alone.

    Raises MatchError if several tasks fit, ResponseError, LogError, InputError.
    """
    sides = ReplySide.of(response, choice=choice, temperature=temperature)
    read = log()
    events = iter(read)
    first = next(events, None)  # the version is read by then
    survey = sides.survey(log_version=read.log_version)
    if first is not None:
        survey.add(first)
    for event in events:
        survey.add(event)
    begun = _begin_time(read.timestamp)
    survey.close(
        is_closed=read.is_closed,
        is_cut=read.is_cut,
        has_begun=read.offset > 0,
        header=read.header,
        is_late=_is_late(response, begun),
        is_after=_is_after(response, begun),
    )
    link = survey.choose(
        request=request,
        own=response.request,
        output=choice,
        task=response.task if task is None and request is None and slot is None else task,
        slot=slot,
        reported_slot=response.slot,
        most_recent=most_recent,
        force=force,
    )
    mine = [] if link.how == "none" or link.key is None else _events_of(log(), link.key)
    return combined(sides, link, mine, log_version=read.log_version, timestamp=read.timestamp)


def combined(
    sides: ReplySide, link: LogLink, events: Iterable[Mapping[str, Any]], *, log_version: str, timestamp: str
) -> CombinedTrace:
    """The combined form of a reply and of the events of the task that it is linked to."""
    by_step = {event["step"]: event for event in events}
    sides = sides.reaching(max(by_step, default=-1))
    sampled = [_log_fields(sides, link, position, by_step.get(position)) for position in range(len(sides.reply.steps))]
    warnings = [] if link.how != "none" else [link.reason]
    if sides.is_bare:
        warnings.append("the response has no log probabilities: its tokens are known only where the log has events")
    many = len(sides.response.choices)
    if many > 1:
        warnings.append(f"the response has {many} choices; this is choice {sides.choice.index}")
    metadata = {"rejection_log_version": log_version, "rejection_log_timestamp": timestamp, "link": link.to_json()}
    if sides.is_bare:
        metadata["note"] = warnings[-1]
    data = _combine_sides(sides, sampled, metadata, by_step)
    unknown = data["summary"]["unknown_steps"]
    if unknown and link.how != "none":
        warnings.append(f"of {unknown} of {len(sampled)} steps the log does not say whether a token was rejected")
    return CombinedTrace(data=data, warnings=tuple(warnings), link=link)


def estimate(response: Response, *, choice: int = 0, temperature: float | None = None) -> CombinedTrace:
    """The combined form without a log: what the response alone proves, marked as estimated. Raises as `estimates`."""
    chosen = response.choice(choice)
    reply = placed(chosen)
    estimated = estimates(response, reply.steps, temperature=temperature)
    sides = ReplySide(response=response, choice=chosen, reply=reply, estimates=estimated, heat=temperature)
    sampled = [_estimate_fields(step) for step in estimated]
    data = _combine_sides(sides, sampled, {"estimated": True})
    data["summary"] |= {"estimated": True}
    unknown = data["summary"]["unknown_steps"]
    warnings = ["rejections are estimated from the response alone"]
    if unknown:
        warnings.append(f"of {unknown} of {len(estimated)} steps it cannot be told whether a token was rejected")
    return CombinedTrace(data=data, warnings=tuple(warnings))


def merge_files(response: str | os.PathLike[str], log: str | os.PathLike[str], **options: Any) -> CombinedTrace:
    """As `merge`, from files, each read once: a pipe will do. Raises InputError naming a file that cannot be read."""
    read = read_response(read_bytes(response))
    with open_file(log, LOG) as file:

        def begin() -> LogReader:
            file.seek(0)
            return LogReader(file)

        return merge(read, begin, **options)


def check_target(target: str, inputs: Sequence[str], *, force: bool, is_own_free: bool = False) -> None:
    """Before anything is read: a file that is there is overwritten only by force, and an input never, whatever it is
    called. is_own_free: whether an earlier output of a merge may be overwritten without. `-` is stdout. Raises
    InputError."""
    if target == "-" or not os.path.exists(target):
        return
    for path in inputs:
        if os.path.exists(path) and os.path.samefile(target, path):
            raise InputError(f"{target} is one of the files to merge, and is not overwritten", field="out")
    if not force and stat.S_ISREG(os.stat(target).st_mode) and not (is_own_free and _is_merged(target)):
        raise InputError(f"{target} exists already", hint="--force overwrites it; or name another OUT", field="out")


def _is_merged(path: str) -> bool:
    """Whether the file begins as `save` and the tracer's own script begin theirs."""
    with open(path, "rb") as file:
        return _MERGED.match(file.read(200)) is not None


def save(combined: CombinedTrace, path: str | os.PathLike[str]) -> None:
    """Write JSON with an indent of 2, whole or not at all. Raises OutputError naming the path."""
    write_text(path, text_of(combined))


def text_of(combined: CombinedTrace) -> str:
    """The text that `save` writes: characters unescaped, infinities and NaN as null."""
    return json_text(combined.data, indent=2)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a reply's file. Raises InputError naming it, TooLarge."""
    return read_file(path, REPLY)


def _events_of(events: Iterable[dict[str, Any]], key: TaskKey) -> list[dict[str, Any]]:
    tasks = Tasks()
    return [event for event in events if tasks.key(event) == key]


def _begin_time(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _is_late(response: Response, begun: float | None) -> bool:
    """Whether the log may have been begun after the response's request, as far as both tell the time."""
    return begun is not None and response.created > 0 and begun > response.created - (response.seconds or LONGEST) - 1


def _is_after(response: Response, begun: float | None) -> bool:
    """Whether the log was begun after the response had ended, whichever end of it `created` is."""
    return begun is not None and response.created > 0 and begun > response.created + (response.seconds or LONGEST) + 2


def _log_fields(sides: ReplySide, link: LogLink, position: int, event: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the log says of one step."""
    if link.how == "none" or link.fit is None:
        return _unknown(NO_LINK)
    if not sides.reply.sure[position]:
        return _unknown(UNPLACED)
    if event is not None:
        conflict = Evidence(sides.reply, None).compare(event).conflict if link.how == "forced" else ""
        return _rejected_fields(event) | ({"note": f"taken by force: {conflict}"} if conflict else {})
    if not link.fit.coverage.knows(position):
        return _unknown(DIFFERENT if link.how == "shared" else NOT_COVERED)
    if sides.estimates is not None and sides.estimates[position].verdict == "rejected":
        return _unknown(CONTRADICTED)
    return {"was_rejected": False, "note": NO_REJECTION}


def _unknown(note: str) -> dict[str, Any]:
    return {"was_rejected": None, "verdict": "unknown", "note": note}


def _rejected_fields(event: Mapping[str, Any]) -> dict[str, Any]:
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


def _estimate_fields(step: Estimate) -> dict[str, Any]:
    bounds = {"lower": step.lower, "upper": step.upper}
    estimated = {"estimated": True, "verdict": step.verdict, "removed_mass": bounds, "note": step.why}
    if step.verdict != "rejected":
        return {"was_rejected": False if step.verdict == "accepted" else None, **estimated}
    first = (
        None
        if step.rejected is None
        else {
            "id": step.rejected.get("id"),
            "text": step.rejected.get("token"),
            "prob": math.exp(step.rejected["logprob"]),
        }
    )
    return {"was_rejected": True, "rejected": first, **{name: [] for name in STAGES}, "resampled": None, **estimated}


def _combine_sides(
    sides: ReplySide,
    sampled: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any],
    events: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    response, steps = sides.response, sides.reply.steps
    rejected = sum(step["was_rejected"] is True for step in sampled)
    accepted = sum(step["was_rejected"] is False for step in sampled)
    after = {"post_sampling_probs": True} if any(step.after for step in steps) else {}
    return {
        "metadata": {
            "request_id": response.request_id,
            "model": response.model,
            "created": response.created,
            **metadata,
            **after,
        },
        "steps": [
            _step(position, step, sampled[position], events.get(position)) for position, step in enumerate(steps)
        ],
        "summary": {
            "total_steps": len(steps),
            "rejected_steps": rejected,
            "rejection_rate": rejected / (rejected + accepted) if rejected + accepted else None,
            "final_output": sides.choice.text,
            "accepted_steps": accepted,
            "unknown_steps": len(steps) - rejected - accepted,
        },
    }


def _step(position: int, step: ApiStep, sampled: Mapping[str, Any], event: Mapping[str, Any] | None) -> dict[str, Any]:
    token: dict[str, Any] = {
        "id": step.id,
        "text": step.text,
        "bytes": None if step.bytes is None else list(step.bytes),
        "logprob": step.logprob,
    }
    resampled = None if event is None else event.get("resampled")
    if isinstance(resampled, Mapping) and sampled["was_rejected"]:
        if step.id is None:
            token["id"] = whole(resampled.get("id"))
        if step.is_missing and isinstance(resampled.get("text"), str):
            token["text"] = resampled["text"]
    return {
        "step": position,
        "token": token | ({"is_missing": True} if step.is_missing else {}),
        "api_top_logprobs": [dict(candidate) for candidate in step.top],
        "rejection_sampling": dict(sampled),
    }
