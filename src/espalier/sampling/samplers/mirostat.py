"""Mirostat 1 and 2 (arXiv:2007.14966): truncations whose strength follows the surprise of the drawn tokens.

The state is one number, mu, which starts at twice the target surprise (in bits). The functions are pure: the chain
keeps mu and rolls it back. Semantics are llama.cpp's (`src/llama-sampler.cpp`).
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.fields import Number, SamplingField, Whole
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.truncations import only, ranked, softmax
from espalier.tokens.mask import Logits

LOOKED_AT = 100
"""The number of most probable tokens to which version 1 fits its power law; llama.cpp's `m`."""


def first_mu(tau: float) -> float:
    """mu before the first token."""
    return _finite(2.0 * tau)


def next_mu(mu: float, prob: float, tau: float, eta: float) -> float:
    """mu after a token that was drawn with probability `prob` from what mirostat left: reduced by eta times the excess
    surprise."""
    return _finite(mu - eta * (-math.log2(prob) - tau))


def _finite(value: float) -> float:
    return min(max(value, -sys.float_info.max), sys.float_info.max)


def mirostat_1(logits: Logits, mu: float) -> Logits:
    """Keep the k most probable tokens; k follows from mu and the exponent of Zipf's law, estimated from the 100 most
    probable tokens. At least one is kept; ties by lowest id."""
    order = ranked(logits)  # (n,)
    if order.size <= 1:
        return logits
    k = mirostat_1_k(softmax(logits[order])[:LOOKED_AT], mu, logits.shape[0])
    return only(logits, order[: max(1, int(min(k, float(order.size))))])


def mirostat_1_k(probs: NDArray[np.float64], mu: float, width: int) -> float:
    """How many tokens to keep, before rounding down; may be infinite. probs: `(m,)`, the largest probabilities,
    descending."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.arange(1, probs.size, dtype=np.float64)
        t = np.log((steps + 1) / steps)  # (m - 1,) float64
        b = np.log(probs[:-1] / probs[1:])
    usable = np.isfinite(b)  # a probability that underflowed to 0 carries no information
    if not bool(usable.any()):
        return 1.0
    s_hat = float((t * b)[usable].sum() / (t * t)[usable].sum())
    epsilon = s_hat - 1.0
    try:
        scale = math.expm1(-epsilon * math.log(width)) / -epsilon if epsilon else math.log(width)
        grown = 2.0**mu / scale
        if s_hat == 0.0:  # all tokens are equally probable: the limit
            return math.inf if grown > 1.0 else 1.0
        return float(grown ** (1.0 / s_hat))
    except OverflowError:
        return math.inf


def mirostat_2(logits: Logits, mu: float) -> Logits:
    """Remove the tokens whose surprise is above mu; the most probable token is always kept."""
    order = ranked(logits)  # (n,)
    if order.size <= 1:
        return logits
    with np.errstate(divide="ignore"):
        surprise = -np.log2(softmax(logits[order]))  # (n,) float64, ascending
    return only(logits, order[: max(1, int(np.count_nonzero(surprise <= mu)))])


MIROSTATS = {1: mirostat_1, 2: mirostat_2}
"""Version, as in `SamplingConfig.mirostat` -> function."""


def mirostat(logits: Logits, context: TransformContext) -> Logits:
    """The transform: the version that the config names. It runs after all samplers, in place of the truncations."""
    return MIROSTATS[context.config.mirostat](logits, context.mu)


MIROSTAT_FIELDS: tuple[SamplingField, ...] = (
    Whole(
        name="mirostat",
        default=0,
        off=0,
        high=2,
        hint="0 is off",
        llama="mirostat",
        help="1 or 2 replaces all truncations and the dynamic temperature, as in llama.cpp; 0 is off.",
    ),
    Number(
        name="mirostat_tau",
        default=0.0,
        llama="mirostat_tau",
        help="The surprise that mirostat aims at, in bits; 5 with mirostat on.",
    ),
    Number(
        name="mirostat_eta", default=0.0, llama="mirostat_eta", help="Mirostat's learning rate; 0.1 with mirostat on."
    ),
)
WITH_MIROSTAT = {"mirostat_tau": 5.0, "mirostat_eta": 0.1}
"""Defaults while mirostat is on."""
