"""How `After` reads a text up to the inner one, for one vocabulary: the text before the marker, then the gap.

It keeps no position: `AfterState` is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.automata.reasons.explain import PlainExplainer, blame
from espalier.constraints.after.border import Border, Landing
from espalier.constraints.after.marker import Waiting
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 32 * 2**20
IN_GAP = -1
"""`AfterState.at` behind the marker, while the inner text has not begun."""
INSIDE = -2
"""`AfterState.at` within the inner text."""


class AfterState(NamedTuple):
    """One state of an `AfterMatcher`.

    at: before the marker the state of its automaton (>= 0), else IN_GAP or INSIDE.
    gap: whitespace characters read since the marker.
    tokens: how many tokens the inner matcher took for the last token of the text.
    """

    at: int
    gap: int = 0
    tokens: int = 0


class MarkerWalk:
    """A marker and the border behind it. Only the cache of masks changes, which is bounded; safe across threads."""

    def __init__(self, spec: Spec, waiting: Waiting, border: Border, *, max_before: int | None) -> None:
        self.spec = spec
        self.vocab: Vocab = border.inner.vocab
        self.inner = border.inner
        self.waiting = waiting
        self.border = border
        self.max_before = max_before
        self._masks: ByteCache[tuple[int, bool], Mask] = ByteCache(CACHE_BYTES)

    @property
    def marker(self) -> str:
        """The marker in quotes, for messages."""
        return quoted(self.waiting.marker.decode())

    def machine(self, hurried: bool) -> RegularMachine:
        """The automaton of the text before the marker; hurried: the one with only the shortest ways to the marker."""
        hurry = self.waiting.hurry
        return hurry if hurried and hurry is not None else self.waiting.machine

    def hurried(self, count: int) -> bool:
        """Whether `max_before` is used up after `count` tokens, so that only the shortest way to the marker is left."""
        return self.max_before is not None and count >= self.max_before

    def follow(self, state: AfterState, token: int, hurried: bool) -> tuple[AfterState, tuple[int, ...]] | None:
        """The state after a token, from a state before the inner text, and the tokens that the inner matcher takes for
        it; None if the token is refused, and for EOS."""
        landing: Landing | None
        if state.at >= 0:
            # A special token that is the marker leads behind it at once, even after a part of the marker was written.
            walked = self.waiting.walk(self.machine(hurried and token not in self.waiting.specials), state.at, token)
            if walked is None:
                return None
            after, rest = walked
            if after != self.waiting.done:
                return AfterState(after), ()
            landing = self.border.land(rest)
        else:
            landing = self.border.take(token, state.gap)
        if landing is None:
            return None
        at = INSIDE if landing.tokens else IN_GAP
        return AfterState(at, landing.gap, len(landing.tokens)), landing.tokens

    def mask_before(self, at: int, hurried: bool) -> Mask:
        """The tokens allowed in a state before the marker, `(W,) int32`, shared."""
        mask = self._masks.get((at, hurried))
        if mask is None:
            waiting = self.waiting
            mask = self.machine(hurried).mask(at).copy()
            more = (*waiting.spanning, *waiting.specials)
            ids = tuple(token for token in more if self.follow(AfterState(at), token, hurried) is not None)
            masks.set_bits_inplace(mask, ids, True)
            mask.setflags(write=False)
            self._masks.put((at, hurried), mask, mask.nbytes)
        return mask

    def way(self, at: int, count: int) -> tuple[int, ...]:
        """A short way, in tokens, from a state before the marker to its last byte, after `count` tokens."""
        waiting = self.waiting
        ways = [] if self.hurried(count) else [waiting.shortest(waiting.machine, at)]
        # The way with the fewest tokens need not have the fewest bytes, and may be closed once `max_before` is used up.
        if not ways or (self.max_before is not None and count + len(ways[0]) > self.max_before):
            ways = [waiting.shortest(self.machine(True), at)]
            whole = (waiting.done, b"")
            ways += [(special,) for special in waiting.specials if waiting.walk(waiting.machine, at, special) == whole]
        return min(ways, key=len)

    def explain_before(self, at: int, token: int, hurried: bool) -> Blame:
        """Why a token is refused in a state before the marker. Raises NotAvailable."""
        member, waiting = self.spec.kind, self.waiting
        if token in self.vocab.eos_ids:
            return Blame(member=member, reason=f"the text must come to the marker {self.marker} first")
        free = waiting.walk(waiting.machine, at, token)
        bound = waiting.walk(waiting.machine if token in waiting.specials else self.machine(hurried), at, token)
        if free is not None and bound is None:
            why = blame(PlainExplainer(self.machine(True)), waiting.vocab, at, token, member)
            most = "nothing" if self.max_before == 0 else f"at most {self.max_before} tokens"
            return replace(why, reason=f"{most} may come before the marker {self.marker}: {why.reason}")
        if free is None:
            return blame(PlainExplainer(waiting.machine), waiting.vocab, at, token, member)
        rest = free[1]
        shift = len(waiting.vocab.bytes_of(token)) - len(rest)
        try:
            why = self.border.explain(rest, 0, member)
        except NotAvailable:
            shown = quoted(rest.decode("utf-8", "replace"))
            reason = f"behind the marker {self.marker} {self.inner.spec.kind} does not begin with {shown}"
            return Blame(member=f"{member}.{self.inner.spec.kind}", reason=reason)
        return why if why.offset is None else replace(why, offset=why.offset + shift)
