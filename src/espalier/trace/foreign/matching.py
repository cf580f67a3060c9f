"""Find the task of a rejection log that a reply belongs to, or say that none is certain.

A log holds the rejections of many requests. The link is the request's id where both sides have it, then the task where
it is known; otherwise tasks are compared with the reply. A task that contradicts it is out; one that agrees is surely
its own if that is unlikely by chance, and unlikely for another request with the same prompt or the same schema. Where
that is not enough, the only task that contradicts nothing is taken and the link is marked as weak; of several, the most
recent one on demand. This module reads no file, and holds a few numbers for each task of the log.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from espalier.errors import EspalierError, InputError
from espalier.trace.foreign.coverage import Coverage
from espalier.trace.foreign.evidence import EventComparison, Evidence
from espalier.trace.foreign.responses import whole
from espalier.trace.foreign.tasks import TaskKey, Tasks, named, named_tasks

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
How = Literal["request", "task", "fit", "only", "recent", "shared", "empty", "forced", "none"]
WEAK: frozenset[How] = frozenset({"only", "recent", "shared", "empty", "forced"})
"""Links that are marked, since another request's task may look the same."""


class MatchError(InputError):
    """The task of the log that the response belongs to cannot be determined. candidates: those that it may be."""

    candidates: tuple[TaskKey, ...] = ()


class Unmatched(EspalierError):
    """Nothing of the log belongs to the response."""


