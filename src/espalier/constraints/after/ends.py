"""The ways to the end of a text that is to come to a marker first: which tokens leave how much. See `closing.py`.

Up to the marker the waiting automaton is asked, behind it the inner constraint. It knows no limit on tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings
from espalier.automata.masks.regular import RegularMachine
from espalier.constraints.after.border import Border, advanced
from espalier.constraints.after.marker import Waiting
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.closing import closing, is_loose, known, within
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 16 * 2**20
MATCHER_BYTES = 2000
"""What an inner matcher is taken to hold, for the cache."""

Tokens = tuple[int, ...]


class Place(Protocol):
    """A place of `matcher.py`. at: the automaton's state, negative behind the marker."""

    @property
    def at(self) -> int: ...

    @property
    def gap(self) -> int: ...


class Marked(Protocol):
    """What is asked of `after_matcher.AfterCompiled`; its methods are described there."""

    vocab: Vocab
    inner: Compiled
    waiting: Waiting
    border: Border

    def machine(self, hurried: bool) -> RegularMachine: ...

    def hurried(self, count: int) -> bool: ...

    def follow(self, place: Any, token: int, hurried: bool) -> tuple[Place, Tokens] | None: ...

    def way(self, at: int, count: int) -> Tokens: ...


class AfterEnds:
    """Of one compiled constraint. Remembers within bounds; safe across threads."""

    def __init__(self, compiled: Marked) -> None:
        self._compiled = compiled
        self._start = compiled.inner.matcher()
        self.shortest = known(self._start)
        """The inner constraint's completion; None where it knows none."""
        self._inners: ByteCache[Tokens, Matcher] = ByteCache(CACHE_BYTES)
        self._landings: ByteCache[tuple[int, bool], Landings] = ByteCache(CACHE_BYTES)
        self._crossing: ByteCache[tuple[int, bool], tuple[tuple[int, Place, Tokens], ...]] = ByteCache(CACHE_BYTES)
        self._leading: dict[int, tuple[tuple[int, Tokens], ...]] = {}

    def is_loose(self, place: Place, count: int, most: int) -> bool:
        """See `Closing`; before the inner text has begun. count: tokens so far."""
        if self.shortest is None or len(self.shortest) > most:
            return False
        if place.at < 0:
            inner: Iterable[Tokens] = (tokens for _, tokens in self._leading_at(place.gap))
            return is_loose(self._start, most) and all(self._fits(tokens, most) for tokens in inner)
        compiled = self._compiled
        # A hurried way has no more bytes than the free one.
        return compiled.waiting.machine.stays_near(place.at, most - len(self.shortest)) and all(
            self._place_fits(after, tokens, count + 1, most)
            for _, after, tokens in self._crossing_at(place, compiled.hurried(count))
        )

    def closing(self, place: Place, count: int, most: int) -> Mask:
        """As `is_loose`."""
        compiled = self._compiled
        width = compiled.vocab.width
        if place.at < 0:
            found = closing(self._start.fork(), most, width)
            more = tuple(token for token, tokens in self._leading_at(place.gap) if self._fits(tokens, most))
            masks.set_bits_inplace(found, more, True)
            return found
        hurried = compiled.hurried(count)
        flags = np.zeros(width, dtype=np.bool_)  # (V,)
        landings = self._landings_at(place.at, hurried)
        near = np.array([self._waits(state, count + 1, most) for state in landings.states], dtype=np.bool_)
        if near.size:
            flags[landings.ids[near[landings.which]]] = True
        for token, after, tokens in self._crossing_at(place, hurried):
            flags[token] = self._place_fits(after, tokens, count + 1, most)
        return masks.from_bool(flags)

    def within(self, place: Place, count: int, most: int) -> Tokens | None:
        """As `is_loose`."""
        if place.at < 0:
            return self.shortest if self.shortest is not None and len(self.shortest) <= most else None
        if not self._waits(place.at, count, most) or self.shortest is None:
            return None
        return (*self._compiled.way(place.at, count), *self.shortest)

    def _waits(self, at: int, count: int, most: int) -> bool:
        if self.shortest is None or len(self.shortest) > most:
            return False
        return len(self._compiled.way(at, count)) + len(self.shortest) <= most

    def _place_fits(self, place: Place, tokens: Tokens, count: int, most: int) -> bool:
        return self._waits(place.at, count, most) if place.at >= 0 else self._fits(tokens, most)

    def _fits(self, tokens: Tokens, most: int) -> bool:
        """Whether the inner text is completed within `most` once it has begun like this."""
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
        """The tokens that begin with whitespace before the inner text, and what the inner matcher takes of each."""
        found = self._leading.get(gap)
        if found is None:
            border, width = self._compiled.border, self._compiled.vocab.width
            ids = masks.allowed_ids(border.mask(gap) & ~self._start.mask(), width).tolist()
            landed = ((token, border.take(token, gap)) for token in ids)
            found = self._leading[gap] = tuple((token, to.tokens) for token, to in landed if to is not None)
        return found

    def _landings_at(self, at: int, hurried: bool) -> Landings:
        found = self._landings.get((at, hurried))
        if found is None:
            found = self._compiled.machine(hurried).landings(at)
            self._landings.put((at, hurried), found, found.ids.nbytes + found.which.nbytes)
        return found

    def _crossing_at(self, place: Place, hurried: bool) -> tuple[tuple[int, Place, Tokens], ...]:
        """The tokens that the automaton alone does not tell of: those that go on behind the marker, or are it."""
        key = (place.at, hurried)
        found = self._crossing.get(key)
        if found is None:
            waiting = self._compiled.waiting
            ids = dict.fromkeys((*waiting.spanning, *waiting.specials))
            followed = ((token, self._compiled.follow(place, token, hurried)) for token in ids)
            found = tuple((token, *to) for token, to in followed if to is not None)
            self._crossing.put(key, found, 200 * len(found))
        return found
