"""The target distribution of `best_of`, `smc` and `awrs` at one step, and the allowed tokens.

Target `full` is p' of docs/strategies.md: after penalties, finite biases and temperature, over the whole vocabulary.
Target `truncated` is c_p, the chain with its truncations and without the constraint. Bans (-inf biases) do not change a
target: they shrink the allowed set. The module knows nothing about particles or about how a token is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.plan import Job
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.program import heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

NEG_INF = np.float32(-np.inf)
Flags = NDArray[np.bool_]


class Aim(NamedTuple):
    """The target of one step. free: `(V,) float32`, the biased logits without bans. row: `(V,) float32`, ln of the
    target up to a constant; -inf for tokens outside. open: `(V,) bool`, tokens that only the constraint can refuse.
    held: ids that `min_tokens` holds back at this step, if other tokens are left."""

    free: Logits
    row: Logits
    open: Flags
    held: tuple[int, ...]


class Target:
    """The target of a job."""

    def __init__(self, job: Job) -> None:
        config, vocab, fitted = job.chain.config, job.vocab, job.chain.fitted
        self.is_truncated = job.options.target == "truncated"
        self._open = vocab.real_ids.copy()  # (V,)
        if config.ignore_eos:
            self._open[list(vocab.eos_ids)] = False
        for _, banned in fitted.bans:
            self._open &= ~banned
        self._min_tokens, self._ends = config.min_tokens, fitted.ends

    def aim(self, raw: Logits, chain: Chain, context: FilterContext, stream: RandomStream) -> Aim:
        """The target of one step. raw: `(V,) float32`, not changed. Takes one number of the stream where xtc is on."""
        free, allowed = chain.fitted.add(raw), self._open
        if len(chain.filters):
            filtered = chain.filters.apply(chain.fitted.apply(raw), context)
            allowed = allowed & (filtered > NEG_INF)
            free = np.where(filtered > NEG_INF, filtered, free)
        if self.is_truncated:
            row = chain.shape(free, stream.next() if chain.needs_chance else 0.0)
        else:
            row = heated(free, chain)
        return Aim(free, row, allowed, self._ends if context.step < self._min_tokens else ())

    def allowed(self, aim: Aim, mask: Mask | None) -> Flags:
        """The allowed tokens, `(V,) bool`. mask: the constraint's, `(W,) int32`, None without one."""
        flags = aim.open & (aim.free > NEG_INF)
        if mask is not None:
            flags &= masks.unpack(mask, flags.shape[0])
        if aim.held:
            rest = flags.copy()
            rest[list(aim.held)] = False
            return rest if bool(rest.any()) else flags
        return flags
