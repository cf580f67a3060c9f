"""One token from one row of logits in one kernel, where the usual samplers run; equal to `choose`.

It covers the common step: a mask, penalties first, then top-k, top-p and min-p in any order, the temperature before
them (as in vLLM) or after them (as in llama.cpp), or the most probable token. Whatever else a config asks for is left
to `choose`, and so is a sum that is in doubt.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.draw_fast import CODES, DOUBT, DrawnToken, is_plain_heat, penalty_amounts, without_heat
from espalier.sampling.samplers.temperature import divided
from espalier.tokens.mask import Logits, Mask

NOTHING = np.zeros(0, dtype=np.int32)  # (0,)
GREEDY, LISTING = 1, 2  # modes of `kernels/rows.py`, which numba is loaded with
NO_IDS = np.zeros(0, dtype=np.int64)  # (0,)


class Settings(NamedTuple):
    """drawing, listing: `(n,) float64`, what the kernels are told, without and with a list of candidates. heat: the
    temperature after the truncation, 1 for none. divisor: of all logits, by either temperature.
    penalties: from `penalty_amounts`, none where they are off."""

    drawing: NDArray[np.float64]
    listing: NDArray[np.float64]
    heat: np.float32
    divisor: np.float32
    penalties: tuple[np.float32, ...]


def coded(chain: Chain) -> Settings | None:
    """The samplers that run, as numbers: `settings` of `kernels/rows.py`. None where one of them has none, or where
    they run in another order."""
    config = chain.config
    if chain.takes_whole_rows or chain.needs_chance or chain.fitted.ids.size:
        return None
    names, heat = (chain.running, np.float32(1.0)) if config.is_greedy else without_heat(chain)
    penalties: tuple[np.float32, ...] = ()
    if names[:1] == ("penalties",):
        names = names[1:]
        penalties = penalty_amounts(config)
    early = np.float32(1.0)
    if names[:1] == ("temperature",) and is_plain_heat(config):
        names, early = names[1:], np.float32(config.temperature)
    if not CODES.keys() >= set(names) or (config.is_greedy and names):
        return None
    pairs = [CODES[name](config) for name in names]
    codes, amounts = [code for code, _ in pairs], [value for _, value in pairs]
    rest = [DOUBT, len(penalties), *penalties, *codes, *amounts]
    drawing, listing = (
        np.array([config.min_keep, early, heat, GREEDY if config.is_greedy else mode, *rest], dtype=np.float64)
        for mode in (0, LISTING)
    )
    return Settings(drawing, listing, heat, early * heat, penalties)  # one of the two is 1


def drawn(
    row: Logits, bits: Mask | None, chain: Chain, stream: RandomStream, best: int | None = None
) -> tuple[int, float] | None:
    """The token that `choose` draws, and its probability; None where `choose` has to be asked, and then no number of
    the stream was used. row: `(V,) float32` without NaN and +inf. bits: `(W,) int32`; ids beyond it are forbidden.
    best: the index of the row's first maximum, if the caller knows it."""
    settings = chain.kept(coded)
    if settings is None or (args := arguments(row, bits, chain, settings, settings.drawing, best)) is None:
        return None
    draw: tuple[int, float] = kernels("rows").draw_row(*args, stream.next())
    if draw[0] < 0:
        stream.rollback(1)
        return None
    return draw


def shown(
    row: Logits, bits: Mask | None, chain: Chain, stream: RandomStream, best: int | None = None
) -> DrawnToken | None:
    """As `drawn`, with all candidates that are left; None where they are too many to list."""
    settings = chain.kept(coded)
    if settings is None or (args := arguments(row, bits, chain, settings, settings.listing, best)) is None:
        return None
    token, prob, index, ids, values, probs = kernels("rows").show_row(*args, stream.next())
    if token < 0:
        stream.rollback(1)
        return None
    logits = values if settings.heat == 1.0 else divided(values, settings.heat)  # (n,) float32
    logit = float(logits[index])
    if probs.min() < 0.0:
        left = probs >= 0.0  # (n,) bool
        ids, probs, logits = ids[left], probs[left], logits[left]
    return DrawnToken(token, prob, logit, ids, probs, logits)


def arguments(
    row: Logits, bits: Mask | None, chain: Chain, settings: Settings, numbers: NDArray[np.float64], best: int | None
) -> tuple[object, ...] | None:
    """The first arguments of the kernels; None where `choose` has to be asked."""
    permitted = chain.fitted.permitted
    if bits is None:
        bits = NOTHING
    elif not bits.shape[0] or not bits.flags.carray:
        return None
    if not row.flags.carray:
        return None
    best = int(row.argmax()) if best is None else best
    permitted = NOTHING if permitted is None else permitted
    if settings.penalties:
        past = chain.past
        return row, bits, permitted, past.tokens, past.times_said, numbers, chain.room(row.shape[0]), best
    return row, bits, permitted, NO_IDS, NO_IDS, numbers, chain.room(row.shape[0]), best
