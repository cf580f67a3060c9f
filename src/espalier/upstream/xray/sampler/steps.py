"""llama.cpp's samplers over ServerCandidates, in its arithmetic (src/llama-sampler.cpp) but for the order of a few
sums.

A function returns what the server's array may be afterwards: one result, or two where a decision is too close to call.
It raises UndecidedDraw where the unlisted tokens matter. Penalties and DRY are in `history.py`.
"""

from __future__ import annotations

import math

import numpy as np

from espalier.upstream.xray.sampler.candidates import CLOSE, ServerCandidates, UndecidedDraw
from espalier.upstream.xray.sampler.settings import SamplerSettings

SINGLE = np.float32
Options = tuple[ServerCandidates, ...]


def top_k(given: ServerCandidates, settings: SamplerSettings) -> Options:
    k = settings.top_k
    if k <= 0:
        return (given,)
    found = given.sorted()
    count = found.ids.shape[0]
    if k > count or (k == count and found.is_whole):
        found.need_whole()
        return (found,)
    edge, after = float(found.logits[k - 1]), max(float(found.logits[k]) if k < count else -math.inf, found.rest)
    if found.is_whole and edge == -math.inf:
        # Which of the refused tokens are kept makes no difference: none of them has any weight.
        return (found.cut(k),)
    if k == count and edge > found.rest:
        return (found.cut(k),)
    if edge <= found.rest or (edge - after < CLOSE and after > -math.inf):
        # Which of two equal tokens the server keeps depends on its sorting.
        raise UndecidedDraw
    return (found.cut(k),)


def top_p(given: ServerCandidates, settings: SamplerSettings) -> Options:
    p = SINGLE(settings.top_p)
    if p >= 1:
        return (given,)
    found = given.sorted()
    sums = np.cumsum(found.probs(), dtype=np.float32)
    count = sums.shape[0]
    reached = int(np.searchsorted(sums, p, side="left")) + 1  # the first place at which the sum is at least p
    if reached > count:
        if not found.is_whole:
            raise UndecidedDraw
        reached = count
    if not found.is_whole and float(found.logits[reached - 1]) <= found.rest:
        raise UndecidedDraw
    places = {min(max(reached, settings.min_keep), count)}
    for other in (reached - 1, reached + 1):
        if 1 <= other <= count and abs(float(sums[min(other, reached) - 1]) - float(p)) < CLOSE:
            places.add(min(max(other, settings.min_keep), count))
    return tuple(found.cut(place) for place in sorted(places))


def min_p(given: ServerCandidates, settings: SamplerSettings) -> Options:
    p = settings.min_p
    if p <= 0:
        return (given,)
    edge = given.logits.max() + SINGLE(math.log(p))
    if given.rest >= edge - CLOSE:
        raise UndecidedDraw
    if not given.is_sorted:
        keep = given.logits >= edge
        near = np.abs(given.logits - edge) < CLOSE
        if int(keep.sum()) >= settings.min_keep:
            found = [_only(given, keep)]
            if near.any():
                found.append(_only(given, keep ^ near))
            return tuple(found)
    found_sorted = given.sorted()
    below = np.flatnonzero(found_sorted.logits < edge)
    below = below[(below >= 1) & (below >= settings.min_keep)]
    count = int(below[0]) if below.size else found_sorted.ids.shape[0]
    places = {count}
    for other in (count - 1, count):
        is_near = 1 <= other < found_sorted.ids.shape[0] and abs(float(found_sorted.logits[other] - edge)) < CLOSE
        if is_near and other >= settings.min_keep:
            places |= {other, other + 1}
    return tuple(found_sorted.cut(place) for place in sorted(places))


def typical(given: ServerCandidates, settings: SamplerSettings) -> Options:
    p = SINGLE(settings.typical_p)
    if p >= 1:
        return (given,)
    given.need_whole()
    found = given.sorted()
    probs = found.probs()
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(probs)
        terms = -probs * logs
    if np.isnan(terms).any():
        raise UndecidedDraw  # 0 * log 0: what the server sorts by then is no number
    entropy = SINGLE(np.cumsum(terms, dtype=np.float32)[-1])
    scores = np.abs(-logs - entropy)
    order = np.argsort(scores, kind="stable")
    sums = np.cumsum(probs[order], dtype=np.float32)
    above = np.flatnonzero((sums > p) & (np.arange(sums.shape[0]) >= max(0, settings.min_keep - 1)))
    count = int(above[0]) + 1 if above.size else order.shape[0]
    if abs(float(sums[count - 1] - p)) < CLOSE or (count > 1 and abs(float(sums[count - 2] - p)) < CLOSE):
        raise UndecidedDraw
    ranked = scores[order]
    if np.any(np.diff(ranked[: count + 1]) < CLOSE):
        raise UndecidedDraw  # the order of the draw would be a guess
    kept = order[:count]
    return (ServerCandidates(found.ids[kept], found.logits[kept], is_sorted=False),)


