"""What drafts have gained lately, all time around the passes included. It knows neither tokens nor sources."""

from __future__ import annotations

from espalier.decoding.drafting.pass_costs import MOST_OVER

FIRST_WORTH, LEAST_WORTH, MOST_WORTH = 1.1, 1.05, 2.0
"""What a draft has to be expected to gain: what is expected is not exact, and a draft that fails costs time."""
WORTH_RISES, WORTH_FALLS, WORTH_KEPT = 0.02, 0.001, 0.97
"""How fast more is asked of drafts that gain nothing; how fast less is asked while there are none; and how fast old
times are forgotten."""
CERTAIN = 16
"""Tokens with drafts, and without, after which it is known what they take."""
GAINED = 1.03
"""Drafts that gain less than this gain nothing."""


class Worth:
    """What drafts have been worth lately: the time that a token took with drafts and without, all of our own time in
    it, which no cost of a pass tells. least: how much a draft has to be expected to gain, so that it gains anything."""

    __slots__ = ("_times", "least")

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = [(0.0, 0.0), (0.0, 0.0)]  # seconds and tokens: without drafts, with
        self.least = FIRST_WORTH

    def note(self, seconds: float, tokens: int, *, drafted: bool) -> None:
        """Record what a pass and everything around it took, and the tokens that it gave."""
        spent, gained = self._times[drafted]
        if gained > CERTAIN:
            seconds = min(seconds, MOST_OVER * tokens * spent / gained)
        self._times[drafted] = spent * WORTH_KEPT + seconds, gained * WORTH_KEPT + tokens
        if not drafted:
            self.least = max(self.least - WORTH_FALLS, LEAST_WORTH)
        elif min(self._times[0][1], self._times[1][1]) > CERTAIN:
            alone, with_drafts = (seconds / other for seconds, other in self._times)
            step = WORTH_RISES if with_drafts * GAINED > alone else -WORTH_RISES
            self.least = min(max(self.least + step, LEAST_WORTH), MOST_WORTH)
