"""How many seconds a forward pass takes by its tokens, learnt from passes. It knows no tokens."""

from __future__ import annotations

from collections.abc import Callable

RISES = 0.02
"""How much of a difference to a longer measured time is taken over, and at most this share of the known time; a shorter
one counts at once. Others share the machine, so the short times are the pass itself."""
MOST_OVER, OVER_STEP = 3.0, 0.05
"""A pass counts as at most so many short ones of its size, so that an interruption does not; and how fast that is
learnt."""
SWITCHED = 1.3
"""A short pass after a longer one is taken at first to last at most so many times another one of its size."""
AFTER_FALLS, AFTER_RISES = 0.5, 0.02
"""How much of a difference to a shorter time of such a pass is taken over, and of one to a longer time: it differs by
what is cut from the cache before it."""
LISTED = 32
"""The costs of passes of fewer tokens are listed, and the list is made again after so many passes."""
ENOUGH, HEAVIEST = 6, 8
"""So many longer passes have shown what they cost; and as how many those of one size count at most."""
EARLY = 48
"""The first so many passes are listed at once."""
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
        listed = self._listed
        if not listed:
            line = self._line()
            listed = self._listed = [0.0, *(line(size) for size in range(1, LISTED))]
            if self._known:
                least = min(self._known)
                same, after = self._known[least], self._after.get(least)
                if after is not None:
                    self._switch = min(max(after / self._over[0] - same, 0.0), same)
        return listed

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
            seconds = start + slope * min(size, longest) + min(slope, further) * max(0, size - longest)
            return min(max(seconds, base), base * size / least)

        return line
