"""Completions of `After` within a token limit: which tokens leave one that is short enough. See `matching/closing.py`.

Before the marker they come from the waiting automaton, behind it from the inner constraint.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings
from espalier.constraints.after.border import advanced
from espalier.constraints.after.walk import AfterState, MarkerWalk
from espalier.constraints.base import Matcher
from espalier.constraints.matching.closing import closing, is_loose, known, within
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

CACHE_BYTES = 16 * 2**20
MATCHER_BYTES = 2000
"""Assumed size of an inner matcher, for the cache's bound."""

Tokens = tuple[int, ...]


class AfterEnds:
    """The completions of one compiled constraint. Its caches are bounded; safe across threads."""

    def __init__(self, compiled: MarkerWalk) -> None:
        self._compiled = compiled
        self._start = compiled.inner.matcher()
        self.shortest = known(compiled.border)
        """The inner constraint's shortest completion; None if it knows none."""
        self._inners: ByteCache[Tokens, Matcher] = ByteCache(CACHE_BYTES)
        self._landings: ByteCache[tuple[int, bool], Landings] = ByteCache(CACHE_BYTES)
        self._crossing: ByteCache[tuple[int, bool], tuple[tuple[int, AfterState, Tokens], ...]] = ByteCache(CACHE_BYTES)
        self._leading: dict[int, tuple[tuple[int, Tokens], ...]] = {}

    def is_loose(self, state: AfterState, count: int, most: int) -> bool:
        """See `Closing.is_loose`, before the inner text has begun. count: tokens so far."""
        if self.shortest is None or len(self.shortest) > most:
            return False
        if state.at < 0:
            inner: Iterable[Tokens] = (tokens for _, tokens in self._leading_at(state.gap))
            return is_loose(self._start, most) and all(self._fits(tokens, most) for tokens in inner)
        compiled = self._compiled
        # Once `max_before` tokens are used, the way to the marker has no more bytes than before.
        return compiled.waiting.machine.stays_near(state.at, most - len(self.shortest)) and all(
            self._state_fits(after, tokens, count + 1, most)
            for _, after, tokens in self._crossing_at(state, compiled.hurried(count))
        )

    def closing(self, state: AfterState, count: int, most: int) -> Mask:
        """See `Closing.closing`, as for `is_loose`."""
        compiled = self._compiled
        width = compiled.vocab.width
        if state.at < 0:
            mask = closing(self._start.fork(), most, width) & compiled.border.inner_mask
            more = tuple(token for token, tokens in self._leading_at(state.gap) if self._fits(tokens, most))
            masks.set_bits_inplace(mask, more, True)
            return mask
        hurried = compiled.hurried(count)
        flags = np.zeros(width, dtype=np.bool_)  # (V,)
        landings = self._landings_at(state.at, hurried)
        near = np.array([self._waits(state, count + 1, most) for state in landings.states], dtype=np.bool_)
        if near.size:
            flags[landings.ids[near[landings.which]]] = True
        for token, after, tokens in self._crossing_at(state, hurried):
            flags[token] = self._state_fits(after, tokens, count + 1, most)
        return masks.from_bool(flags)

    def within(self, state: AfterState, count: int, most: int) -> Tokens | None:
        """See `Closing.within`, as for `is_loose`."""
        if state.at < 0:
            return self.shortest if self.shortest is not None and len(self.shortest) <= most else None
        if not self._waits(state.at, count, most) or self.shortest is None:
            return None
        return (*self._compiled.way(state.at, count), *self.shortest)

    def _waits(self, at: int, count: int, most: int) -> bool:
        if self.shortest is None or len(self.shortest) > most:
            return False
        return len(self._compiled.way(at, count)) + len(self.shortest) <= most

    def _state_fits(self, state: AfterState, tokens: Tokens, count: int, most: int) -> bool:
        return self._waits(state.at, count, most) if state.at >= 0 else self._fits(tokens, most)

    def _fits(self, tokens: Tokens, most: int) -> bool:
        """Whether the inner text, begun with `tokens`, has a completion of at most `most` tokens."""
        if not tokens:
            return self.shortest is not None and len(self.shortest) <= most
        inner = self._inners.get(tokens)
        if inner is None:
            inner = self._start.fork()
            if not advanced(inner, tokens):
                raise AssertionError("the inner constraint refuses what it took before")
            self._inners.put(tokens, inner, MATCHER_BYTES)
        return within(inner.fork(), most) is not None

    def _leading_at(self, gap: int) -> tuple[tuple[int, Tokens], ...]:
        """The tokens that begin with whitespace of the gap, each with what the inner matcher takes for it."""
        leading = self._leading.get(gap)
        if leading is None:
            border, width = self._compiled.border, self._compiled.vocab.width
            ids = masks.allowed_ids(border.gap_mask(gap), width).tolist()
            landed = ((token, border.take(token, gap)) for token in ids)
            leading = self._leading[gap] = tuple((token, to.tokens) for token, to in landed if to is not None)
        return leading

    def _landings_at(self, at: int, hurried: bool) -> Landings:
        landings = self._landings.get((at, hurried))
        if landings is None:
            landings = self._compiled.machine(hurried).landings(at)
            self._landings.put((at, hurried), landings, landings.ids.nbytes + landings.which.nbytes)
        return landings

    def _crossing_at(self, state: AfterState, hurried: bool) -> tuple[tuple[int, AfterState, Tokens], ...]:
        """The tokens that leave the waiting automaton: those that end the marker and go on, and special tokens that are
        the marker; each with its next state and the tokens that the inner matcher takes."""
        key = (state.at, hurried)
        crossing = self._crossing.get(key)
        if crossing is None:
            waiting = self._compiled.waiting
            ids = dict.fromkeys((*waiting.spanning, *waiting.specials))
            followed = ((token, self._compiled.follow(state, token, hurried)) for token in ids)
            crossing = tuple((token, *to) for token, to in followed if to is not None)
            self._crossing.put(key, crossing, 200 * len(crossing))
        return crossing
