"""`DraftKit`: what all drafts of one model share, kept apart by who asked."""

from __future__ import annotations

import threading
from collections import OrderedDict

from espalier.decoding.drafting.continuations import ASKED_FALLS, ASKED_RISES, Continuations
from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.decoding.drafting.worth import Worth
from espalier.decoding.ports import StepModel

MOST_CONSTRAINTS = 64
"""Constraints known to one model; the least recently used is forgotten."""


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
        seconds, self._passed = self._passed, None
        return seconds

    def asked(self, source: str, seconds: float) -> None:
        """Record how long a source took to answer."""
        old = self.asking.get(source, seconds)
        self.asking[source] = old + (seconds - old) * (ASKED_FALLS if seconds < old else ASKED_RISES)

    def continuations(self, owner: str, constraint: str) -> Continuations:
        """The texts that are known under a constraint, for one owner. constraint: its key, "" without one."""
        with self._lock:
            key = (owner, constraint)
            continuations = self._known.pop(key, None)
            if continuations is None:
                alike = (
                    known
                    for (who, what), known in reversed(self._known.items())
                    if who == owner and bool(what) == bool(constraint)
                )
                before = next(alike, None)
                continuations = Continuations() if before is None else before.heir()
                while len(self._known) >= MOST_CONSTRAINTS:
                    self._known.popitem(last=False)
            self._known[key] = continuations
            return continuations
