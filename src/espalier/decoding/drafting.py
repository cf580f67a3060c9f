"""What drafts learn within a process: the time of a pass by its tokens, and the continuations seen under a constraint.

One `DraftKit` belongs to one model. Nothing here changes a token: it decides only what is proposed, and how much of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from espalier.decoding.ports import StepModel

RISES = 0.02
"""How much of a difference to a longer measured time is taken over, and at most this share of the known time; a shorter
one counts at once. Others share the machine, so the short times are the pass itself."""
MOST_OVER, OVER_STEP = 3.0, 0.05
"""A pass counts as at most so many short ones of its size, so that an interruption does not; and how fast that is
learnt."""
ASKED_FALLS, ASKED_RISES = 0.5, 0.1
"""The same for the time that a source takes, which differs from place to place by itself."""
SWITCHED = 1.3
"""What it takes at first is taken to be at most so many times a pass of its size."""
AFTER_FALLS, AFTER_RISES = 0.5, 0.02
"""The same for the time of a short pass after a longer one, which differs by what is cut from the cache before it."""
LISTED = 32
"""The costs of passes of fewer tokens are listed, and the list is made again after so many passes."""
FIRST_WORTH, LEAST_WORTH, MOST_WORTH = 1.1, 1.05, 2.0
"""What a draft has to be expected to gain: what is expected is not exact, and a draft that fails costs time."""
WORTH_RISES, WORTH_FALLS, WORTH_KEPT = 0.02, 0.001, 0.97
"""How fast more is asked of drafts that gain nothing; how fast less is asked while there are none; and how fast old
times are forgotten."""
CERTAIN = 16
"""Tokens with drafts, and without, after which it is known what they take."""
GAINED = 1.03
"""Drafts that gain less than this gain nothing."""
ENOUGH, HEAVIEST = 6, 8
"""So many longer passes have shown what they cost; and as how many those of one size count at most."""
EARLY = 48
"""The first so many passes are listed at once."""
LONGEST = 512
"""The most tokens for which a source is not asked."""
MOST_STATES = 4096
"""Places known under one constraint; the oldest are forgotten."""
MOST_BESIDE = 8
"""Tokens known at one place."""
MOST_CONSTRAINTS = 64
"""Constraints known to one model; the least recently used is forgotten."""
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
FURTHER = 0.15
"""A further token costs this share of a pass of the least size as long as fewer than `ENOUGH` longer passes are known;
beyond the longest known size it costs no more than that."""


class PassCosts:
    """How many seconds a forward pass over so many tokens takes, learnt from passes. Safe across threads: a lost update
    costs nothing.

    The least size is known by itself; for longer passes a line is laid through what all of them took, so that one that
    met a busy machine says little. An engine may keep its compute graph from pass to pass as long as their size stays,
    so a short pass that follows a longer one is known apart: `switch` says how many seconds it takes more.
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        self._counts: dict[int, int] = {}  # passes of each size
        self._after: dict[int, float] = {}  # seconds of passes after one of another size
        self._listed: list[float] = []
        self._switch = 0.0
        self._over = [1.0, 1.0]  # a usual pass over a short one of its size: without a draft, with one
        self._noted = 0

    def note(self, tokens: int, seconds: float, *, drafted: bool = False, switched: bool = False) -> None:
        """Record one pass. drafted: whether it holds a draft. switched: whether it holds none and follows one that
        did."""
        self._noted += 1
        seconds = max(seconds, 1e-9)  # a coarse clock may say 0, and shares of a pass are divided by it
        if switched:
            usual = self._after.get(tokens, min(seconds, SWITCHED * self._known.get(tokens, seconds)))
            step = AFTER_FALLS if seconds < usual else AFTER_RISES
            self._after[tokens] = usual + (min(seconds, MOST_OVER * usual) - usual) * step
        else:
            old = self._known.get(tokens)
            if old is None:  # the first pass of a size may take many times as long
                old = seconds = min(seconds, MOST_OVER * self.of(tokens)) if self._known else seconds
            self._known[tokens] = seconds if seconds < old else old + min(seconds - old, old) * RISES
            self._counts[tokens] = self._counts.get(tokens, 0) + 1
            share = self._over[drafted]
            self._over[drafted] = share + (min(seconds / max(old, 1e-9), MOST_OVER) - share) * OVER_STEP
        if self._noted % LISTED == 0 or self._noted <= EARLY:
            self._listed = []

    def listed(self) -> list[float]:
        """The seconds of passes over 0 to LISTED - 1 tokens, as `of` gives them, a few passes old."""
        found = self._listed
        if not found:
            line = self._line()
            found = self._listed = [0.0, *(line(size) for size in range(1, LISTED))]
            least = min(self._known, default=0)
            after, same = self._after.get(least), self._known.get(least)
            if after is not None and same is not None:
                self._switch = min(max(after / self._over[0] - same, 0.0), same)
        return found

    @property
    def is_known(self) -> bool:
        """Whether any pass was recorded."""
        return bool(self._known)

    @property
    def over(self) -> float:
        """How much longer than `of` says a pass with a draft usually takes, where one without takes as long as it
        says."""
        return max(1.0, self._over[1] / self._over[0])

    @property
    def switch(self) -> float:
        """How many seconds a drafted pass costs beside its own: the next short one starts anew."""
        return self._switch

    def of(self, tokens: int) -> float:
        """Seconds of a pass over so many tokens. As long as few longer ones are known a further token is assumed to
        cost `FURTHER` of a pass of the least size, so that longer ones are tried; beyond the longest size no more."""
        return self._line()(tokens)

    def _line(self) -> Callable[[int], float]:
        known = sorted(dict(self._known).items())
        least, base = known[0] if known else (1, 1.0)
        points = [(size, seconds, min(self._counts.get(size, 1), HEAVIEST)) for size, seconds in known[1:]]
        slope = further = FURTHER * base / least
        start = base - slope * least
        if sum(weight for *_, weight in points) >= ENOUGH:
            weights = sum(weight for *_, weight in points)
            middle = sum(size * weight for size, _, weight in points) / weights
            level = sum(seconds * weight for _, seconds, weight in points) / weights
            spread = sum(weight * (size - middle) ** 2 for size, _, weight in points)
            if spread:
                slope = max(0.0, sum(w * (size - middle) * (s - level) for size, s, w in points) / spread)
            else:  # one size alone: the line through the least one
                slope = max(0.0, (level - base) / (middle - least))
            start = level - slope * middle

        longest = known[-1][0] if known else least

        def line(size: int) -> float:
            if size <= least:
                return max(base - further * (least - size), 1e-9)
            found = start + slope * min(size, longest) + min(slope, further) * max(0, size - longest)
            return min(max(found, base), base * size / least)

        return line


