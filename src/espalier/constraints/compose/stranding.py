"""The matcher of `AllOf` over a joint machine whose search for common ends may have been given up.

What leads to such a state is allowed, and is taken back where it turns out to lead nowhere. It does not know the
strategy that undoes tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.automata.joint.machine import JointMachine
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compose.all_of_matcher import AllOfMatcher, CompiledAllOf
from espalier.constraints.matching.automaton import AutomatonMatcher
from espalier.constraints.matching.base import WrappingMatcher
from espalier.constraints.matching.rewinding import EVERYTHING, Recall
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask


class CompiledStrandingAllOf(CompiledAllOf):
    """joint: the machine that knows which states can still be completed; None where all can. keeps: whether every token
    may be undone until the text has ended, which also covers what only a filter of the sampler leaves without a way."""

    def __init__(
        self,
        whole: Compiled,
        names: Sequence[str],
        make: Callable[[], list[Compiled]],
        joint: JointMachine | None,
        *,
        keeps: bool,
    ) -> None:
        super().__init__(whole, names, make)
        self.joint = joint
        self.keeps = keeps

    def matcher(self, *, before: str = "") -> StrandingAllOfMatcher:
        return StrandingAllOfMatcher(self, self.whole.matcher(before=before))


class StrandingAllOfMatcher(AllOfMatcher):
    """The state of one sequence. Laws: tests/laws.py. Implements `Rewinding`: no token is ever undoable, and tokens are
    unsettled only while it is not known whether the text that they made can still be completed."""

    __slots__ = ()
    _compiled: CompiledStrandingAllOf

    @property
    def unsettled(self) -> int:
        """See `Rewinding.unsettled`."""
        return self.stranded()

    def stranded(self) -> int:
        """How many of the last tokens made texts of which no completion is known."""
        if self._compiled.keeps:
            return EVERYTHING
        joint = self._compiled.joint
        if joint is None or self.is_finished:
            return 0
        walker: Matcher = self._inner
        while isinstance(walker, WrappingMatcher):
            walker = walker._inner
        if not isinstance(walker, AutomatonMatcher):
            raise AssertionError("a joint machine is walked by an AutomatonMatcher")
        count = 0
        while not joint.is_sure(walker.state_before(count)):  # the start is sure
            count += 1
        return count

    def undoable(self) -> Mask:
        """See `Rewinding.undoable`."""
        return masks.empty(self._vocab.width)

    def recall(self, token: int) -> Recall:
        """See `Rewinding.recall`."""
        raise ValueError(f"token {token} is not undoable here")
