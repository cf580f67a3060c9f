"""How many tokens to draft: what the pass is expected to give over what it is expected to cost.

It knows neither tokens nor sources: rates and costs go in, a number comes out.
"""

from __future__ import annotations

from espalier.decoding.drafting import LISTED, PassCosts

MOST = 15
"""Tokens drafted for one pass: with the last token taken, a pass of 16."""
WORTH = 1.03
"""A draft has to be expected to gain this much."""


class Pace:
    """The expected yield of one pass while its draft is put together. fed: tokens that the pass computes anyway."""

    __slots__ = ("_costs", "_fed", "_gained", "_reached", "_spent", "drafted")

    def __init__(self, costs: PassCosts, fed: int) -> None:
        self._fed = min(fed, LISTED - MOST - 1)
        self._costs = costs.listed()
        self.drafted = 0
        self._spent = 0.0  # seconds for proposals
        self._gained = 1.0  # tokens that the pass is expected to give
        self._reached = 1.0  # the probability that all drafted tokens are right

    def wanted(self, rate: float, room: int, *, seconds: float = 0.0) -> int:
        """How many further tokens to draft from a source. rate: the probability that one is right, if those before it
        are. room: at most so many. seconds: what asking the source costs."""
        costs, at, spent = self._costs, self._fed + self.drafted, self._spent
        gained, reached = self._gained, self._reached
        best, count = gained / (costs[at] + spent), 0
        if not self.drafted:
            best *= WORTH
        spent += seconds
        for more in range(1, min(room, MOST - self.drafted) + 1):
            reached *= rate
            gained += reached
            found = gained / (costs[at + more] + spent)
            if found > best:
                best, count = found, more
        return count

    def added(self, count: int, rate: float, *, seconds: float = 0.0) -> None:
        """Record that so many tokens of such a source are in the draft."""
        self.drafted += count
        self._spent += seconds
        for _ in range(count):
            self._reached *= rate
            self._gained += self._reached