class Worth:
    """What drafts have been worth lately: the time that a token took with drafts and without, all of our own time in
    it, which no cost of a pass tells. least: how much a draft has to be expected to gain, so that it gains anything."""

    __slots__ = ("_times", "least")

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = [(0.0, 0.0), (0.0, 0.0)]  # seconds and tokens: without drafts, with
        self.least = FIRST_WORTH

    def note(self, seconds: float, tokens: int, *, drafted: bool) -> None:
        """Record what a pass and everything around it took, and the tokens that it gave."""
        spent, given = self._times[drafted]
        if given > CERTAIN:
            seconds = min(seconds, MOST_OVER * tokens * spent / given)
        self._times[drafted] = spent * WORTH_KEPT + seconds, given * WORTH_KEPT + tokens
        if not drafted:
            self.least = max(self.least - WORTH_FALLS, LEAST_WORTH)
        elif min(self._times[0][1], self._times[1][1]) > CERTAIN:
            alone, with_drafts = (one / other for one, other in self._times)
            step = WORTH_RISES if with_drafts * GAINED > alone else -WORTH_RISES
            self.least = min(max(self.least + step, LEAST_WORTH), MOST_WORTH)


class Place(NamedTuple):
    """Where a text is: what may follow and the last token, and the token before that. near: without that token."""

    near: Hashable
    before: int