def top_n_sigma(given: ServerCandidates, settings: SamplerSettings) -> Options:
    if settings.top_n_sigma <= 0 or given.ids.shape[0] <= 1:
        return (given,)
    given.need_whole()
    real = given.logits[given.logits > -np.inf]
    mean = SINGLE(real.sum(dtype=np.float64) / real.shape[0])
    spread = SINGLE(math.sqrt(float(((real - mean).astype(np.float64) ** 2).sum()) / real.shape[0]))
    edge = real.max() - SINGLE(settings.top_n_sigma) * spread
    near = np.abs(given.logits - edge) < 10 * CLOSE
    keep = given.logits >= edge
    found = []
    for kept in (keep, keep ^ near) if near.any() else (keep,):
        logits = np.where(kept, given.logits, SINGLE(-np.inf))
        found.append(given.with_logits(logits).sorted())
    return tuple(found)


def temperature(given: ServerCandidates, settings: SamplerSettings) -> Options:
    if settings.dynatemp_range <= 0:
        return _heat_logits(given, settings.temperature)
    count = given.ids.shape[0]
    if count <= 1:
        return (given,)
    given.need_whole()
    low = max(SINGLE(0), SINGLE(settings.temperature) - SINGLE(settings.dynatemp_range))
    high = SINGLE(settings.temperature) + SINGLE(settings.dynatemp_range)
    largest = -np.log(SINGLE(1) / SINGLE(count))
    found = given.sorted()
    probs = found.probs()
    live = probs[probs > 0]
    entropy = SINGLE(-np.cumsum(live * np.log(live), dtype=np.float32)[-1])
    value = low + (high - low) * SINGLE(entropy / largest) ** SINGLE(settings.dynatemp_exponent)
    return _heat_logits(found, float(value))


def _heat_logits(given: ServerCandidates, value: float) -> Options:
    if value > 0:
        if value == 1.0:
            return (given,)
        return (given.with_logits(given.logits / SINGLE(value), rest=given.rest / value, whole_mass=None),)
    best = int(np.argmax(given.logits))
    top = float(given.logits[best])
    others = np.delete(given.logits, best)
    if top <= given.rest or (others.size and top - float(others.max()) < CLOSE and top - float(others.max()) > 0):
        raise UndecidedDraw
    logits = np.full_like(given.logits, -np.inf)
    logits[best] = given.logits[best]
    return (given.with_logits(logits, rest=-np.inf, whole_mass=None),)


def xtc(given: ServerCandidates, settings: SamplerSettings, chance: np.float32) -> Options:
    """chance: the number that the server has drawn; see `draws_xtc`."""
    if chance > SINGLE(settings.xtc_probability):
        return (given,)
    given.need_whole()
    found = given.sorted()
    probs = found.probs()
    threshold = SINGLE(settings.xtc_threshold)
    if np.any(np.abs(probs - threshold) < CLOSE):
        raise UndecidedDraw
    below = np.flatnonzero(probs < threshold)
    above = int(below[0]) if below.size else probs.shape[0]
    last = max(0, above - 1)
    if found.ids.shape[0] - last >= settings.min_keep and last > 0:
        return (ServerCandidates(found.ids[last:], found.logits[last:], is_sorted=True),)
    return (found,)


def draws_xtc(given: ServerCandidates, settings: SamplerSettings) -> bool:
    """Whether xtc draws a number here."""
    return settings.has_xtc and (given.ids.shape[0] >= 2 or not given.is_whole)


def _only(given: ServerCandidates, keep: np.ndarray) -> ServerCandidates:
    return ServerCandidates(given.ids[keep], given.logits[keep], is_sorted=given.is_sorted)


STEPS = {
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typ_p": typical,
    "top_n_sigma": top_n_sigma,
    "temperature": temperature,
}
"""llama-server's names of the samplers that need nothing but the candidates."""