@dataclass(slots=True)
class TaskFit:
    """How a task fits the reply: its events, and how many agree, by what; same_token: how many reject the very token
    that the reply proves to have been rejected. first_conflict: the first contradiction, ""
    without one. bits: what the agreement is worth. drawn: bits that another request with the same prompt would have
    needed to draw the same tokens at these events. last: the last step that agrees. tokens: how many the run had, if
    the log says. latest: the place of its last event in the log. at: how far its tokens were found in the text of a
    reply without log probabilities."""

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
    latest: int = -1
    at: int = 0
    agreed: list[tuple[tuple[int, Any], float]] = field(default_factory=list)
    steps: set[int] = field(default_factory=set)

    @property
    def agrees(self) -> bool:
        return self.last >= 0 and not self.conflicts

    def to_json(self) -> dict[str, Any]:
        agree = {"by_id": self.by_id, "by_text": self.by_text, "by_probability": self.by_probability}
        return {"events": self.events, **agree, "proven_by_reply": self.proven, "bits": round(self.bits, 1)}

    @property
    def worth(self) -> str:
        """The evidence, where it is not enough."""
        return f"evidence{' weak' if self.bits < ENOUGH else ''}: {self.bits:.1f} bits"

    def __str__(self) -> str:
        return (
            f"{self.events} events, of which {self.by_id} agree by id, {self.by_text} by text, "
            f"{self.by_probability} by probability, {self.proven} are proven by the response ({self.bits:.1f} bits)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLink:
    """how: by the request's id, by a task that was named, by a fit, as the only task that contradicts nothing, as the
    most recent of these, by what several have in common, by a log without events, by force, or none. reason: in words.
    candidates: the tasks that it may be, where none was taken."""

    how: How
    reason: str
    key: TaskKey | None = None
    fit: TaskFit | None = None
    candidates: tuple[TaskKey, ...] = ()

    @property
    def is_weak(self) -> bool:
        return self.how in WEAK

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {"by": self.how, "reason": self.reason}
        written |= {"is_weak": True} if self.is_weak else {}
        if self.candidates:
            written["candidates"] = [{"task_id": key.task, "slot_id": key.slot} for key in self.candidates]
        if self.key is not None:
            written |= {"task_id": self.key.task, "slot_id": self.key.slot}
            written |= {"request_id": self.key.request} if self.key.request else {}
        return written | ({} if self.fit is None else self.fit.to_json())


class Survey:
    """Every task of a log beside one reply. Feed it the events in order with `add` and what the log says of ended runs
    with `end`, then `close`, then `choose`."""

    def __init__(
        self,
        evidence: Evidence,
        *,
        heat: float | None = None,
        keep: bool = False,
        is_alone: bool = False,
        is_finished: bool = True,
    ) -> None:
        """heat: the temperature of the reply. keep: whether to hold the events, for `events`. is_alone: whether no
        other request with the same prompt can be in this log. is_finished: whether the reply came to its end."""
        self.found: dict[TaskKey, TaskFit] = {}
        self.is_complete = False
        self.is_alone = is_alone
        self.has_all = self._is_after = False
        self._count = 0
        self._is_finished = is_finished
        self._evidence = evidence
        self._tasks = Tasks()
        self._slots: dict[int, TaskKey] = {}
        self._kept: dict[TaskKey, list[Mapping[str, Any]]] | None = {} if keep else None
        self._surprise = evidence.surprise(heat)
        self._sums = list(accumulate(self._surprise))

    def add(self, event: Mapping[str, Any], key: TaskKey | None = None) -> None:
        """key: the event's task, where the caller has assigned it."""
        for run in _runs(event.get("ended")):
            self.end(run)
        if key is None and (key := self._tasks.key(event)) is None:
            return
        fit = self.found.setdefault(key, TaskFit())
        self._count += 1
        fit.latest = self._count
        if key.slot is not None:
            self._moved_on(key)
        fit.coverage.add(event)
        fit.events += 1
        if len(fit.steps) < MOST_STEPS:
            fit.steps.add(event["step"])
        compared, fit.at = self._evidence.compare_next(event, fit.at)
        if compared.conflict:
            fit.conflicts += 1
            fit.first_conflict = fit.first_conflict or compared.conflict
        elif compared.agrees:
            self._agree(fit, event, compared)
        if self._kept is not None:
            self._kept.setdefault(key, []).append(event)

    def _agree(self, fit: TaskFit, event: Mapping[str, Any], compared: EventComparison) -> None:
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
            resampled = event.get("resampled")
            named = (resampled.get("id"), resampled.get("text")) if isinstance(resampled, Mapping) else ()
            fit.agreed.append(((event["step"], json.dumps(named, default=str)), compared.bits))

    def _moved_on(self, key: TaskKey) -> None:
        """A slot does one task at a time: a task of a higher number there means that the one before is over."""
        assert key.slot is not None
        before = self._slots.get(key.slot)
        if before is not None and before.task is not None and (key.task or -1) > before.task:
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
        is_cut: bool = False,
        is_late: bool = False,
        is_after: bool = False,
        has_begun: bool = True,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        """The end of the log. is_closed: whether its server closed it; is_cut: whether it ends within an event.
        is_late: whether it may have been begun after the reply's request; is_after: whether surely after the reply.
        has_begun: whether its events begin at all. header: its fields beside the events.

        A server writes an event before it sends the token, so that a file that is still open, and not cut, has all
        events of a reply that came to its end."""
        for run in _runs((header or {}).get("ended")):
            self.end(run)
        has_all = is_closed or (has_begun and not is_cut and self._is_finished)
        for fit in self.found.values():
            fit.coverage.close(is_complete=has_all, is_late=is_late)
        self.has_all = has_all and not is_late
        self._is_after = is_after
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
        most_recent: bool = False,
        force: bool = False,
    ) -> LogLink:
        """request, task, slot: asked for by the caller. own: the request's name that the reply states. output: the
        index of the choice. reported_slot: the slot that the reply states. most_recent: of several tasks that
        contradict nothing, whether to take the last. force: whether to take a task that was asked for although it
        contradicts the reply.

        Raises MatchError if several tasks qualify, and for a request, task or slot that the log does not have.
        """
        force = force and (most_recent or (task, slot, request) != (None, None, None))
        if request is not None and own is not None and request != own:
            raise MatchError(f"the response is of request {own!r}, not of {request!r}", field="request")
        wanted = request if request is not None else own
        named = {
            key: fit
            for key, fit in self.found.items()
            if task in (None, key.task) and slot in (None, key.slot) and (request in (None, key.request))
        }
        if (task is not None or slot is not None or request is not None) and not named:
            naming = (
                f"task {task}" if task is not None else f"slot {slot}" if slot is not None else f"request {request!r}"
            )
            raise MatchError(f"the log has no {naming}", hint=f"it has {named_tasks(self.found)}", field="task")
        if wanted is not None and (mine := {key: fit for key, fit in named.items() if key.request == wanted}):
            return self._by_name(mine, "request", f"request {wanted!r}", output, force=force)
        if task is not None:
            return self._by_name(named, "task", f"task {task}", output, force=force)
        rest = self._of_reply(named, own, None if slot is not None else reported_slot)
        return self._by_fit(rest, most_recent) or self._by_elimination(rest, most_recent, force=force)

    def _by_name(self, named: Mapping[TaskKey, TaskFit], how: How, what: str, output: int, *, force: bool) -> LogLink:
        fitting = {key: fit for key, fit in named.items() if not fit.conflicts}
        if not fitting:
            return self._explain_contradiction(named, what, force=force)
        same = {key: fit for key, fit in fitting.items() if key.output == output}
        ranked = self._rank_fits(same or fitting)
        if len(ranked) > 1 and ranked[0][1].bits - ranked[1][1].bits < APART:
            raise self._several([key for key, _ in ranked], what)
        key, fit = ranked[0]
        return LogLink(how=how, reason=f"by {'its' if how == 'request' else 'the'} {what}", key=key, fit=fit)

    def _explain_contradiction(self, named: Mapping[TaskKey, TaskFit], what: str, *, force: bool) -> LogLink:
        key, fit = max(named.items(), key=lambda pair: pair[1].latest)
        count = f"{fit.conflicts} of its {fit.events} events contradict the response"
        reason = f"{what} {'is taken by force' if force else 'does not fit'}: {count}, "
        how: How = "forced" if force else "none"
        return LogLink(how=how, reason=reason + f"the first: {fit.first_conflict}", key=key, fit=fit)

    def _of_reply(
        self, named: Mapping[TaskKey, TaskFit], own: str | None, slot: int | None
    ) -> Mapping[TaskKey, TaskFit]:
        """Without the tasks that are named as another request's or slot's."""
        if own is not None:
            named = {key: fit for key, fit in named.items() if not key.request}
        if slot is not None:
            named = {key: fit for key, fit in named.items() if key.request or key.slot in (None, slot)}
        return named

    def _by_fit(self, named: Mapping[TaskKey, TaskFit], most_recent: bool) -> LogLink | None:
        """The task that fits by more than chance, if there is one."""
        agreeing = {key: fit for key, fit in named.items() if fit.agrees}
        if not agreeing:
            return None
        ranked = self._rank_fits(agreeing)
        key, fit = ranked[0]
        if fit.bits < ENOUGH or self._evidence.text is not None:  # a word in the text is at no certain step
            return None
        if rivals := [rival for rival, other in named.items() if rival != key and self._is_rival(other, fit)]:
            if not most_recent:
                raise self._several([key, *rivals], "this response")
            return None
        common = Counter(mark for other in agreeing.values() for mark, _ in other.agreed)
        if not self._is_enough(fit, common):
            return None
        return LogLink(how="fit", reason=f"{key} fits: {fit}", key=key, fit=fit)

    def candidates(self, named: Mapping[TaskKey, TaskFit] | None = None) -> dict[TaskKey, TaskFit]:
        """The tasks that contradict nothing: neither by an event nor by the lack of one that the reply proves."""
        tasks = self.found if named is None else named
        return (
            {}
            if self._is_after
            else {key: fit for key, fit in tasks.items() if fit.events and not fit.conflicts and not self._lacks(fit)}
        )

    def options(self, *, own: str | None = None, reported_slot: int | None = None) -> dict[TaskKey, TaskFit]:
        """The tasks that the reply may be of, as in `choose`."""
        return self.candidates(self._of_reply(self.found, own, reported_slot))

    def _lacks(self, fit: TaskFit) -> bool:
        if len(fit.steps) >= MOST_STEPS:
            return False
        proven = (position for position in range(len(self._surprise)) if self._evidence.proves(position))
        return any(position not in fit.steps and fit.coverage.knows(position) for position in proven)

    def _by_elimination(self, named: Mapping[TaskKey, TaskFit], most_recent: bool, *, force: bool) -> LogLink:
        """The only task that contradicts nothing, or on demand the most recent one."""
        every = {key: fit for key, fit in named.items() if fit.events}
        candidates = self.candidates(every)
        if len(candidates) == 1:
            ((key, fit),) = candidates.items()
            what = (
                "only task in the log"
                if len(self.found) == 1
                else (f"the only one of the log's {len(self.found)} tasks that contradicts nothing")
            )
            return LogLink(how="only", reason=f"{what}; {fit.worth} ({key})", key=key, fit=fit)
        if candidates and not most_recent:
            raise self._unsure(candidates)
        if candidates:
            key, fit = max(candidates.items(), key=lambda pair: pair[1].latest)
            what = f"most recent of {len(candidates)} tasks that contradict nothing"
            return LogLink(how="recent", reason=f"{what}; {fit.worth} ({key})", key=key, fit=fit)
        if every and force:
            return self._explain_contradiction(every, "the most recent task", force=True)
        return self._explain_no_match(every)

    def _explain_no_match(self, every: Mapping[TaskKey, TaskFit]) -> LogLink:
        if every:
            first = next((fit.first_conflict for fit in every.values() if fit.conflicts), "")
            reason = f"none of the log's {len(every)} tasks agrees with the response"
            if self._is_after:
                first = "the log was begun after the response had ended"
            elif not first:
                first = "it proves rejections that the task does not have"
            key, fit = max(every.items(), key=lambda pair: pair[1].latest)
            return LogLink(how="none", reason=f"{reason}; the first: {first}", key=key, fit=fit)
        if not self.found and self.may_be_empty:
            return self.without_events("the log has no events, so that no draw was refused")
        return LogLink(how="none", reason="the log has no events that could be this response's")

    def without_events(self, reason: str) -> LogLink:
        """The link of a reply whose draws were all accepted."""
        if any(self._evidence.proves(position) for position in range(len(self._surprise))):
            return LogLink(how="none", reason="the response proves rejections, and the log has none of them")
        return LogLink(how="empty", reason=reason, fit=TaskFit())

    def shared(self, reason: str, candidates: Collection[TaskKey], *, has_one: bool = False) -> LogLink:
        """The link of a reply that may be of any of these tasks: what they have in common holds. has_one: whether it is
        surely of one of them, and not of none."""
        fit, ranked = TaskFit(), tuple(sorted(candidates, key=lambda key: self.found[key].latest))
        common = {} if not has_one else self._common(ranked)
        for key in ranked:
            fit.coverage.gaps += self.found[key].coverage.gaps
            fit.coverage.gaps += ((step, step + 1) for step in self.found[key].steps if step not in common)
        fit.steps = set(common)
        return LogLink(how="shared", reason=reason, fit=fit, candidates=ranked)

    def common_events(self, link: LogLink) -> Iterator[Mapping[str, Any]]:
        """The events of a shared link, if they were kept."""
        if link.fit is not None and link.fit.steps:
            yield from self._common(link.candidates).values()

    def _common(self, candidates: Sequence[TaskKey]) -> dict[int, Mapping[str, Any]]:
        """By step, the events at which all these tasks refused the same token and took the same."""
        first, *rest = ({event["step"]: event for event in self.events(key)} for key in candidates)
        return {
            step: {name: value for name, value in event.items() if name not in ("task_id", "slot_id")}
            for step, event in first.items()
            if all(step in other and _same_draws(event, other[step]) for other in rest)
        }

    @property
    def may_be_empty(self) -> bool:
        """Whether a reply without events is one without rejections. A log of Espalier names its runs."""
        return self.has_all and not self._evidence.is_exact

    def _rank_fits(self, fits: Mapping[TaskKey, TaskFit]) -> list[tuple[TaskKey, TaskFit]]:
        return sorted(fits.items(), key=lambda pair: -pair[1].bits)

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
        error = MatchError(
            f"{len(keys)} tasks of the log fit {what}: {named_tasks(keys)}",
            hint="say which with --task, --slot or --request; --most-recent takes the last of them",
            field="task",
        )
        error.candidates = tuple(keys)
        return error

    def _unsure(self, candidates: Mapping[TaskKey, TaskFit]) -> MatchError:
        listed = [f"{key}: {fit.events} events, {fit.bits:.1f} bits" for key, fit in candidates.items()]
        last = max(candidates.items(), key=lambda pair: pair[1].latest)[0]
        error = MatchError(
            f"{len(candidates)} tasks of the log contradict nothing, and the evidence for each is weak: "
            + named_tasks(listed),
            hint=f"--most-recent takes {last}; --task, --slot or --request says which",
            field="task",
        )
        error.candidates = tuple(candidates)
        return error


def _same_draws(event: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def ids(record: Mapping[str, Any]) -> list[Any]:
        drawn = [record.get("rejected"), record.get("resampled")]
        return [(token.get("id"), token.get("text")) if isinstance(token, Mapping) else None for token in drawn]

    return ids(event) == ids(other)


def _runs(data: Any) -> Iterator[Mapping[str, Any]]:
    return (run for run in data if isinstance(run, Mapping)) if isinstance(data, list) else iter(())
