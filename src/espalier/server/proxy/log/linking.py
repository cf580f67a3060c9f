"""Which task of the log belongs to which of the requests that pass at the same time.

What the tokens prove comes first, then the times (a task begins after its request and ends before its reply does), then
what is left over once the other requests have their tasks. It knows no HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.server.proxy.log.window import Window
from espalier.trace.foreign.assignment import assigned, certain
from espalier.trace.foreign.matching import LogLink, MatchError, Survey
from espalier.trace.foreign.merge import CombinedTrace, ReplySide, combined
from espalier.trace.foreign.tasks import TaskKey, named_tasks

MOST_AT_ONCE = 48
"""Requests that are decided together; of more, none is."""


@dataclass(eq=False, slots=True, kw_only=True)
class Passing:
    """One output of a request that passes. start, end: how many events the log had before the request, and when its
    reply was looked for last; None while it runs. sides: its reply, None without one. is_void: whether the server
    generated nothing for it. key: the task that is surely its own."""

    start: int
    end: int | None = None
    sides: ReplySide | None = None
    is_void: bool = False
    key: TaskKey | None = None
    link: LogLink | None = None


class LinkDecision(NamedTuple):
    """is_final: whether no request that still runs can change it, or none is waited for."""

    combined: CombinedTrace
    is_final: bool


class _LogMatch(NamedTuple):
    """What the log says of one reply. options: the tasks that it may be of."""

    survey: Survey
    link: LogLink
    options: set[TaskKey]


class Linking:
    """The requests that pass, and those before them that may share a task with them. Calls may come from several
    threads."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._passing: list[Passing] = []
        self.is_closing = False  # what is not decided by now stays open
        self._lock = threading.Lock()

    def begin(self, start: int) -> Passing:
        passing = Passing(start=start)
        with self._lock:
            self._passing.append(passing)
        return passing

    def end(self, passing: Passing, end: int) -> None:
        """The request is over; who comes later has no task in common with it."""
        with self._lock:
            passing.end = end
            running = [
                passing_one.start
                for passing_one in self._passing
                if passing_one.end is None or (passing_one.sides is not None and passing_one.link is None)
            ]
            oldest = min(running, default=end)
            self._passing = [
                other for other in self._passing if other.end is None or other.end > oldest or other is passing
            ]

    def decide(self, passing: Passing, *, is_last: bool = False) -> LinkDecision:
        """What is known of a reply by now. is_last: whether requests that still run are waited for no longer."""
        assert passing.sides is not None
        with self._lock:
            looked = self._look(passing)
            link, is_final = self._link_reply(passing, looked)
            is_final = is_final or is_last or self.is_closing
            passing.key = link.key if link.how in ("request", "task", "fit") else None
            passing.link = link if is_final and passing.end is not None else None
        news = self._window.news
        events: Iterable[Mapping[str, Any]] = ()
        if link.key is not None and link.how != "none":
            events = looked.survey.events(link.key)
        elif link.how == "shared":
            events = looked.survey.common_events(link)
        made = combined(passing.sides, link, events, log_version=news.log_version, timestamp=news.timestamp)
        return LinkDecision(made, is_final)

    def _look(self, passing: Passing) -> _LogMatch:
        sides, news = passing.sides, self._window.news
        assert sides is not None
        events, spans, has_all = self._window.since(passing.start)
        taken = {other.key for other in self._passing if other is not passing}
        others = any(other is not passing and self._overlap(other, passing) for other in self._passing)
        # A task that goes on after the reply is another's, if there is another that it can be of.
        end = passing.end if others else None
        mine = {key for key, span in spans.items() if key not in taken and (end is None or span.last < end)}
        survey = sides.survey(log_version=news.log_version, keep=True, is_alone=not others)
        for key, event in events:
            if key in mine:
                survey.add(event, key)
        survey.close(
            is_closed=news.is_closed,
            is_cut=news.is_cut,
            is_late=not has_all,
            header=news.header,
            has_begun=news.files > 0 and self._window.has_grown,
        )
        response = sides.response
        own, slot = response.request, response.slot
        try:
            link = survey.choose(task=response.task, output=sides.choice.index, own=own, reported_slot=slot)
        except MatchError as error:
            link = LogLink(how="none", reason=error.message, candidates=error.candidates)
        return _LogMatch(survey, link, set(survey.options(own=own, reported_slot=slot)))

    def _link_reply(self, passing: Passing, looked: _LogMatch) -> tuple[LogLink, bool]:
        link = looked.link
        if link.how in ("request", "task", "fit"):
            return link, True
        if not looked.options:
            if link.how == "none" and self._is_without(passing, looked):
                link = looked.survey.without_events("the log has no events of this request: no draw was refused")
            return link, True
        group = self._group(passing, looked)
        if len(group) == 1:
            return (looked.survey.shared(link.reason, looked.options) if link.candidates else link), True
        is_final = all(member.end is not None for member in group)
        what = f"{len(set().union(*group.values()))} tasks, {len(group)} requests at once"
        decided = certain(group) if len(group) <= MOST_AT_ONCE else {}
        if passing not in decided:
            reason = f"{named_tasks(looked.options)} contradict nothing ({what})"
            has_one = len(assigned({**group, passing: set()})) < len(assigned(group))
            return looked.survey.shared(reason, looked.options, has_one=has_one), is_final
        key = decided[passing]
        if key is None:
            return looked.survey.without_events(f"the tasks are those of other requests ({what})"), is_final
        fit = looked.survey.found[key]
        reason = f"only task that is left for it ({what}); {fit.worth} ({key})"
        return LogLink(how="only", reason=reason, key=key, fit=fit), is_final

    def _is_without(self, passing: Passing, looked: _LogMatch) -> bool:
        """Whether the request had no event: its reply contradicts every task, and each is some other request's."""
        if not looked.survey.may_be_empty:
            return False
        tasks = {key for key, fit in looked.survey.found.items() if fit.events}
        others = {
            other: self._options(other) & tasks for other in self._passing if other is not passing and other.key is None
        }
        return len(assigned(others)) == len(tasks)

    def _group(self, passing: Passing, looked: _LogMatch) -> dict[Passing, set[TaskKey]]:
        """The requests that compete for tasks with this one, themselves and through others, with their options."""
        group = {passing: set(looked.options)}
        tasks = set(looked.options)
        rest = [other for other in self._passing if other is not passing and other.key is None and not other.is_void]
        options = {other: self._options(other) for other in rest}
        while True:
            joining = [other for other in rest if other not in group and options[other] & tasks]
            if not joining:
                return group
            for candidate in joining:
                group[candidate] = options[candidate]
                tasks |= options[candidate]

    def _options(self, passing: Passing) -> set[TaskKey]:
        """The tasks that a request may be of; all since it began, while it runs or without a reply."""
        if passing.link is not None:  # decided
            link = passing.link
            return {link.key} if link.key is not None and link.how != "none" else set(link.candidates)
        if passing.sides is not None:
            return set(self._look(passing).options)
        _, spans, _ = self._window.since(passing.start)
        taken = {other.key for other in self._passing}
        return {
            key for key, span in spans.items() if key not in taken and (passing.end is None or span.first < passing.end)
        }

    def _overlap(self, passing: Passing, other: Passing) -> bool:
        return (passing.end is None or passing.end >= other.start) and (other.end is None or other.end >= passing.start)
