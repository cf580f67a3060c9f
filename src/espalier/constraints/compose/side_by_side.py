"""Matchers of several members of which some take text back: an automaton of all where there is one, else side by side.

Members are used through the contracts of `base.py` and `rewinding.py` alone. Side by side the mask is what all of them
allow, which may be nothing before the text is complete. It does not know who takes the text back then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Self, cast

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.automaton_matcher import AutomatonCompiled, AutomatonMatcher
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compose.all_of_matcher import AllOfCompiled, AllOfMatcher
from espalier.constraints.matcher_base import AnyCompiled, MatcherBase
from espalier.constraints.parallel import ParallelCompiled, ParallelMatcher
from espalier.constraints.rewinding import EVERYTHING, Recall, RewindingMatcher
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

NOT_KNOWN = "the members have no automaton in common"


def _lured(matcher: Matcher) -> RewindingMatcher:
    if not isinstance(matcher, RewindingMatcher):
        raise AssertionError(f"{type(matcher).__name__} cannot take text back, as its spec says it does")
    return matcher


class Luring(MatcherBase[AnyCompiled]):
    """The methods of `Rewinding` for members of which some are `Rewinding`: a token may be tried where each member
    allows it or may try it, and of those that would take it back, the one that goes back farthest counts."""

    __slots__ = ()

    @abstractmethod
    def lured(self) -> Sequence[tuple[str, RewindingMatcher]]:
        """The members that may go back, by name."""

    @abstractmethod
    def unwilling(self) -> Sequence[Matcher]:
        """The others, or one that is all of them."""

    @property
    def unsettled(self) -> int:
        """See `Rewinding.unsettled`."""
        return max((one.unsettled for _, one in self.lured()), default=0)

    def tempting(self) -> Mask:
        """See `Rewinding.tempting`."""
        members = [one for _, one in self.lured()]
        found = reduce(np.bitwise_or, [one.tempting() for one in members], masks.empty(self._vocab.width))
        if not found.any():  # mostly; the others need not be asked then
            return found
        np.bitwise_and(found, ~self.mask(), out=found)
        for one in members:
            np.bitwise_and(found, one.mask() | one.tempting(), out=found)
        for other in self.unwilling():
            np.bitwise_and(found, other.mask(), out=found)
        return found

    def recall(self, token: int) -> Recall:
        """See `Rewinding.recall`."""
        if not masks.test(self.tempting(), token):
            raise ValueError(f"token {token} is not to be tried here")
        found = [(name, one.recall(token)) for name, one in self.lured() if masks.test(one.tempting(), token)]
        name, farthest = max(found, key=lambda pair: pair[1].count)  # the first of equal ones
        return replace(farthest, blame=replace(farthest.blame, member=name))


class LuringAllOfCompiled(AllOfCompiled):
    """Members made one, of which some take text back."""

    def __init__(
        self,
        whole: AutomatonCompiled,
        names: Sequence[str],
        make: Callable[[], list[Compiled]],
        *,
        lured: Sequence[tuple[str, Compiled]],
        rest: Compiled | None,
    ) -> None:
        """whole: of the texts that all accept. lured: the members that take text back. rest: the automaton of the
        others, None where there are none."""
        super().__init__(whole, names, make)
        self.lured = tuple(lured)
        self.rest = rest

    def matcher(self, *, before: str = "") -> LuringAllOfMatcher:
        return LuringAllOfMatcher(self, self.whole.matcher(before=before))


class LuringAllOfMatcher(Luring[LuringAllOfCompiled], AllOfMatcher):
    """One sequence's state. Laws: tests/laws.py; the mask is the whole's, so there are no traps."""

    __slots__ = ("_lured", "_rest", "_rest_seen")
    _compiled: LuringAllOfCompiled

    def __init__(self, compiled: LuringAllOfCompiled, whole: AutomatonMatcher) -> None:
        AllOfMatcher.__init__(self, compiled, whole)
        self._lured = [(name, _lured(one.matcher())) for name, one in compiled.lured]
        self._rest = None if compiled.rest is None else compiled.rest.matcher()
        self._rest_seen = 0  # how many tokens it has taken: it follows when it is asked

    def advance(self, token: int) -> None:
        super().advance(token)
        for _, one in self._lured:
            one.advance(token)  # takes whatever the whole takes

    def rollback(self, count: int) -> None:
        super().rollback(count)
        for _, one in self._lured:
            one.rollback(count)
        kept = len(self._tokens)
        if self._rest is not None and self._rest_seen > kept:
            self._rest.rollback(self._rest_seen - kept)
            self._rest_seen = kept

    def fork(self) -> Self:
        other = super().fork()
        other._lured = [(name, _lured(one.fork())) for name, one in self._lured]
        other._rest = None if self._rest is None else self._rest.fork()
        return other

    def lured(self) -> Sequence[tuple[str, RewindingMatcher]]:
        return self._lured

    def unwilling(self) -> Sequence[Matcher]:
        if self._rest is None:
            return ()
        for token in self._tokens[self._rest_seen :]:
            self._rest.advance(token)
        self._rest_seen = len(self._tokens)
        return (self._rest,)


class SideBySideCompiled(ParallelCompiled):
    """Members that all must take a token, in order of blame. may_strand: whether the tokens that all of them take may
    be none, so that any token may have to go back."""

    def __init__(self, spec: Spec, names: Sequence[str], members: Sequence[Compiled], *, may_strand: bool) -> None:
        super().__init__(spec, names, members)
        self.may_strand = may_strand

    def matcher(self, *, before: str = "") -> SideBySideMatcher:
        return SideBySideMatcher(self, [one.matcher(before=before) for one in self.members])

    def accepts(self, text: str | bytes) -> bool:
        return all(one.accepts(text) for one in self.members)


class SideBySideMatcher(Luring[SideBySideCompiled], ParallelMatcher[SideBySideCompiled]):
    """One sequence's state. Laws: tests/laws.py, but for traps: what each member could go on with need not be the same,
    so the mask may be empty before the text is complete, and no completion is known."""

    __slots__ = ("_rewinding",)

    UNITE = np.bitwise_and

    def __init__(self, compiled: SideBySideCompiled, members: Sequence[Matcher]) -> None:
        ParallelMatcher.__init__(self, compiled, members)
        self._rewinding = tuple(isinstance(one, RewindingMatcher) for one in members)

    @property
    def is_accepting(self) -> bool:
        return all(one.is_accepting for one in self._living())

    def _takers(self, token: int) -> tuple[int, ...]:
        return self._alive if all(one.allows(token) for one in self._living()) else ()

    def forced(self) -> tuple[int, ...]:
        return ()  # what one member forces, another may refuse

    def shortest_completion(self) -> tuple[int, ...]:
        raise NotAvailable(f"how {' and '.join(self._compiled.names)} end together cannot be known: {NOT_KNOWN}")

    # A completion that one member knows need not be one of the others.
    is_loose, closing, within = MatcherBase.is_loose, MatcherBase.closing, MatcherBase.within

    def _blame(self, token: int) -> Blame:
        """By the first member that refuses it."""
        return self._blame_of(next(at for at in self._alive if not self._member(at).allows(token)), token)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `base.Composite`; together they refuse nothing that none of them does."""
        found = [(name, one.mask()) for name, one in zip(self._compiled.names, self._living(), strict=True)]
        return [*found, (self._kind, self.mask())]

    def lured(self) -> Sequence[tuple[str, RewindingMatcher]]:
        found = zip(self._compiled.names, self._living(), self._rewinding, strict=True)
        return [(name, cast(RewindingMatcher, one)) for name, one, rewinds in found if rewinds]

    def unwilling(self) -> Sequence[Matcher]:
        return [one for one, rewinds in zip(self._living(), self._rewinding, strict=True) if not rewinds]

    @property
    def unsettled(self) -> int:
        return EVERYTHING if self._compiled.may_strand else super().unsettled
