"""Find the task of a rejection log that a reply belongs to, or say that none is certain.

A log holds the rejections of many requests. The link is the request's id where both sides have it, then the task where
it is known; otherwise tasks are compared with the reply. A task that contradicts it is out; one that agrees is taken
only if that is unlikely by chance, and unlikely for another request with the same prompt or the same schema. This
module reads no file, and holds a few numbers for each task of the log.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from espalier.errors import EspalierError, InputError
from espalier.trace.foreign.coverage import Coverage
from espalier.trace.foreign.evidence import Compared, Evidence
from espalier.trace.foreign.responses import whole

MAX_NAMED = 8
ENOUGH = 8.0
"""Bits by which a task must agree with a reply: 1 in 256 by chance."""
UNSHARED = 12.0
"""Bits by which the agreement must be unlikely for another request with the same prompt: 1 in 4,096."""
APART = 8.0
"""Bits by which the best task must lead."""
KEPT = 256
"""Agreeing events whose place is kept for each task, to see what several tasks have in common."""
MOST_STEPS = 16_384
"""Events whose step is kept for each task."""
REMEMBERED = 4096
"""Events that are remembered, so that one that stands twice counts once."""
How = Literal["request", "task", "fit", "none"]


class MatchError(InputError):
    """The task of the log that the response belongs to cannot be determined."""


class Unmatched(EspalierError):
    """Nothing of the log belongs to the response."""


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
            self._last[name] = 0, number
            return TaskKey(name[0], name[1], 0, *name[2:])
        if self._is_known(event, name):
            return None
        if event["step"] <= last:
            part += 1
        self._last[name] = part, event["step"]
        return TaskKey(name[0], name[1], part, *name[2:])

    def _is_known(self, event: Mapping[str, Any], name: tuple[Any, ...]) -> bool:
        parts = [name, event["step"], *(event.get(one) for one in ("rejected", "resampled", "pre_masking"))]
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


@dataclass(slots=True)
class TaskFit:
    """How a task fits the reply: its events, and how many agree, by what; same_token: how many reject the very token
    that the reply proves to have been rejected. first_conflict: the first contradiction, ""
    without one. bits: what the agreement is worth. drawn: bits that another request with the same prompt would have
    needed to draw the same tokens at these events. last: the last step that agrees. tokens: how many the run had, if
    the log says."""

    coverage: Coverage = field(default_factory=Coverage)
    events: int = 0
    by_id: int = 0
    by_text: int = 0
    by_probability: int = 0
    proven: int = 0
    same_token: int = 0
    conflicts: int = 0
    first_conflict: str = ""
    bits: float = 0.0
    drawn: float = 0.0
    last: int = -1
    tokens: int | None = None
    agreed: list[tuple[tuple[int, Any], float]] = field(default_factory=list)
    steps: set[int] = field(default_factory=set)

    @property
    def agrees(self) -> bool:
        return self.last >= 0 and not self.conflicts

    def to_json(self) -> dict[str, Any]:
        agree = {"by_id": self.by_id, "by_text": self.by_text, "by_probability": self.by_probability}
        return {"events": self.events, **agree, "proven_by_reply": self.proven, "bits": round(self.bits, 1)}

    def __str__(self) -> str:
        return (
            f"{self.events} events, of which {self.by_id} agree by id, {self.by_text} by text, "
            f"{self.by_probability} by probability, {self.proven} are proven by the response ({self.bits:.1f} bits)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """how: by the request's id, by a task that was named, by a fit, or none. reason: in words."""

    how: How
    reason: str
    key: TaskKey | None = None
    fit: TaskFit | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"by": self.how, "reason": self.reason}
        if self.key is not None:
            found |= {"task_id": self.key.task, "slot_id": self.key.slot}
            found |= {"request_id": self.key.request} if self.key.request else {}
        return found | ({} if self.fit is None else self.fit.to_json())


