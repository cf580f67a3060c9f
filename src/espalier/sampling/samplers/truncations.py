"""Truncation samplers: top_k, top_p, min_p, typical_p, top_n_sigma, xtc. Pure, `(V,) float32` in and out.

A removed token is -inf. An input of -inf stays -inf and is no candidate: it counts neither towards `min_keep` nor
towards any mass. Semantics are llama.cpp's (`src/llama-sampler.cpp`), with sums in float64 and ties broken by lowest
id; docs/sampling.md lists the other differences. These functions know nothing about constraints.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.fields import Number, Whole
from espalier.sampling.samplers.sampler import Sampler
from espalier.tokens.mask import LARGEST, Logits

NEG_INF = np.float32(-np.inf)
XTC_OFF = 0.5
"""A larger threshold switches xtc off: no two tokens can both reach it."""


def ranked(logits: Logits) -> NDArray[np.intp]:
    """Ids of the candidates, most probable first, ties by lowest id, `(n,)`."""
    ids = np.flatnonzero(logits > NEG_INF)  # (n,)
    return np.asarray(ids[np.argsort(-logits[ids], kind="stable")])


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities of `(n,) float32` logits, n > 0, `(n,) float64`."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))  # (n,) float64
    return np.asarray(weights / weights.sum())


def only(logits: Logits, ids: NDArray[np.intp]) -> Logits:
    """Keep the logits of `ids` and remove all others, `(V,) float32`."""
    out = np.full_like(logits, NEG_INF)
    out[ids] = logits[ids]
    return out


def top_k(logits: Logits, k: int) -> Logits:
    """Keep exactly the k most probable tokens (ties: lowest ids). 0 keeps all; `min_keep` is ignored, as in
    llama.cpp."""
    count = int(np.count_nonzero(logits > NEG_INF))
    if k == 0 or k >= count:
        return logits
    edge = np.partition(logits, logits.shape[0] - k)[logits.shape[0] - k]  # the k-th largest
    keep = logits > edge  # (V,) bool, fewer than k
    ties = np.flatnonzero(logits == edge)[: k - int(np.count_nonzero(keep))]
    keep[ties] = True
    return np.where(keep, logits, NEG_INF)


def top_p(logits: Logits, p: float, min_keep: int = 0) -> Logits:
    """Keep the most probable tokens until their mass reaches p, the crossing token included (nucleus sampling,
    arXiv:1904.09751), and at least `min_keep`. 1 keeps all."""
    if p >= 1.0:
        return logits
    order = ranked(logits)  # (n,)
    if order.size == 0:
        return logits
    mass = np.cumsum(softmax(logits[order]))  # (n,) float64
    cut = int(np.searchsorted(mass, p, side="left")) + 1  # the first index at which mass >= p, included
    return only(logits, order[: max(cut, min_keep)])


def min_p(logits: Logits, p: float, min_keep: int = 0) -> Logits:
    """Keep the tokens that are at least p times as probable as the best one (arXiv:2407.01082), and at least
    `min_keep`. 0 keeps all."""
    if p <= 0.0:
        return logits
    edge = np.float32(logits.max() + np.float32(math.log(p)))
    keep = logits >= edge  # (V,) bool
    if min_keep > 1 and int(np.count_nonzero(keep & (logits > NEG_INF))) < min_keep:
        return top_k(logits, min_keep)
    return np.where(keep, logits, NEG_INF)


def typical_p(logits: Logits, p: float, min_keep: int = 0) -> Logits:
    """Keep the tokens whose surprise is nearest to the entropy until their mass exceeds p (locally typical sampling,
    arXiv:2202.00666), and at least `min_keep`. 0 and 1 keep all. The most probable token may be removed."""
    if not 0.0 < p < 1.0:
        return logits
    order = ranked(logits)  # (n,)
    if order.size == 0:
        return logits
    values = logits[order].astype(np.float64)  # (n,) float64
    values -= values[0]
    logprobs = values - math.log(float(np.exp(values).sum()))
    probs = np.exp(logprobs)
    entropy = -float((probs * logprobs).sum())
    nearest = np.argsort(np.abs(-logprobs - entropy), kind="stable")  # (n,), ties: the more probable
    mass = np.cumsum(probs[nearest])
    cut = int(np.searchsorted(mass, p, side="right")) + 1  # the first index at which mass > p, included
    return only(logits, order[nearest[: max(cut, min_keep)]])


def top_n_sigma(logits: Logits, n: float) -> Logits:
    """Keep the logits within n standard deviations of the largest (arXiv:2411.07641). 0 keeps all; `min_keep` is
    ignored, as in llama.cpp. The standard deviation is the population's, over the candidates."""
    alive = logits > NEG_INF  # (V,) bool
    if n <= 0.0 or int(np.count_nonzero(alive)) <= 1:
        return logits
    values = logits[alive].astype(np.float64)  # (n,) float64
    edge = max(float(values.max()) - n * float(values.std()), -LARGEST)
    return np.where(logits >= np.float32(edge), logits, NEG_INF)


