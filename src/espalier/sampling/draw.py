"""Draw one token from logits, with one reproducible random stream per sequence.

The stream is a function of (seed, sequence number, draw number) only: it does not depend on the rest of a batch, and a
rollback resets a counter.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.errors import BadLogits, DeadEnd
from espalier.tokens.mask import Logits

BLOCK = 256  # uniforms generated at a time


class DrawnToken(NamedTuple):
    """The taken token with its probability and its logit after the samplers; and the candidates that it was drawn from:
    `(n,)` ids, ascending, with float64 probabilities and float32 logits."""

    token: int
    prob: float
    logit: float
    ids: NDArray[np.intp]
    probs: NDArray[np.float64]
    logits: NDArray[np.float32]


class RandomStream:
    """Uniform numbers in [0, 1), one per draw."""

    __slots__ = ("_block", "_block_index", "count", "seed", "stream")

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.seed = seed
        self.stream = stream
        self.count = 0  # draws so far
        self._block_index = -1
        self._block: NDArray[np.float64] = np.empty(0)  # (BLOCK,)

    def next(self) -> float:
        index, offset = divmod(self.count, BLOCK)
        if index != self._block_index:
            self._block, self._block_index = _block(self.seed, self.stream, index), index
        self.count += 1
        return float(self._block[offset])

    def rollback(self, count: int) -> None:
        if not 0 <= count <= self.count:
            raise ValueError(f"cannot undo {count} of {self.count} draws")
        self.count -= count

    def fork(self) -> RandomStream:
        return RandomStream.at(self.seed, self.stream, self.count)

    @staticmethod
    def at(seed: int, stream: int, count: int) -> RandomStream:
        """The stream after so many draws."""
        source = RandomStream(seed, stream)
        source.count = count
        return source


@lru_cache(maxsize=64)
def _block(seed: int, stream: int, index: int) -> NDArray[np.float64]:
    """`(BLOCK,) float64`. Kept for a while: a step that is looked at again draws again."""
    key = np.random.SeedSequence([seed, stream, index])
    return np.random.Generator(np.random.Philox(key)).random(BLOCK)


def draw(logits: Logits, stream: RandomStream) -> DrawnToken:
    """Draw from the softmax of `(V,) float32` logits by inverse CDF in id order. It uses one number even if only one
    token is left, so that the position in the stream is the number of tokens. Raises DeadEnd if no logit is finite, and
    BadLogits for NaN and +inf."""
    check(float(logits.max(initial=-np.inf)))  # before a number is used
    return pick(logits, stream.next())


def check(largest: float) -> None:
    """largest: the maximum of some logits. Raises DeadEnd for -inf, and BadLogits for NaN and +inf."""
    if largest == -math.inf:
        raise DeadEnd
    if not math.isfinite(largest):
        raise BadLogits(f"nothing can be drawn from logits with {'NaN' if math.isnan(largest) else 'infinity'}")


def pick(logits: Logits, uniform: float) -> DrawnToken:
    """The token that `draw` draws with this uniform number. Raises as `draw`."""
    best = float(logits.max(initial=-np.inf))
    check(best)
    ids = np.flatnonzero(logits > -np.inf)  # (n,)
    values = logits[ids].astype(np.float64)  # (n,)
    weights = np.exp(values - best)
    mass = np.cumsum(weights)
    index = min(int(np.searchsorted(mass, uniform * mass[-1], side="right")), ids.size - 1)
    # A weight that underflowed to 0 can only be reached at the end; step back to a token that has mass.
    while weights[index] == 0.0:
        index -= 1
    token, prob = int(ids[index]), float(weights[index] / mass[-1])
    return DrawnToken(token, prob, float(logits[token]), ids, weights / mass[-1], logits[ids])