class Survey:
    """Every task of a log beside one reply. Feed it the events in order with `add` and what the log says of ended runs
    with `end`, then `close`, then `choose`."""

    def __init__(
        self, evidence: Evidence, *, heat: float | None = None, keep: bool = False, is_alone: bool = False
    ) -> None:
        """heat: the temperature of the reply. keep: whether to hold the events, for `events`. is_alone: whether no
        other request with the same prompt can be in this log."""
        self.found: dict[TaskKey, TaskFit] = {}
        self.is_complete = False
        self.is_alone = is_alone
        self._evidence = evidence
        self._tasks = Tasks()
        self._slots: dict[int, TaskKey] = {}
        self._kept: dict[TaskKey, list[Mapping[str, Any]]] | None = {} if keep else None
        self._surprise = evidence.surprise(heat)
        sums = list(accumulate(self._surprise))
        self._sums = sums

    def add(self, event: Mapping[str, Any]) -> None:
        for run in _runs(event.get("ended")):
            self.end(run)
        key = self._tasks.key(event)
        if key is None:
            return
        fit = self.found.setdefault(key, TaskFit())
        if key.slot is not None:
            self._moved_on(key)
        fit.coverage.add(event)
        fit.events += 1
        if len(fit.steps) < MOST_STEPS:
            fit.steps.add(event["step"])
        compared = self._evidence.compare(event)
        if compared.conflict:
            fit.conflicts += 1
            fit.first_conflict = fit.first_conflict or compared.conflict
        elif compared.agrees:
            self._agree(fit, event, compared)
        if self._kept is not None:
            self._kept.setdefault(key, []).append(event)

    def _agree(self, fit: TaskFit, event: Mapping[str, Any], compared: Compared) -> None:
        fit.by_id += compared.by_id
        fit.by_text += compared.by_text
        fit.by_probability += compared.probabilities > 0
        fit.proven += compared.is_proven
        fit.same_token += compared.is_same_token
        fit.bits += compared.bits
        fit.last = max(fit.last, event["step"])
        if compared.drawn is not None and 0 < compared.drawn < 1:
            fit.drawn -= math.log2(compared.drawn)
        if len(fit.agreed) < KEPT:
            taken = event.get("resampled")
            named = (taken.get("id"), taken.get("text")) if isinstance(taken, Mapping) else ()
            fit.agreed.append(((event["step"], json.dumps(named, default=str)), compared.bits))

    def _moved_on(self, key: TaskKey) -> None:
        """A slot does one task at a time: a task of a higher number there means that the one before is over."""
        assert key.slot is not None
        before = self._slots.get(key.slot)
        if before is not None and before != key and before.task is not None and (key.task or -1) > before.task:
            coverage = self.found[before].coverage
            coverage.is_over = coverage.is_over or not coverage.numbered
        self._slots[key.slot] = key

    def end(self, run: Mapping[str, Any]) -> None:
        """What a log of Espalier says of a run that is over."""
        task, slot, request, output = named(run)
        fit = self.found.setdefault(TaskKey(task, slot, 0, request, output), TaskFit())
        fit.coverage.end(run)
        fit.tokens = whole(run.get("steps"))
        length = len(self._evidence.reply.steps)
        # The reply may leave out the token that ends the text.
        is_other = fit.tokens is not None and fit.tokens - length not in (0, 1)
        if is_other and self._evidence.reply.is_whole and not fit.conflicts:
            fit.conflicts += 1
            fit.first_conflict = f"the run had {fit.tokens} tokens, the response has {length}"

    def close(
        self,
        *,
        is_closed: bool,
        is_late: bool = False,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        """The end of the log. is_closed: whether its server closed it. is_late: whether it may have been begun after
        the reply's request. header: its fields beside the events."""
        for run in _runs((header or {}).get("ended")):
            self.end(run)
        for fit in self.found.values():
            fit.coverage.close(is_complete=is_closed, is_late=is_late)
        # A log of Espalier is always closed: it may be a copy from before the request.
        numbered = any(fit.coverage.numbered for fit in self.found.values())
        self.is_complete = is_closed and not is_late and not numbered

    def events(self, key: TaskKey) -> Iterator[Mapping[str, Any]]:
        """The events of a task, if they were kept."""
        return iter((self._kept or {}).get(key, ()))

    def choose(
        self,
        *,
        request: str | None = None,
        own: str | None = None,
        output: int = 0,
        task: int | None = None,
        slot: int | None = None,
        reported_slot: int | None = None,
    ) -> Link:
        """request, task, slot: asked for by the caller. own: the request's name that the reply states. output: the
        index of the choice. reported_slot: the slot that the reply states.

        Raises MatchError if several tasks qualify, and for a request, task or slot that the log does not have.
        """
        if request is not None and own is not None and request != own:
            raise MatchError(f"the response is of request {own!r}, not of {request!r}", field="request")
        wanted = request if request is not None else own
        named = {
            key: fit
            for key, fit in self.found.items()
            if task in (None, key.task) and slot in (None, key.slot) and (request in (None, key.request))
        }
        if (task is not None or slot is not None or request is not None) and not named:
            asked = (
                f"task {task}" if task is not None else f"slot {slot}" if slot is not None else f"request {request!r}"
            )
            raise MatchError(f"the log has no {asked}", hint=f"it has {named_tasks(self.found)}", field="task")
        if wanted is not None and (mine := {key: fit for key, fit in named.items() if key.request == wanted}):
            return self._by_name(mine, "request", f"request {wanted!r}", output)
        if task is not None:
            return self._by_name(named, "task", f"task {task}", output)
        return self._by_fit(named, own, None if slot is not None else reported_slot)

    def _by_name(self, named: Mapping[TaskKey, TaskFit], how: How, what: str, output: int) -> Link:
        fitting = {key: fit for key, fit in named.items() if not fit.conflicts}
        if not fitting:
            (key, fit), *_ = named.items()
            reason = f"{what} does not fit: {fit.conflicts} of its {fit.events} events contradict the response, "
            return Link(how="none", reason=reason + f"the first: {fit.first_conflict}", key=key, fit=fit)
        same = {key: fit for key, fit in fitting.items() if key.output == output}
        ranked = self._ranked(same or fitting)
        if len(ranked) > 1 and ranked[0][1].bits - ranked[1][1].bits < APART:
            raise self._several([key for key, _ in ranked], what)
        key, fit = ranked[0]
        return Link(how=how, reason=f"by {'its' if how == 'request' else 'the'} {what}", key=key, fit=fit)

    def _by_fit(self, named: Mapping[TaskKey, TaskFit], own: str | None, slot: int | None) -> Link:
        if own is not None:  # events of other requests are not this one's
            named = {key: fit for key, fit in named.items() if not key.request}
        if slot is not None:
            named = {key: fit for key, fit in named.items() if key.request or key.slot in (None, slot)}
        agreeing = {key: fit for key, fit in named.items() if fit.agrees}
        if not agreeing:
            fits = [fit for fit in named.values() if fit.events]
            if not fits:
                return Link(how="none", reason="the log has no events that could be this response's")
            first = next((fit.first_conflict for fit in fits if fit.conflicts), "")
            found = f"; the first: {first}" if first else ""
            return Link(how="none", reason=f"none of the log's {len(fits)} tasks agrees with the response{found}")
        ranked = self._ranked(agreeing)
        key, fit = ranked[0]
        rivals = [one for one, other in named.items() if one != key and self._is_rival(other, fit)]
        if rivals and fit.bits >= ENOUGH:
            raise self._several([key, *rivals], "this response")
        common = Counter(mark for other in agreeing.values() for mark, _ in other.agreed)
        if not self._is_enough(fit, common):
            reason = f"{key} does not contradict the response, which is not enough: {fit}"
            return Link(how="none", reason=reason, key=key, fit=fit)
        return Link(how="fit", reason=f"{key} fits: {fit}", key=key, fit=fit)

    def _ranked(self, fits: Mapping[TaskKey, TaskFit]) -> list[tuple[TaskKey, TaskFit]]:
        return sorted(fits.items(), key=lambda one: -one[1].bits)

    def _is_rival(self, other: TaskFit, best: TaskFit) -> bool:
        """Whether the reply may as well be of another task: it does not contradict it, and that it has no events where
        the best has some is no proof against it."""
        if other.conflicts or not other.events:
            return False
        if other.bits >= ENOUGH and not best.by_probability and not best.same_token:
            return True  # by their tokens alone, requests with one schema are much alike
        if self.is_complete or (other.coverage.numbered and not other.coverage.gaps):
            only = [step for step in best.steps - other.steps if step < len(self._surprise)]
            if math.fsum(self._surprise[step] for step in only) >= UNSHARED:
                return False
            return not any(self._evidence.proves(step) for step in only)
        return other.bits > best.bits - APART or other.by_probability > 0 or len(other.agreed) < min(other.events, KEPT)

    def _is_enough(self, fit: TaskFit, common: Mapping[tuple[int, Any], int]) -> bool:
        """Whether chance, another request with the same schema, and one with the same prompt are unlikely. What another
        task of the log has in common counts for nothing."""
        shared = math.fsum(bits for mark, bits in fit.agreed if common[mark] > 1)
        if fit.bits - shared < ENOUGH:
            return False
        if self.is_alone or fit.same_token or fit.drawn >= UNSHARED:
            return True
        # Had this output no events, each token was a first draw; where events may be lost, nothing follows.
        return self.is_complete and (fit.proven > 0 or self._sums[min(fit.last, len(self._sums) - 1)] >= UNSHARED)

    def _several(self, keys: Sequence[TaskKey], what: str) -> MatchError:
        return MatchError(
            f"{len(keys)} tasks of the log fit {what}: {named_tasks(keys)}",
            hint="say which with --task, --slot or --request",
            field="task",
        )


def named_tasks(keys: Iterable[TaskKey]) -> str:
    every = [str(key) for key in keys]
    more = f" and {len(every) - MAX_NAMED} more" if len(every) > MAX_NAMED else ""
    return ", ".join(every[:MAX_NAMED]) + more if every else "no task"


def _runs(data: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in data if isinstance(one, Mapping)) if isinstance(data, list) else iter(())