def xtc(logits: Logits, probability: float, threshold: float, chance: float, min_keep: int = 0) -> Logits:
    """Exclude top choices: if `chance <= probability`, remove all tokens that reach `threshold` except the least
    probable of them (github.com/oobabooga/text-generation-webui, pull request 6335). Nothing is removed if fewer than
    `min_keep` tokens would be left. A probability of 0 or a threshold above 0.5 keeps all.

    chance: one uniform number in [0, 1) of the sequence's stream, drawn whether or not there is something to remove.
    """
    if probability <= 0.0 or threshold > XTC_OFF or chance > probability:
        return logits
    order = ranked(logits)  # (n,)
    if order.size < 2:
        return logits
    above = int(np.count_nonzero(softmax(logits[order]) >= threshold))
    removed = above - 1
    if removed <= 0 or order.size - removed < min_keep:
        return logits
    return only(logits, order[removed:])


TOP_N_SIGMA = Sampler(
    name="top_n_sigma",
    llama="top_n_sigma",
    letter="s",
    truncates=True,
    transform=lambda logits, context: top_n_sigma(logits, context.config.top_n_sigma),
    fields=(
        Number(
            name="top_n_sigma",
            default=0.0,
            off=0.0,
            help="Keeps the logits within this many standard deviations of the largest; 0 is off.",
            hint="0 is off",
            llama="top_n_sigma",
            llama_negative_is_off=True,
        ),
    ),
)
TOP_K = Sampler(
    name="top_k",
    llama="top_k",
    letter="k",
    truncates=True,
    transform=lambda logits, context: top_k(logits, context.config.top_k),
    fields=(
        Whole(
            name="top_k",
            default=40,
            off=0,
            help="Keeps this many of the most probable tokens; 0 is off.",
            hint="0 is off",
            common=2,
            llama="top_k",
            openai="top_k",
            llama_negative_is_off=True,
        ),
    ),
)
TYPICAL_P = Sampler(
    name="typical_p",
    llama="typ_p",
    letter="y",
    truncates=True,
    transform=lambda logits, context: typical_p(logits, context.config.typical_p, context.config.min_keep),
    on_if=lambda config: 0 < config.typical_p < 1,
    fields=(
        Number(
            name="typical_p",
            default=0.0,
            off=0.0,
            high=1.0,
            help="Keeps the tokens of the most typical surprise until their mass exceeds this; 0 and 1 are off.",
            hint="0 and 1 are off",
            llama="typical_p",
        ),
    ),
)
TOP_P = Sampler(
    name="top_p",
    llama="top_p",
    letter="p",
    truncates=True,
    transform=lambda logits, context: top_p(logits, context.config.top_p, context.config.min_keep),
    fields=(
        Number(
            name="top_p",
            default=0.95,
            off=1.0,
            high=1.0,
            help="Keeps the most probable tokens until their mass reaches this; 1 is off.",
            hint="1 is off",
            llama="top_p",
            openai="top_p",
            common=3,
        ),
    ),
)
MIN_P = Sampler(
    name="min_p",
    llama="min_p",
    letter="m",
    truncates=True,
    transform=lambda logits, context: min_p(logits, context.config.min_p, context.config.min_keep),
    fields=(
        Number(
            name="min_p",
            default=0.05,
            off=0.0,
            high=1.0,
            help="Keeps the tokens that are at least this share as probable as the best one; 0 is off.",
            hint="0 is off",
            llama="min_p",
            openai="min_p",
            elsewhere=(("epsilon_cutoff", "transformers"),),
            common=4,
        ),
    ),
)
XTC = Sampler(
    name="xtc",
    llama="xtc",
    letter="x",
    truncates=True,
    draws=True,
    transform=lambda logits, context: xtc(
        logits, context.config.xtc_probability, context.config.xtc_threshold, context.chance, context.config.min_keep
    ),
    on_if=lambda config: config.xtc_probability > 0 and config.xtc_threshold <= XTC_OFF,
    fields=(
        Number(
            name="xtc_probability",
            default=0.0,
            off=0.0,
            high=1.0,
            help="How often the tokens that reach `xtc_threshold` are removed, but for the least probable; 0 is off.",
            hint="0 is off",
            llama="xtc_probability",
        ),
        Number(
            name="xtc_threshold",
            default=0.1,
            high=1.0,
            help="The probability from which xtc removes a token; above 0.5 nothing is removed.",
            hint="above 0.5 nothing is cut",
            llama="xtc_threshold",
        ),
    ),
)
TRUNCATIONS = (TOP_N_SIGMA, TOP_K, TYPICAL_P, TOP_P, MIN_P, XTC)
"""In the default order."""
