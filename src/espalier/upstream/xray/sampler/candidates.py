"""`ServerCandidates`: llama.cpp's array of tokens at one point of its chain, of which the least probable may be
unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

ONE = np.float32(1)
CLOSE = 4e-6
"""Two sums nearer than this may lie the other way round in the server, whose floats we know to some digits less."""


class UndecidedDraw(Exception):  # it never leaves this package
    """What the server did here cannot be told from what it reported."""


@dataclass(frozen=True, slots=True, eq=False)
class ServerCandidates:
    """ids: `(n,) int64` in the order of the server's array. logits: `(n,) float32`, up to a constant; -inf for what the
    grammar refuses. is_sorted: whether the array counts as sorted, best first. rest: the largest logit that a token
    which is not listed can have; -inf if all are listed. whole_mass: the sum of exp(logit) over listed and unlisted
    tokens, None if unknown."""

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    is_sorted: bool
    rest: float = -np.inf
    whole_mass: float | None = None

    @property
    def is_whole(self) -> bool:
        return self.rest == -np.inf

    def need_whole(self) -> None:
        """Raises UndecidedDraw if a token is not listed."""
        if not self.is_whole:
            raise UndecidedDraw

    def with_logits(self, logits: NDArray[Any], **changes: Any) -> ServerCandidates:
        return replace(self, logits=logits.astype(np.float32, copy=False), **changes)

    def cut(self, count: int) -> ServerCandidates:
        """The first `count`, and nothing unlisted."""
        return replace(self, ids=self.ids[:count], logits=self.logits[:count], rest=-np.inf, whole_mass=None)

    def sorted(self) -> ServerCandidates:
        """Best first. Raises UndecidedDraw if an unlisted token could come before a listed one."""
        if self.is_sorted:
            return self
        order = np.argsort(-self.logits, kind="stable")
        return replace(self, ids=self.ids[order], logits=self.logits[order], is_sorted=True)

    def probs(self) -> NDArray[np.float32]:
        """The softmax as llama.cpp has it, `(n,) float32`. Raises UndecidedDraw if no token is left of those listed, or
        one is not listed, unless their mass is known."""
        top = self.logits.max(initial=-np.inf)
        if top == -np.inf:
            raise UndecidedDraw
        weights = np.exp(self.logits - top)
        if self.is_whole:
            return np.asarray(weights / np.cumsum(weights, dtype=np.float32)[-1])  # one after the other, as there
        if self.whole_mass is None:
            raise UndecidedDraw
        return np.asarray(weights * np.float32(np.exp(float(top)) / self.whole_mass))
