"""What faithful sampling aims at, one step at a time: the target's distribution, and what may be taken at all.

`full`: p' of the design, section 4: after penalties, finite biases and temperature, over all of V. `truncated`: c_p,
the free chain with its truncations. Neither knows the constraint; -inf bans are no part of them and shrink the allowed
set.
It knows nothing about particles or about how a token is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.plan import Job
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

NEG_INF = np.float32(-np.inf)
Flags = NDArray[np.bool_]


class Aim(NamedTuple):
    """One step's. free: `(V,) float32`, the biased logits without bans. row: `(V,) float32`, ln of the target up to a
    constant; -inf is not in it. open: `(V,) bool`, what nobody but the constraint refuses. held: ids that `min_tokens`
    holds back at this step, where something else is left."""

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
        """raw: `(V,) float32`, not changed. Of the stream one number is taken where xtc is on."""
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
        """`(V,) bool`: A_t. mask: the constraint's, None where there is none."""
        found = aim.open & (aim.free > NEG_INF)
        if mask is not None:
            found &= masks.unpack(mask, found.shape[0])
        if aim.held:
            rest = found.copy()
            rest[list(aim.held)] = False
            return rest if bool(rest.any()) else found
        return found
