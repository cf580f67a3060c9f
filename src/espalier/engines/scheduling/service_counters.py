"""How much of the model each owner has had, so that who has had less goes first. It knows no queue and no lanes.

Virtual token counters, as in Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): an owner who comes
back starts at the count of the active owner who has had least, so nobody saves up by staying away.
"""

from __future__ import annotations

from collections import Counter


class ServiceCounters:
    """The counts of owners. counts: by owner, in sequences times passes of the model, and prompt tokens."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._active: Counter[str] = Counter()  # tickets that wait or run

    def arrive(self, owner: str) -> None:
        """One more ticket of the owner waits."""
        if not self._active[owner]:
            least = min((self.counts[name] for name in self._active), default=0)
            self.counts[owner] = max(self.counts.get(owner, 0), least)
        self._active[owner] += 1

    def charge(self, owner: str, amount: int) -> None:
        """A ticket of the owner has had as much."""
        self.counts[owner] = self.counts.get(owner, 0) + amount

    def leave(self, owner: str) -> None:
        """One ticket of the owner neither waits nor runs any more."""
        self._active[owner] -= 1
        if self._active[owner]:
            return
        del self._active[owner]
        # An absent owner's count matters only while it is above the least of those who are here.
        least = min((self.counts[name] for name in self._active), default=None)
        if least is None:
            self.counts.clear()
        elif self.counts[owner] <= least:
            del self.counts[owner]
