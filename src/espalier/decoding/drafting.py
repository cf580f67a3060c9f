"""What drafts learn within a process: the time of a pass by its tokens, and the continuations seen under a constraint.

One `DraftKit` belongs to one model. Nothing here changes a token: it decides only what is proposed, and how much of it.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from espalier.decoding.ports import StepModel

RISES = 0.02
"""How much of a difference to a longer measured time is taken over; a shorter one counts at once. Others share the
machine, so the short times are the pass itself."""
ASKED_FALLS, ASKED_RISES = 0.5, 0.1
"""The same for the time that a source takes, which differs from place to place by itself."""
LISTED = 32
"""The costs of passes of fewer tokens are listed, and the list is made again after so many passes."""
MOST_STATES = 4096
"""Places known under one constraint; the oldest are forgotten."""
MOST_BESIDE = 8
"""Tokens known at one place."""
MOST_CONSTRAINTS = 64
"""Constraints known to one model; the least recently used is forgotten."""
FIRST_RATE = 0.6
RATE_STEP = 0.12


class PassCosts:
    """How many seconds a forward pass over so many tokens takes, learnt from passes. Safe across threads: a lost update
    costs nothing."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        self._listed: list[float] = []
        self._noted = 0

    def note(self, tokens: int, seconds: float) -> None:
        """Record one pass."""
        old = self._known.get(tokens)
        if old is None:
            self._known[tokens] = seconds
        else:
            self._known[tokens] = seconds if seconds < old else old + (seconds - old) * RISES
        self._noted += 1
        if old is None or self._noted % LISTED == 0:
            self._listed = []

    def listed(self) -> list[float]:
        """The seconds of passes over 0 to LISTED - 1 tokens, as `of` gives them, a few passes old."""
        found = self._listed
        if not found:
            known = self._smooth()
            sizes = sorted(known)
            found = self._listed = [0.0, *(_read_off(known, sizes, size) for size in range(1, LISTED))]
        return found

    def of(self, tokens: int) -> float:
        """Seconds of a pass over so many tokens: measured, or read off the line through the nearest measured sizes.
        Where only one size is known a further token is assumed to cost a tenth of it, so that larger ones are tried."""
        known = self._smooth()
        return _read_off(known, sorted(known), tokens)

    def _smooth(self) -> dict[int, float]:
        """What is known, where a pass takes no longer than a larger one did: sizes that are rarely run have only met a
        busy machine, and would never be tried again."""
        found: dict[int, float] = {}
        least = math.inf
        for size, seconds in sorted(dict(self._known).items(), reverse=True):
            least = found[size] = min(least, seconds)
        return found


def _read_off(known: Mapping[int, float], sizes: Sequence[int], tokens: int) -> float:
    """See `PassCosts.of`. sizes: those that are known, ascending."""
    if tokens in known:
        return known[tokens]
    if not sizes:
        return 1.0 + 0.1 * (tokens - 1)
    if len(sizes) == 1:
        (size,) = sizes
        return max(known[size] * (1.0 + 0.1 * (tokens - size) / size), 1e-9)
    place = bisect_left(sizes, tokens)
    if place == 0:  # smaller than all that are known
        return max(known[sizes[0]] * (1.0 + 0.1 * (tokens - sizes[0]) / sizes[0]), 1e-9)
    low, high = (sizes[place - 1], sizes[place]) if place < len(sizes) else (sizes[-2], sizes[-1])
    slope = (known[high] - known[low]) / (high - low)
    return max(known[low] + slope * (tokens - low), 1e-9)


@dataclass(slots=True)
class Continuations:
    """What followed at each place of the texts under one constraint, and how often drafts under it were right.

    A place is any hashable key. rates: by source, the share of its tokens that were right, lately.
    """

    rates: dict[str, float] = field(default_factory=dict)
    _after: OrderedDict[Hashable, dict[int, tuple[int, Hashable]]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, place: Hashable, token: int, following: Hashable) -> None:
        """Record that `token` was taken at a place, and the place that it led to."""
        with self._lock:
            found = self._after.get(place)
            if found is None:
                found = self._after[place] = {}
                if len(self._after) > MOST_STATES:
                    self._after.popitem(last=False)
            count = found[token][0] if token in found else 0
            if not count and len(found) >= MOST_BESIDE:
                del found[min(found, key=lambda one: found[one][0])]
            found[token] = (count + 1, following)

    def likeliest(self, place: Hashable) -> tuple[int, Hashable] | None:
        """The token that followed most often at a place, and the place that it led to last; None where none is
        known."""
        with self._lock:
            found = self._after.get(place)
            if not found:
                return None
            token = max(found, key=lambda one: found[one][0])
            return token, found[token][1]

    def leads_to(self, place: Hashable, token: int) -> Hashable | None:
        """The place that a token led to; None where that is unknown."""
        with self._lock:
            found = self._after.get(place, {}).get(token)
            return None if found is None else found[1]

    def rate(self, source: str) -> float:
        """The share of a source's tokens that were right, lately."""
        return self.rates.get(source, FIRST_RATE)

    def was_right(self, source: str, right: bool) -> None:
        """Record whether a proposed token was the one taken."""
        old = self.rate(source)
        self.rates[source] = old + RATE_STEP * (right - old)


class DraftKit:
    """What the drafts of one model share. sibling: a smaller model with the same vocabulary, None where there is none.

    Continuations are kept apart by owner: what one caller's texts say must not show in another's speed.
    """

    def __init__(self, sibling: StepModel | None = None) -> None:
        self.costs = PassCosts()
        self.sibling = sibling
        self.asking: dict[str, float] = {}  # seconds that asking a source takes, by its name
        self._known: OrderedDict[tuple[str, str], Continuations] = OrderedDict()
        self._lock = threading.Lock()

    def asked(self, source: str, seconds: float) -> None:
        """Record how long a source took to propose something."""
        old = self.asking.get(source, seconds)
        self.asking[source] = old + (seconds - old) * (ASKED_FALLS if seconds < old else ASKED_RISES)

    def continuations(self, owner: str, constraint: str) -> Continuations:
        """The texts that are known under a constraint, for one owner. constraint: its key, "" without one."""
        with self._lock:
            key = (owner, constraint)
            found = self._known.pop(key, None)
            if found is None:
                found = Continuations()
                while len(self._known) >= MOST_CONSTRAINTS:
                    self._known.popitem(last=False)
            self._known[key] = found
            return found
