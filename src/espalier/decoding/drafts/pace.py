"""How many tokens to draft: what the pass is expected to give over what it is expected to cost.

It knows neither tokens nor sources: rates and costs go in, a number comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.decoding.drafting.pass_costs import LISTED, PassCosts
from espalier.decoding.drafting.worth import FIRST_WORTH

MOST = 15
"""Tokens drafted for one pass: with the last token taken, a pass of 16."""


class Pace:
    """The expected yield of one pass while its draft is put together. fed: tokens that the pass computes anyway. worth:
    how many times the tokens a second a draft has to promise.

    saved: seconds that what `kept` answered last is expected to save.
    """

    __slots__ = ("_costs", "_fed", "_gained", "_over", "_reached", "_switch", "_worth", "drafted", "saved")

    def __init__(self, costs: PassCosts, fed: int, worth: float = FIRST_WORTH) -> None:
        self._fed = min(fed, LISTED - MOST - 1)
        self._costs, self._worth = costs.listed(), worth
        self._switch, self._over = costs.switch, costs.over
        self.drafted = 0
        self.saved = 0.0
        self._gained = 1.0  # tokens that the pass is expected to give
        self._reached = 1.0  # the probability that all drafted tokens are right

    def wanted(self, rate: float, room: int, *, seconds: float = 0.0, hit: float = 1.0) -> int:
        """How many further tokens to ask a source for. rate: the probability that one is right, if those before it
        are. room: at most so many. seconds: what asking the source costs. hit: the probability that it answers."""
        # A draft has to pay for the times that the source was asked and had no answer.
        return self.kept([rate] * room, seconds / max(hit, 1e-6))

    def kept(self, rates: Sequence[float], seconds: float = 0.0) -> int:
        """How many of further tokens to draft. rates: the probability that each is right, if those before it are.
        seconds: what the draft costs beside its pass."""
        costs, at, over = self._costs, self._fed + self.drafted, self._over
        reached, gained = self._reached, self._gained
        # What the pass computes anyway is no part of what a draft costs.
        seconds += self._switch - (costs[self._fed] - costs[1])
        if self.drafted:
            alone = costs[at] * over + seconds
            best = gained / alone
        else:
            alone = costs[1]
            best = self._worth * gained / alone
        count, self.saved = 0, 0.0
        for more, rate in enumerate(rates[: MOST - self.drafted], start=1):
            reached *= rate
            gained += reached
            cost = costs[at + more] * over + seconds
            if gained > best * cost:
                best, count = gained / cost, more
                self.saved = (gained - self._gained) * costs[1] - (cost - alone)
        return count

    def added(self, rates: Sequence[float]) -> None:
        """Record that tokens with these rates are in the draft."""
        self.drafted += len(rates)
        for rate in rates:
            self._reached *= rate
            self._gained += self._reached


def least_rate(costs: PassCosts, worth: float = FIRST_WORTH) -> float:
    """The rate below which nothing that follows is worth a draft, about."""
    low, high = 0.0, 1.0
    for _ in range(6):
        middle = (low + high) / 2
        if Pace(costs, 1, worth).kept([middle] * MOST):
            high = middle
        else:
            low = middle
    return low
