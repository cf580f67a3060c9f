"""Repetitions that a call returns to: pushing one on a stack twice changes nothing. It knows no states."""

from __future__ import annotations

from espalier.automata.masks.positions import PositionNetwork
from espalier.automata.masks.states import Stacks


class Repetitions:
    """The positions of a network at which the rest of the rule is a repetition X* over bytes that comes back."""

    def __init__(self, network: PositionNetwork) -> None:
        self._network = network
        self._known: dict[int, bool] = {}

    def forget(self) -> None:
        """Drop what is known, since numbers are given to other positions."""
        self._known.clear()

    def is_on(self, below: Stacks, after: int) -> bool:
        """Whether the repetition at position `after` is on top of all stacks of a set already."""
        return len(below.items) == 1 and below.items[0][0] == after and not below.accepting and self.begins_at(after)

    def begins_at(self, position: int) -> bool:
        """Whether the rest of the rule from here is such a repetition."""
        known = self._known.get(position)
        if known is None:
            net = self._network
            reached = {position}
            todo = [position]
            known = net.final[position]
            while todo and known:
                at = todo.pop()
                net.meet(at)
                net.follow_calls(at)
                known = not net.calls[at] and not net.tokens[at] and (at == position or not net.final[at])
                fresh = {target for targets in net.moves[at] for target in targets} - reached
                reached |= fresh
                todo += fresh
            self._known[position] = known
        return known