class _Followed:
    """What followed at one place. best: the token that followed most often."""

    __slots__ = ("best", "followed", "most", "total")

    def __init__(self) -> None:
        self.followed: dict[int, tuple[int, Place]] = {}  # token -> how often, and the place that it led to last
        self.best, self.most, self.total = -1, 0, 0

    @property
    def grade(self) -> int:
        """See `GRADES`."""
        if self.most == self.total:
            return 0 if self.total == 1 else 1 if self.total < 4 else 2
        return 3 if self.most >= 0.8 * self.total else 4

    def add(self, token: int, following: Place) -> None:
        followed = self.followed
        count = followed[token][0] + 1 if token in followed else 1
        if count == 1 and len(followed) >= MOST_BESIDE:
            rarest = min(followed, key=lambda one: followed[one][0])
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
    _after: OrderedDict[Hashable, _Followed] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, place: Place, token: int, following: Place) -> None:
        """Record that `token` was taken at a place, and the place that it led to."""
        with self._lock:
            after = self._after
            near, far = after.get(place.near), after.get(place)
            known = far or near
            if known is not None:
                grade = known.grade if far is not None else known.grade + NEAR
                self.grades[grade] += GRADE_STEP * ((known.best == token) - self.grades[grade])
            if near is None:
                near = after[place.near] = _Followed()
            if far is None:
                far = after[place] = _Followed()
                while len(after) > MOST_STATES:
                    after.popitem(last=False)
            near.add(token, following)
            far.add(token, following)

    def likeliest(self, place: Place) -> tuple[int, float, Place] | None:
        """The token that followed most often at a place, how likely it follows again, and the place that it led to
        last; None where none is known."""
        found, offset = self._after.get(place), 0
        if found is None:
            found, offset = self._after.get(place.near), NEAR
        if found is None:
            return None
        token = found.best
        held = found.followed.get(token)
        return None if held is None else (token, self.grades[found.grade + offset], held[1])

    def leads_to(self, place: Place, token: int) -> Place | None:
        """The place that a token led to; None where that is unknown."""
        found = self._after.get(place) or self._after.get(place.near)
        held = None if found is None else found.followed.get(token)
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
            rates={**self.rates}, hits={**self.hits}, pauses={**self.pauses}, due=due, saved={**self.saved},
            grades=[*self.grades],
        )  # fmt: skip


class DraftKit:
    """What the drafts of one model share. sibling: a smaller model with the same vocabulary, None where there is none.

    Continuations are kept apart by owner: what one caller's texts say must not show in another's speed.
    """

    def __init__(self, sibling: StepModel | None = None) -> None:
        self.costs, self.worth = PassCosts(), Worth()
        self.sibling = sibling
        self.asking: dict[str, float] = {}  # seconds that asking a source takes, by its name
        self.heard = 0  # how often sources were heard that were not worth a draft
        self.least = 0.0  # the rate below which nothing is worth a draft
        self.listed: list[float] = []  # the costs from which it was worked out
        self.is_wanted = True  # whether passes are to be timed
        self._passed: float | None = None
        self._known: OrderedDict[tuple[str, str], Continuations] = OrderedDict()
        self._lock = threading.Lock()

    def passed(self, seconds: float) -> None:
        """Record how long the last forward pass of the model took: a driver that knows it calls this."""
        self._passed = seconds

    def last_pass(self) -> float | None:
        """The seconds of the last pass, once; None where no driver has told."""
        found, self._passed = self._passed, None
        return found

    def asked(self, source: str, seconds: float) -> None:
        """Record how long a source took to answer."""
        old = self.asking.get(source, seconds)
        self.asking[source] = old + (seconds - old) * (ASKED_FALLS if seconds < old else ASKED_RISES)

    def continuations(self, owner: str, constraint: str) -> Continuations:
        """The texts that are known under a constraint, for one owner. constraint: its key, "" without one."""
        with self._lock:
            key = (owner, constraint)
            found = self._known.pop(key, None)
            if found is None:
                alike = (known for (who, what), known in reversed(self._known.items())
                         if who == owner and bool(what) == bool(constraint))  # fmt: skip
                before = next(alike, None)
                found = Continuations() if before is None else before.heir()
                while len(self._known) >= MOST_CONSTRAINTS:
                    self._known.popitem(last=False)
            self._known[key] = found
            return found
