"""Looks for a completion of a text that repeats no item, by changing the completion of fewest bytes where it must.

A completion that repeats an item is left at some byte before the repetition, for another byte, and completed anew.
Every completion can be reached so. Those with the least left to write when they repeat an item are
followed first, then those of the fewest items: a longer one that puts further items before the repeated one gets no
nearer to the end.
It knows an automaton and a tracker, and nothing of tokens beyond their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

from espalier.automata.ends.closing import Ends
from espalier.automata.masks.cache import AnswerCache
from espalier.automata.masks.machine import Machine, State
from espalier.constraints.unique.values import BLANK
from espalier.constraints.watching import ItemsTracker, RepeatedItem
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time

TRIES = 1_000
"""Completions that one search tries, and as many more as TRIES_AN_ITEM times the items that are remembered."""
TRIES_AN_ITEM = 4
MOST_TRIES = 20_000
"""Of a patient search in all: it has as many as TRIES again after each try that leaves less than all before."""
BEGINS = re.compile(rb"[\[,]")
"""After these an item may begin."""
Rank: TypeAlias = tuple[int, int, int]
MAX_KNOWN = 20_000
"""States whose completion of fewest bytes is kept as bytes."""


class GaveUp(Exception):
    """The search tried all it may, and there are more completions."""


@dataclass(frozen=True, slots=True)
class _Try:
    """A completion that repeats an item. lead: the bytes before `rest`, which are decided. state, point: after these.
    clash: where in `rest` the repetition ends. items: how many come before it."""

    lead: bytes
    state: State
    point: Hashable
    rest: bytes
    clash: int
    items: int

    @property
    def left(self) -> int:
        """The number of bytes after the repetition."""
        return len(self.rest) - self.clash

    def rank(self, *, later: bool) -> Rank:
        """Changes of the completion with the lowest rank are tried first. later: for those that are left for later."""
        return self.left, self.items + later, len(self.lead) + self.clash


class _Change(NamedTuple):
    """Another byte, or an item that the schema lists, at an offset of a completion. state, point: after it."""

    at: int
    text: bytes
    state: State
    point: Hashable


def _find_plainest(ends: Ends, text_of: Callable[[int], bytes], state: State) -> bytes | None:
    try:
        return b"".join(map(text_of, ends.plainest(state)))
    except LimitExceeded:
        return None


class CompletionSearch:
    """Finds completions of one automaton's texts that repeat no item. Thread-safe: what is kept is only ever added."""

    def __init__(self, machine: Machine, ends: Ends, text_of: Callable[[int], bytes], tracker: ItemsTracker) -> None:
        """text_of: a token's bytes in the text."""
        self._machine = machine
        self._tracker = tracker
        #: The completion of fewest bytes of a state, whatever it repeats; None if it is too long to be known.
        self.plainest: Callable[[State], bytes | None] = AnswerCache(partial(_find_plainest, ends, text_of), MAX_KNOWN)

    def find(self, state: State, point: Hashable, *, near: bool = False, patient: bool = False) -> bytes | None:
        """A completion that repeats no item; None if there is none. near: where it comes to a place from which one is
        sure to exist, only its bytes up to there. patient: for a search that is made once, for seconds where many items
        are wanted. Raises GaveUp."""
        first = self._try_lead(b"", state, point, near)
        if first is None or isinstance(first, bytes):
            return first
        some = TRIES + TRIES_AN_ITEM * self._tracker.count(point)
        left, in_all = some, MOST_TRIES if patient else some
        best = first.left
        number = count()
        waiting: list[tuple[Rank, int, Iterator[bytes | _Try]]] = []

        def follow(trial: _Try) -> None:
            later: list[_Change] = []
            heappush(waiting, (trial.rank(later=False), next(number), self._change_items(trial, later, near)))
            heappush(waiting, (trial.rank(later=True), next(number), self._complete_changes(trial, later, near)))

        follow(first)
        while waiting:
            check_time()
            outcome = next(waiting[0][2], None)
            if outcome is None:
                heappop(waiting)
                continue
            if isinstance(outcome, bytes):
                return outcome
            left, in_all = left - 1, in_all - 1
            if min(left, in_all) < 0:
                raise GaveUp
            if outcome.left < best:
                best, left = outcome.left, some if patient else left
            follow(outcome)
        return None

    def _try_lead(self, lead: bytes, state: State, point: Hashable, near: bool) -> bytes | _Try | None:
        """The completion of fewest bytes if it repeats nothing, else where it does."""
        tracker = self._tracker
        if near and tracker.is_fresh(point):
            return lead
        rest = self.plainest(state)
        if rest is None:
            return None
        end, at = point, 0
        for stop in [match.end() for match in BEGINS.finditer(rest)] if near else ():
            after = tracker.feed(end, rest[at:stop])
            if isinstance(after, RepeatedItem):
                return _Try(lead, state, point, rest, at + after.offset, after.items)
            end, at = after, stop
            if tracker.is_fresh(end):
                return lead + rest[:at]
        point_after = tracker.feed(end, rest[at:])
        if isinstance(point_after, RepeatedItem):
            return _Try(lead, state, point, rest, at + point_after.offset, point_after.items)
        return lead + rest

    def _change_items(self, trial: _Try, later: list[_Change], near: bool) -> Iterator[bytes | _Try]:
        """The completions that leave this one at some byte, the last bytes before the repetition first. Of the bytes
        that lead to one state only the first is tried at once: the same completion follows the others. They come next
        if that repeats the item with the byte, and go to `later` if what is repeated comes after it."""
        machine, tracker = self._machine, self._tracker
        states, points = [trial.state], [trial.point]
        for at in range(trial.clash):
            state = machine.step(states[-1], trial.rest[at])
            point = tracker.feed(points[-1], trial.rest[at : at + 1])
            if state is None or isinstance(point, RepeatedItem):  # a named token stands here: its bytes are no bytes
                break
            states.append(state)
            points.append(point)
        soon: list[_Change] = []
        for at in range(len(states) - 1, -1, -1):
            if tracker.is_idle(points[at]):
                continue
            inside, items = tracker.in_string(points[at]), tracker.count(points[at])
            for text in tracker.listed(points[at]):
                item = self._after(_Change(at, b"", states[at], points[at]), text)
                for next_trial in () if item is None else self._complete_changes(trial, [item], near):
                    if isinstance(next_trial, bytes) or next_trial.items > items:  # it differs itself
                        yield next_trial
            members, _ = machine.options(states[at])
            alike: dict[State, list[_Change]] = {}
            for byte in range(256):
                if not members >> byte & 1 or byte == trial.rest[at] or (byte in BLANK and not inside):
                    continue
                change = self._after(_Change(at, b"", states[at], points[at]), bytes((byte,)))
                if change is None:
                    continue
                if change.state in alike:
                    alike[change.state].append(change)
                    continue
                alike[change.state] = soon
                for next_trial in self._complete_changes(trial, [change], near):
                    if isinstance(next_trial, _Try) and next_trial.items > items:
                        alike[change.state] = later
                    yield next_trial
        yield from self._complete_changes(trial, soon, near)

    def _after(self, change: _Change, text: bytes) -> _Change | None:
        """The change with more text; None where that cannot come, or repeats an item."""
        state = change.state
        for byte in text:
            state = None if state is None else self._machine.step(state, byte)
        point = None if state is None else self._tracker.feed(change.point, text)
        if point is None or isinstance(point, RepeatedItem):
            return None
        return _Change(change.at, change.text + text, state, point)

    def _complete_changes(self, trial: _Try, changes: list[_Change], near: bool) -> Iterator[bytes | _Try]:
        """The completion of fewest bytes after each change."""
        for at, text, state, point in changes:
            next_trial = self._try_lead(trial.lead + trial.rest[:at] + text, state, point, near)
            if next_trial is not None:
                yield next_trial
