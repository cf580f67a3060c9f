"""Matchers of `AllOf` whose members rewind, or may reach a dead end: over an intersection, or with members in parallel.

In parallel, the mask is what all members allow, which may be empty before the text is complete. Members are used
through the interfaces of `base.py` and `matching/rewinding.py` alone. It does not know the strategy that undoes tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Self, cast

import numpy as np

from espalier.automata.joint.machine import JointMachine
from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compose.all_of_matcher import AllOfMatcher
from espalier.constraints.compose.stranding import CompiledStrandingAllOf, StrandingAllOfMatcher
from espalier.constraints.matching.base import AnyCompiled, MatcherBase, blame_of
from espalier.constraints.matching.closing import known
from espalier.constraints.matching.parallel import CompiledParallel, ParallelMatcher
from espalier.constraints.matching.rewinding import EVERYTHING, Recall, RewindingMatcher
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable, UnsupportedError
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.wording import OptionText, Setting

NOT_KNOWN = "the members have no automaton in common"


def _as_rewinding(matcher: Matcher) -> RewindingMatcher:
    if not isinstance(matcher, RewindingMatcher):
        raise AssertionError(f"{type(matcher).__name__} cannot rewind, although its spec says so")
    return matcher


class RewindingMembers(MatcherBase[AnyCompiled]):
    """Implements `Rewinding` over members of which some are `Rewinding`. A token is undoable if every member allows it
    or finds it undoable; the member that undoes most tokens decides how many go back."""

    __slots__ = ()

    @abstractmethod
    def rewinding(self) -> Sequence[tuple[str, RewindingMatcher]]:
        """The members that rewind, by name."""

    @abstractmethod
    def strict(self) -> Sequence[Matcher]:
        """Matchers of the other members, or one matcher of their intersection."""

    @property
    def unsettled(self) -> int:
        """See `Rewinding.unsettled`."""
        return self.pending()

    def pending(self) -> int:
        """How many tokens the members may still undo."""
        return max((member.unsettled for _, member in self.rewinding()), default=0)

    def undoable(self) -> Mask:
        """See `Rewinding.undoable`."""
        members = [member for _, member in self.rewinding()]
        mask = reduce(np.bitwise_or, [member.undoable() for member in members], masks.empty(self._vocab.width))
        if not mask.any():  # the usual case: the other members need not be asked
            return mask
        np.bitwise_and(mask, ~self.mask(), out=mask)
        for member in members:
            np.bitwise_and(mask, member.mask() | member.undoable(), out=mask)
        for other in self.strict():
            np.bitwise_and(mask, other.mask(), out=mask)
        return mask

    def recall(self, token: int) -> Recall:
        """See `Rewinding.recall`."""
        if not masks.test(self.undoable(), token):
            raise ValueError(f"token {token} is not undoable here")
        recalls = [
            (name, member.recall(token)) for name, member in self.rewinding() if masks.test(member.undoable(), token)
        ]
        name, farthest = max(recalls, key=lambda pair: pair[1].count)  # the first of equal ones
        return replace(farthest, blame=replace(farthest.blame, member=name))


class CompiledRewindingAllOf(CompiledStrandingAllOf):
    """Members as one of which some rewind."""

    def __init__(
        self,
        whole: Compiled,
        names: Sequence[str],
        make: Callable[[], list[Compiled]],
        *,
        rewinding: Sequence[tuple[str, Compiled]],
        rest: Compiled | None,
        joint: JointMachine | None,
        keeps: bool,
    ) -> None:
        """whole: all members as one. rewinding: the members that rewind, by name. rest: the others as one, None where
        there are none."""
        super().__init__(whole, names, make, joint, keeps=keeps)
        self.rewinding = tuple(rewinding)
        self.rest = rest

    def matcher(self, *, before: str = "") -> RewindingAllOfMatcher:
        return RewindingAllOfMatcher(self, self.whole.matcher(before=before))


class RewindingAllOfMatcher(RewindingMembers[CompiledRewindingAllOf], StrandingAllOfMatcher):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_rest", "_rest_seen", "_rewinding")
    _compiled: CompiledRewindingAllOf

    def __init__(self, compiled: CompiledRewindingAllOf, whole: Matcher) -> None:
        StrandingAllOfMatcher.__init__(self, compiled, whole)
        self._rewinding = [(name, _as_rewinding(member.matcher())) for name, member in compiled.rewinding]
        self._rest = None if compiled.rest is None else compiled.rest.matcher()
        self._rest_seen = 0  # how many tokens it has taken: it follows when it is asked

    def advance(self, token: int) -> None:
        super().advance(token)
        for _, member in self._rewinding:
            member.advance(token)  # takes whatever the whole takes

    def rollback(self, count: int) -> None:
        super().rollback(count)
        for _, member in self._rewinding:
            member.rollback(count)
        left = len(self._tokens)
        if self._rest is not None and self._rest_seen > left:
            self._rest.rollback(self._rest_seen - left)
            self._rest_seen = left

    def fork(self) -> Self:
        other = super().fork()
        other._rewinding = [(name, _as_rewinding(member.fork())) for name, member in self._rewinding]
        other._rest = None if self._rest is None else self._rest.fork()
        other._rest_seen = self._rest_seen
        return other

    @property
    def unsettled(self) -> int:
        return max(self.pending(), self.stranded())

    def rewinding(self) -> Sequence[tuple[str, RewindingMatcher]]:
        return self._rewinding

    def strict(self) -> Sequence[Matcher]:
        if self._rest is None:
            return ()
        for token in self._tokens[self._rest_seen :]:
            self._rest.advance(token)
        self._rest_seen = len(self._tokens)
        return (self._rest,)


class CompiledSideBySide(CompiledParallel):
    """Members that must all take a token, in order of blame. may_strand: whether there may be no token that all of them
    take, so that tokens may have to be undone."""

    def __init__(
        self,
        spec: Spec,
        names: Sequence[str],
        members: Sequence[Compiled],
        *,
        may_strand: bool,
        keeps: bool = False,
        order: Sequence[str] = (),
    ) -> None:
        """keeps: see `CompiledStrandingAllOf`. order: the names of the members in order of blame, those of members that
        run as one each by itself; by default `names`."""
        super().__init__(spec, names, members)
        self.may_strand = may_strand
        self.keeps = keeps
        self.order = {name: place for place, name in enumerate(order or names)}

    def matcher(self, *, before: str = "") -> SideBySideMatcher:
        """See `Compiled.matcher`. Raises UnsupportedError, naming the members, where it is not known that any text
        satisfies all of them, unless the whole text may go back."""
        matcher = SideBySideMatcher(self, [member.matcher(before=before) for member in self.members])
        if not self.keeps and not matcher.has_common_end():
            names = " and ".join(self.names)
            raise UnsupportedError(
                f"{names} cannot be joined: no text is known that satisfies all of them, and they have no automaton in "
                "common in which to search for one",
                hint=OptionText(
                    "put one inside the other, such as After(marker, AllOf(constraint, filter)); or accept that text "
                    "is taken back where it leads nowhere: ",
                    Setting("dead_ends", "rewind"),
                ),
                field="members",
            )
        return matcher

    def accepts(self, text: str | bytes) -> bool:
        return all(member.accepts(text) for member in self.members)


class SideBySideMatcher(RewindingMembers[CompiledSideBySide], ParallelMatcher[CompiledSideBySide]):
    """The state of one sequence. Laws: tests/laws.py, except that the mask may be empty before the text is complete,
    because the members may allow different tokens; for the same reason no shortest completion is known. Tokens are
    unsettled while no member's own completion is one of the others too."""

    __slots__ = ("_rewinds", "_sure")

    UNITE = np.bitwise_and

    def __init__(self, compiled: CompiledSideBySide, members: Sequence[Matcher]) -> None:
        ParallelMatcher.__init__(self, compiled, members)
        self._rewinds = tuple(isinstance(member, RewindingMatcher) for member in members)
        self._sure: dict[int, bool] = {}  # by the number of tokens taken: whether a common end was found

    def rollback(self, count: int) -> None:
        super().rollback(count)
        self._sure = {taken: sure for taken, sure in self._sure.items() if taken <= len(self._history)}

    def fork(self) -> Self:
        other = super().fork()
        other._rewinds = self._rewinds
        other._sure = self._sure.copy()
        return other

    @property
    def is_accepting(self) -> bool:
        return all(member.is_accepting for member in self._living())

    def _takers(self, token: int) -> tuple[int, ...]:
        return self._alive if all(member.allows(token) for member in self._living()) else ()

    def forced(self) -> tuple[int, ...]:
        return ()  # another member may refuse what one member forces

    def shortest_completion(self) -> tuple[int, ...]:
        raise NotAvailable(f"how {' and '.join(self._compiled.names)} end together cannot be known: {NOT_KNOWN}")

    # A completion that one member knows need not be one of the others.
    is_loose, closing, within = MatcherBase.is_loose, MatcherBase.closing, MatcherBase.within

    def _blame(self, token: int) -> Blame:
        """The blame of the first member that refuses the token."""
        for name, member in self._singles():
            if not member.allows(token):
                return blame_of(member, name, token)
        refusing = next(member for member in self._living() if not member.allows(token))
        return replace(refusing.explain(token), member=self._kind)  # only together do they refuse it

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `base.Composite`."""
        return [*((name, member.mask()) for name, member in self._singles()), (self._kind, self.mask())]

    def _singles(self) -> list[tuple[str, Matcher]]:
        """Every member by itself, in order of blame."""
        singles: list[tuple[str, Matcher]] = []
        for name, member in zip(self._compiled.names, self._living(), strict=True):
            singles += member.singles() if isinstance(member, AllOfMatcher) else [(name, member)]
        order = self._compiled.order
        return sorted(singles, key=lambda single: order.get(single[0], len(order)))

    def rewinding(self) -> Sequence[tuple[str, RewindingMatcher]]:
        members = zip(self._compiled.names, self._living(), self._rewinds, strict=True)
        return [(name, cast(RewindingMatcher, member)) for name, member, rewinds in members if rewinds]

    def strict(self) -> Sequence[Matcher]:
        return [member for member, rewinds in zip(self._living(), self._rewinds, strict=True) if not rewinds]

    @property
    def unsettled(self) -> int:
        if self._compiled.keeps:
            return EVERYTHING
        own = self.pending()
        if not self._compiled.may_strand or self.is_finished:
            return own
        taken = len(self._history)
        if taken not in self._sure:
            self._sure[taken] = self.has_common_end()
        return max(own, taken - max((count for count, sure in self._sure.items() if sure), default=0))

    def has_common_end(self) -> bool:
        """Whether the text is complete, or the shortest completion of one member is one of all others."""
        if self.is_accepting:
            return True
        for member in self._living():
            completion = known(member)
            if completion is not None and self._all_take(completion):
                return True
        return False

    def _all_take(self, tokens: Sequence[int]) -> bool:
        for member in self._living():
            ahead = member.fork()
            for token in tokens:
                if not ahead.allows(token):
                    return False
                ahead.advance(token)
        return True
