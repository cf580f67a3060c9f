"""Matchers of several members of which some take text back: an automaton of all where there is one, else side by side.

Members are used through the contracts of `base.py` and `rewinding.py` alone. Side by side the mask is what all of them
allow, which may be nothing before the text is complete. It does not know who takes the text back then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.automaton_matcher import AutomatonCompiled, AutomatonMatcher
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compose.all_of_matcher import AllOfCompiled, AllOfMatcher
from espalier.constraints.refusal import refusal
from espalier.constraints.rewinding import EVERYTHING, Recall, RewindingMatcher
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable, SpecError
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

NOT_KNOWN = "the members have no automaton in common"


def _lured(matcher: Matcher) -> RewindingMatcher:
    if not isinstance(matcher, RewindingMatcher):
        raise AssertionError(f"{type(matcher).__name__} cannot take text back, as its spec says it does")
    return matcher


class Luring:
    """What members of which some are `Rewinding` say together: a token is tried where each member allows it or is
    tempted by it, and of those it tempts, the one that goes back farthest counts."""

    __slots__ = ()

    @property
    def _width(self) -> int:
        """V."""
        raise NotImplementedError

    def mask(self) -> Mask:
        """As in `Matcher`."""
        raise NotImplementedError

    def lured(self) -> Sequence[tuple[str, RewindingMatcher]]:
        """The members that may go back, by name."""
        raise NotImplementedError

    def unwilling(self) -> Sequence[Matcher]:
        """The others, or one that is all of them."""
        raise NotImplementedError

    @property
    def unsettled(self) -> int:
        """See `Rewinding.unsettled`."""
        return max((one.unsettled for _, one in self.lured()), default=0)

    def tempting(self) -> Mask:
        """See `Rewinding.tempting`."""
        members = [one for _, one in self.lured()]
        found = reduce(np.bitwise_or, [one.tempting() for one in members], masks.empty(self._width))
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


class LuringAllOfMatcher(Luring, AllOfMatcher):
    """One sequence's state. Laws: tests/laws.py; the mask is the whole's, so there are no traps."""

    def __init__(self, compiled: LuringAllOfCompiled, whole: AutomatonMatcher) -> None:
        super().__init__(compiled, whole)
        self._luring = compiled
        self._lured = [(name, _lured(one.matcher())) for name, one in compiled.lured]
        self._rest = None if compiled.rest is None else compiled.rest.matcher()
        self._rest_seen = 0  # how many tokens it has taken: it follows when it is asked

    @property
    def _width(self) -> int:
        return self._luring.vocab.width

    def mask(self) -> Mask:
        return AllOfMatcher.mask(self)

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

    def fork(self) -> LuringAllOfMatcher:
        other = LuringAllOfMatcher(self._luring, self._whole.fork())
        other._follow(self)
        other._lured = [(name, _lured(one.fork())) for name, one in self._lured]
        other._rest = None if self._rest is None else self._rest.fork()
        other._rest_seen = self._rest_seen
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


class SideBySideCompiled:
    """Members that go along with one another, by name in order of blame. may_strand: whether what they leave may be
    nothing, so that any token may have to go back. Raises SpecError where two spell one token differently."""

    def __init__(self, spec: Spec, names: Sequence[str], members: Sequence[Compiled], *, may_strand: bool) -> None:
        self.spec = spec
        self.names = tuple(names)
        self.members = tuple(members)
        self.may_strand = may_strand
        self.vocab: Vocab = members[0].vocab
        self.spelled: Mapping[int, bytes] = _united(self.names, self.members)

    def matcher(self, *, before: str = "") -> SideBySideMatcher:
        return SideBySideMatcher(self, [one.matcher(before=before) for one in self.members])

    def accepts(self, text: str | bytes) -> bool:
        return all(one.accepts(text) for one in self.members)


def _united(names: Sequence[str], members: Sequence[Compiled]) -> dict[int, bytes]:
    found: dict[int, tuple[str, bytes]] = {}
    for name, member in zip(names, members, strict=True):
        for token, data in member.spelled.items():
            other, spelling = found.setdefault(token, (name, data))
            if spelling != data:
                raise SpecError(
                    f"token {token} is {spelling!r} in the text of {other}, and {data!r} in that of {name}",
                    field="members",
                )
    return {token: data for token, (_, data) in found.items()}


class SideBySideMatcher(Luring):
    """One sequence's state. Laws: tests/laws.py, but for traps: what each member could go on with need not be the same,
    so the mask may be empty before the text is complete, and no completion is known."""

    __slots__ = ("_compiled", "_lured", "_members", "_taken", "_unwilling")

    def __init__(self, compiled: SideBySideCompiled, members: Sequence[Matcher]) -> None:
        self._compiled = compiled
        self._members = tuple(members)
        named = zip(compiled.names, members, strict=True)
        self._lured = [(name, one) for name, one in named if isinstance(one, RewindingMatcher)]
        self._unwilling = [one for one in members if not isinstance(one, RewindingMatcher)]
        self._taken = 0  # tokens, EOS too

    @property
    def _width(self) -> int:
        return self._compiled.vocab.width

    @property
    def is_accepting(self) -> bool:
        return all(one.is_accepting for one in self._members)

    @property
    def is_finished(self) -> bool:
        return self._members[0].is_finished

    def mask(self) -> Mask:
        found = [one.mask() for one in self._members]
        return reduce(lambda one, other: np.bitwise_and(one, other, out=one), found)

    def allows(self, token: int) -> bool:
        return all(one.allows(token) for one in self._members)

    def advance(self, token: int) -> None:
        if not self.allows(token):
            raise refusal(self._compiled.vocab, token, self._compiled.spec.kind, is_finished=self.is_finished)
        for one in self._members:
            one.advance(token)
        self._taken += 1

    def rollback(self, count: int) -> None:
        if not 0 <= count <= self._taken:
            raise ValueError(f"cannot undo {count} of {self._taken} tokens")
        for one in self._members:
            one.rollback(count)
        self._taken -= count

    def fork(self) -> SideBySideMatcher:
        other = SideBySideMatcher(self._compiled, [one.fork() for one in self._members])
        other._taken = self._taken
        return other

    def forced(self) -> tuple[int, ...]:
        return ()  # what one member forces, another may refuse

    def shortest_completion(self) -> tuple[int, ...]:
        raise NotAvailable(f"how {' and '.join(self._compiled.names)} end together cannot be known: {NOT_KNOWN}")

    def explain(self, token: int) -> Blame:
        """By the first member that refuses it."""
        for name, member in zip(self._compiled.names, self._members, strict=True):
            if member.allows(token):
                continue
            try:
                return replace(member.explain(token), member=name)
            except NotAvailable:
                return Blame(member=name, reason="it refuses this token and cannot say why")
        raise ValueError(f"token {token} is allowed")

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `base.Composite`; together they refuse nothing that none of them does."""
        found = [(name, one.mask()) for name, one in zip(self._compiled.names, self._members, strict=True)]
        return [*found, (self._compiled.spec.kind, self.mask())]

    def lured(self) -> Sequence[tuple[str, RewindingMatcher]]:
        return self._lured

    def unwilling(self) -> Sequence[Matcher]:
        return self._unwilling

    @property
    def unsettled(self) -> int:
        return EVERYTHING if self._compiled.may_strand else super().unsettled
