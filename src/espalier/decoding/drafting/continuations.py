"""What followed at each place of the texts under one constraint, and how often drafts under it were right. It knows no
constraint: a place is a name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

ASKED_FALLS, ASKED_RISES = 0.5, 0.1
"""How much of a difference to a shorter time of a source is taken over, and of one to a longer time: it differs from
place to place by itself."""
LONGEST = 512
"""The most tokens for which a source is not asked."""
MOST_STATES = 4096
"""Places known under one constraint; the oldest are forgotten."""
MOST_BESIDE = 8
"""Tokens known at one place."""
FIRST_RATE = 0.6
RATE_STEP = 0.12
GRADES = (0.7, 0.85, 0.95, 0.75, 0.4, 0.5, 0.6, 0.8, 0.6, 0.3)
"""How often what followed most at a place follows again, before anything is known: where it was seen once, two or three
times and nothing else, more often and nothing else, in four of five cases, in fewer; and the same where only the last
token is as it was there, and not the one before."""
NEAR = 5
"""How many of `GRADES` are for places that are known with the token before."""
GRADE_STEP = 0.05
FIRST_HIT, HIT_STEP = 0.8, 0.1
"""The share of asked places at which a source has something to propose, and how fast it is learnt."""
PAUSE = 8
"""A source that is not worth asking is not asked for so many tokens; twice as many each time after."""


class HistoryPosition(NamedTuple):
    """Where a text is: what may follow and the last token, and the token before that. near: without that token."""

    near: Hashable
    before: int


class _NextTokens:
    """What followed at one place. best: the token that followed most often."""

    __slots__ = ("best", "followed", "most", "total")

    def __init__(self) -> None:
        self.followed: dict[
            int, tuple[int, HistoryPosition]
        ] = {}  # token -> how often, and the place that it led to last
        self.best, self.most, self.total = -1, 0, 0

    @property
    def grade(self) -> int:
        """See `GRADES`."""
        if self.most == self.total:
            return 0 if self.total == 1 else 1 if self.total < 4 else 2
        return 3 if self.most >= 0.8 * self.total else 4

    def add(self, token: int, following: HistoryPosition) -> None:
        followed = self.followed
        count = followed[token][0] + 1 if token in followed else 1
        if count == 1 and len(followed) >= MOST_BESIDE:
            rarest = min(followed, key=lambda token: followed[token][0])
            self.total -= followed.pop(rarest)[0]
        followed[token] = (count, following)
        self.total += 1
        if count >= self.most:  # of two the later one
            self.best, self.most = token, count


@dataclass(slots=True)
class Continuations:
    """What followed at each place of the texts under one constraint, and how often drafts under it were right.

    rates: by source, the share of its tokens that were right, lately. hits: by source, the share of places at which it
    proposed something, lately. pauses: by source, the tokens for which it is not asked the next time that it is not
    worth it; due: by source, the value of `taken` from which on it is asked again. saved: by source, the seconds that a
    draft of it is expected to save, lately. taken: tokens so far. grades: as `GRADES`, lately.
    """

    rates: dict[str, float] = field(default_factory=dict)
    hits: dict[str, float] = field(default_factory=dict)
    pauses: dict[str, int] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    taken: int = 0
    grades: list[float] = field(default_factory=lambda: [*GRADES])
    _after: OrderedDict[Hashable, _NextTokens] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, place: HistoryPosition, token: int, following: HistoryPosition) -> None:
        """Record that `token` was taken at a place, and the place that it led to."""
        with self._lock:
            after = self._after
            near, far = after.get(place.near), after.get(place)
            known = far or near
            if known is not None:
                grade = known.grade if far is not None else known.grade + NEAR
                self.grades[grade] += GRADE_STEP * ((known.best == token) - self.grades[grade])
            if near is None:
                near = after[place.near] = _NextTokens()
            if far is None:
                far = after[place] = _NextTokens()
                while len(after) > MOST_STATES:
                    after.popitem(last=False)
            near.add(token, following)
            far.add(token, following)

    def likeliest(self, place: HistoryPosition) -> tuple[int, float, HistoryPosition] | None:
        """The token that followed most often at a place, how likely it follows again, and the place that it led to
        last; None where none is known."""
        followed, offset = self._after.get(place), 0
        if followed is None:
            followed, offset = self._after.get(place.near), NEAR
        if followed is None:
            return None
        token = followed.best
        held = followed.followed.get(token)
        return None if held is None else (token, self.grades[followed.grade + offset], held[1])

    def leads_to(self, place: HistoryPosition, token: int) -> HistoryPosition | None:
        """The place that a token led to; None where that is unknown."""
        followed = self._after.get(place) or self._after.get(place.near)
        held = None if followed is None else followed.followed.get(token)
        return None if held is None else held[1]

    def rate(self, source: str) -> float:
        """The share of a source's tokens that were right, lately."""
        return self.rates.get(source, FIRST_RATE)

    def was_right(self, source: str, right: bool) -> None:
        """Record whether a proposed token was the one taken."""
        old = self.rate(source)
        self.rates[source] = old + RATE_STEP * (right - old)

    def hit(self, source: str) -> float:
        """The share of asked places at which a source proposed something, lately."""
        return self.hits.get(source, FIRST_HIT)

    def was_asked(self, source: str, found: bool, step: float = HIT_STEP) -> None:
        """Record whether a source proposed something."""
        old = self.hit(source)
        self.hits[source] = old + step * (found - old)

    def pause(self, source: str, least: int = 0) -> None:
        """Ask a source no more for some tokens, `least` of them or more, and for twice as many the next time."""
        size = min(max(self.pauses.get(source, PAUSE), least), LONGEST)
        self.due[source] = self.taken + size
        self.pauses[source] = min(2 * size, LONGEST)

    def was_worth_it(self, source: str, seconds: float) -> None:
        """Record that a source was worth asking, and what its draft is expected to save."""
        self.pauses[source] = PAUSE
        old = self.saved.get(source, seconds)
        self.saved[source] = old + (seconds - old) * (ASKED_FALLS if seconds < old else ASKED_RISES)

    def heir(self) -> Continuations:
        """For another constraint: sources are expected to be worth there what they are here, and no place is known."""
        due = {name: max(0, at - self.taken) for name, at in self.due.items()}
        return Continuations(
            rates={**self.rates},
            hits={**self.hits},
            pauses={**self.pauses},
            due=due,
            saved={**self.saved},
            grades=[*self.grades],
        )
