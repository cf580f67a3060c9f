"""Draw a token from one row of logits without sorting the vocabulary; equal to the plain chain and `draw`.

Few candidates go through the plain samplers, without the rest of the row: in order of id, so that the result cannot
differ. Many candidates go through the fast samplers in `FAST`, or the plain ones where there is no fast one. Very few
are finished in a single kernel. Where the last digits of a sum would decide, the plain function decides. This module
does not know where masks come from, and records nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream, check, pick
from espalier.sampling.fast.candidates import (
    DEEP,
    NEG_INF,
    Candidates,
    allowed,
    at_least,
    kernels,
    leaders,
    likely_leaders,
    peaks,
)
from espalier.sampling.fit import biased
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.dry import losses, lowered, repeat_limit
from espalier.sampling.samplers.penalties import amount
from espalier.sampling.samplers.registry import TRANSFORMS, UNTRUNCATED
from espalier.sampling.samplers.temperature import LARGE, SMALL, divided, is_dividable, temperature
from espalier.tokens import mask as masks
from espalier.tokens.mask import LARGEST, Logits, Mask

PLAIN = 1024
"""Up to so many candidates are left to the plain samplers."""
LAST = 96
"""Up to so many are truncated, divided by the temperature and drawn from in one kernel."""
SCALE, BUCKETS = 32.0, 1024
"""Buckets per nat of the logit, from the largest down, and how many."""
DOUBT = 1e-9
"""The share of a sum within which two orders of adding up millions of terms may disagree."""
NO_IDS = np.empty(0, dtype=np.int64)  # (0,)


class DrawnToken(NamedTuple):
    """The taken token with its probability and its logit after the samplers; and the candidates that it was drawn from:
    `(n,)` ids, ascending, with float64 probabilities and float32 logits. `choose` says how many candidates are listed.
    """

    token: int
    prob: float
    logit: float
    ids: NDArray[np.intp]
    probs: NDArray[np.float64]
    logits: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FastStep:
    """What a fast sampler may read. room: `(V,) float32` scratch row, or None. plain: as `PLAIN`. show: as in
    `choose`."""

    chain: Chain
    context: TransformContext
    room: Logits | None
    plain: int
    show: int = 0

    def is_plain(self, candidates: Candidates) -> bool:
        return bool(candidates.values.shape[0] <= max(self.plain, DEEP))


def choose(
    row: Logits,
    bits: Mask | None,
    chain: Chain,
    stream: RandomStream,
    *,
    is_biased: bool = False,
    best: int | None = None,
    show: int = 0,
    plain: int = PLAIN,
    last: int = LAST,
) -> DrawnToken:
    """Mask, `logit_bias`, samplers and draw: the same token as `chain.shape` and `draw`, with the same random numbers
    used.

    row: `(V,) float32`, not changed. bits: `(W,) int32` with no bit set from V on, or None for everything. is_biased:
    whether the config's biases are already in the row. best: the index of the row's first maximum, if the caller knows
    it. show: the result lists at least so many of the most probable candidates, all that tie with them, and the token;
    it may list all. Raises DeadEnd if nothing is left, and BadLogits for NaN and +inf.
    """
    check(float(row.max(initial=NEG_INF) if best is None else row[best]))
    config, biases = chain.config, chain.fitted.ids.size and not is_biased
    is_best = config.is_greedy and not biases and best is not None and _stays_best(best, chain)
    if best is not None and is_best and (bits is None or masks.test(bits, best)):
        stream.next()
        return _take_without_draw(Candidates(row, None, False), best)
    row = np.require(row, dtype=np.float32, requirements=("C", "W"))
    room = chain.room(row.shape[0])
    candidates = allowed(row, bits, room)
    if biases:
        candidates = _bias(candidates, chain, room)
    if not candidates.values.size or (
        bits is not None and candidates.ids is None and candidates.values.max() == NEG_INF
    ):
        raise DeadEnd
    chance = stream.next() if chain.needs_chance else 0.0
    step = FastStep(chain, TransformContext(config=config, chance=chance), room, plain, show)
    names, heat = without_heat(chain)
    if chain.takes_whole_rows:
        candidates, names, heat = _shape_whole_row(candidates, row.shape[0], chain, chance), (), np.float32(1.0)
    while names and not (candidates.values.shape[0] <= last and CODES.keys() >= set(names)):
        candidates = _run(names[:1], candidates, step)
        names = names[1:]
    uniform = stream.next()
    if config.is_greedy:
        candidates = _run(names, candidates, step)
        return _take_without_draw(candidates, int(np.argmax(candidates.values)))  # the first of equals
    if candidates.values.shape[0] <= last:
        return _finish(candidates, names, heat, uniform, step)
    return _draw(candidates, heat, uniform, step)


def heated(row: Logits, chain: Chain, *, plain: int = PLAIN) -> Logits:
    """`chain.heat(row)`, `(V,) float32`; returns the argument itself if no sampler runs."""
    if chain.config.dynatemp_range or chain.takes_whole_rows:
        return chain.heat(row)
    row = np.require(row, dtype=np.float32, requirements=("C", "W"))
    step = FastStep(chain, TransformContext(config=chain.config), None, plain)
    return _run(chain.heating, Candidates(row, None, False), step).values


def _stays_best(token: int, chain: Chain) -> bool:
    """Whether the running samplers neither lower the best token nor raise another, so that it stays the best."""
    config = chain.config
    if chain.running == ("penalties",):
        lowers = config.repetition_penalty >= 1 and config.frequency_penalty >= 0 and config.presence_penalty >= 0
        return lowers and not chain.past.holds(token)
    return not chain.running


def without_heat(chain: Chain) -> tuple[tuple[str, ...], np.float32]:
    """The samplers that run, without a final plain temperature, and the temperature to divide by."""
    names, config = chain.running, chain.config
    if names[-1:] == ("temperature",) and is_plain_heat(config):
        return names[:-1], np.float32(config.temperature)
    return names, np.float32(1.0)


def is_plain_heat(config: SamplingConfig) -> bool:
    """Whether the temperature is a division in float32."""
    return not config.dynatemp_range and SMALL <= config.temperature <= LARGE


def _run(names: Iterable[str], candidates: Candidates, step: FastStep) -> Candidates:
    for name in names:
        fast = FAST.get(name)
        candidates = fast(candidates, step) if fast is not None else _run_plain(name, candidates, step)
    return candidates


def _run_plain(name: str, candidates: Candidates, step: FastStep) -> Candidates:
    """Run the plain sampler on the candidates alone."""
    out = TRANSFORMS[name](candidates.values, step.context)
    if out is candidates.values:
        return candidates
    left = Candidates(out, candidates.ids, True)
    # A dynamic temperature may reach 0, which leaves one.
    return left if name in UNTRUNCATED and not step.context.config.dynatemp_range else left.alive()


def _shape_whole_row(candidates: Candidates, width: int, chain: Chain, chance: float) -> Candidates:
    """Mirostat depends on V, and a plug-in's sampler may: the chain shapes the whole row."""
    row = candidates.values
    if candidates.ids is not None:
        row = np.full(width, NEG_INF)  # (V,) float32
        row[candidates.ids] = candidates.values
    return Candidates(chain.shape(row, chance), None, False).alive()


def _bias(candidates: Candidates, chain: Chain, room: Logits) -> Candidates:
    candidates = candidates.mine(room)
    places, there = candidates.find(chain.fitted.ids)
    candidates.values[places] = biased(candidates.values[places], chain.fitted.biases[there])
    return candidates


def penalty_amounts(config: SamplingConfig) -> tuple[np.float32, ...]:
    """The penalties and the largest number, as the kernel `penalise` takes them."""
    values = config.repetition_penalty, config.frequency_penalty, config.presence_penalty, LARGEST
    return tuple(amount(value) for value in values)


def _penalties(candidates: Candidates, step: FastStep) -> Candidates:
    config, past = step.context.config, step.chain.past
    candidates = candidates.mine(step.room)
    ids = NO_IDS if candidates.ids is None else candidates.ids
    kernels("masked").penalise(
        candidates.values, ids, candidates.ids is not None, past.tokens, past.times_said, *penalty_amounts(config)
    )
    return candidates


def _dry(candidates: Candidates, step: FastStep) -> Candidates:
    lost = _dry_losses(step)
    if not lost:
        return candidates
    candidates = candidates.mine(step.room)
    tokens = np.fromiter(lost, dtype=np.intp, count=len(lost))  # (n,)
    places, there = candidates.find(tokens)
    for index, token in zip(places.tolist(), tokens[there].tolist(), strict=True):
        if candidates.values[index] > NEG_INF:
            candidates.values[index] = lowered(candidates.values[index], lost[token])
    return candidates


def _dry_losses(step: FastStep) -> dict[int, float]:
    """Token -> DRY penalty, in time linear in the window."""
    config, line, fitted = step.context.config, step.chain.past.line, step.chain.fitted
    length = line.shape[0] if config.dry_window < 0 else min(line.shape[0], config.dry_window)
    least = config.dry_allowed_length
    if length <= least:
        return {}
    recent = line[line.shape[0] - length :]  # (length,) int64
    begins = fitted.begins[np.minimum(recent, fitted.begins.size - 1)]  # (length,) bool
    backs = (length - 1 - int(index) for index in np.flatnonzero(begins)[::-1])
    limit = repeat_limit(step.chain.history, length, fitted.breakers, backs)
    if limit < least:
        return {}
    same = np.empty(length, dtype=np.int64)  # by distance from the end
    kernels("places").repeats(recent, limit, least, same)
    places = np.flatnonzero(same >= 0)
    longest: dict[int, int] = {}
    for token, repeated in zip(recent[length - places].tolist(), same[places].tolist(), strict=True):
        if longest.get(token, -1) < repeated:
            longest[token] = repeated
    return losses(longest, config.dry_multiplier, config.dry_base, least, fitted.breakers)


def _top_k(candidates: Candidates, step: FastStep) -> Candidates:
    k = step.context.config.top_k
    if step.is_plain(candidates) or k > candidates.values.shape[0] // DEEP:
        return _run_plain("top_k", candidates, step)
    return _run_plain("top_k", candidates.take(leaders(candidates.values, k)), step)


def _min_p(candidates: Candidates, step: FastStep) -> Candidates:
    config, values = step.context.config, candidates.values
    if step.is_plain(candidates):
        return _run_plain("min_p", candidates, step)
    tops = peaks(values)
    rest = values[tops.shape[0] * DEEP :]  # (fewer than DEEP,)
    edge = np.float32(max(tops.max(), rest.max(initial=NEG_INF)) + np.float32(math.log(config.min_p)))
    places = at_least(values, tops, edge)
    if config.min_keep > 1 and places.size < config.min_keep:
        return _run_plain("min_p", candidates, step)
    return candidates.take(places)


def _top_p(candidates: Candidates, step: FastStep) -> Candidates:
    """By mass in buckets of the logit: only the bucket in which p is reached is sorted."""
    config, values = step.context.config, candidates.values
    if step.is_plain(candidates):
        return _run_plain("top_p", candidates, step)
    top = float(values.max())
    masses = np.zeros(BUCKETS)  # (BUCKETS,) float64
    total = kernels("sums").mass_by_bucket(values, top, SCALE, masses)
    reached = np.cumsum(masses)
    wanted = config.top_p * total
    bucket = int(np.searchsorted(reached, wanted, side="left"))
    if bucket >= BUCKETS - 1:
        return _run_plain("top_p", candidates, step)
    # Rounding errors included, all logits of the bucket are at or above this.
    with np.errstate(over="ignore"):
        edge = np.nextafter(np.float32(top - (bucket + 1) / SCALE), NEG_INF)
    places = at_least(values, peaks(values), edge)
    downs = (top - values[places].astype(np.float64)) * SCALE  # (n,) float64
    above = places[downs < bucket]
    crossing = places[(downs >= bucket) & (downs < bucket + 1)]
    crossing = crossing[np.argsort(-values[crossing], kind="stable")]
    before = float(reached[bucket - 1]) if bucket else 0.0
    mass = before + np.cumsum(np.exp(values[crossing].astype(np.float64) - top))  # (m,) float64
    cut = int(np.searchsorted(mass, wanted, side="left"))
    count, doubt = above.size + cut + 1, DOUBT * total
    if cut >= mass.size or mass[cut] - wanted < doubt or count < config.min_keep:
        return _run_plain("top_p", candidates, step)
    if count > 1 and wanted - (float(mass[cut - 1]) if cut else before) < doubt:
        return _run_plain("top_p", candidates, step)
    return candidates.take(np.sort(np.concatenate([above, crossing[: cut + 1]])))


FAST: dict[str, Callable[[Candidates, FastStep], Candidates]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
"""Fast samplers by name. A sampler that is not listed runs as it is: it is cheap, or rarely runs on a whole row."""

CODES: dict[str, Callable[[SamplingConfig], tuple[int, float]]] = {
    "top_k": lambda config: (0, float(config.top_k)),
    "top_p": lambda config: (1, config.top_p),
    "min_p": lambda config: (2, float(np.float32(math.log(config.min_p)))),
}
"""Samplers that the last kernel knows -> their code and parameter."""


def _finish(
    candidates: Candidates, names: Sequence[str], heat: np.float32, uniform: float, step: FastStep
) -> DrawnToken:
    """Run the remaining samplers and draw in one kernel; if that is not exact, one by one."""
    if candidates.ids is None:
        candidates = candidates.alive()
    config, values = step.context.config, candidates.values
    coded = [CODES[name](config) for name in names]
    codes = np.array([code for code, _ in coded], dtype=np.float64)  # (m,)
    amounts = np.array([amount for _, amount in coded], dtype=np.float64)  # (m,)
    probs = np.empty(values.shape[0], dtype=np.float64)  # (n,), negative for removed candidates
    index, is_sure = kernels("finishing").finish(values, codes, amounts, config.min_keep, heat, uniform, DOUBT, probs)
    if not is_sure:
        return _draw(_run(names, candidates, step), heat, uniform, step)
    shown = np.flatnonzero(probs >= 0.0) if step.show else np.array([index])
    logits, logit = divided(values[shown], heat), float(divided(values[index : index + 1], heat)[0])
    return DrawnToken(
        candidates.id_of(index), float(probs[index]), logit, candidates.ids_of(shown), probs[shown], logits
    )


def _draw(candidates: Candidates, heat: np.float32, uniform: float, step: FastStep) -> DrawnToken:
    """Draw when no truncation is left to run."""
    if heat != 1.0 and (step.show or step.is_plain(candidates)):
        candidates = Candidates(temperature(candidates.values, float(heat)), candidates.ids, True)
        heat = np.float32(1.0)
    values = candidates.values
    if not step.is_plain(candidates) and is_dividable(best := values.max(), heat):
        top = float(best / heat)
        index, weight, total, before, after = kernels("sums").find_mass(values, heat, top, uniform)
        target, doubt = uniform * total, DOUBT * total
        if target - before >= doubt and after - target >= doubt:
            shown = np.union1d(likely_leaders(values, step.show), index) if step.show else np.array([index])
            logits = divided(values[shown], heat)
            probs = np.exp(logits.astype(np.float64) - top) / total
            if (
                not step.show or float(probs.min()) > 0.0
            ):  # candidates whose probability underflowed tie with all others that did
                logit = float(divided(values[index : index + 1], heat)[0])
                return DrawnToken(
                    candidates.id_of(index), weight / total, logit, candidates.ids_of(shown), probs, logits
                )
    if heat != 1.0:
        values = temperature(values, float(heat))
    drawn = pick(values, uniform)
    logit = float(values[drawn.token])
    return DrawnToken(
        candidates.id_of(drawn.token), drawn.prob, logit, candidates.ids_of(drawn.ids), drawn.probs, values[drawn.ids]
    )


def _take_without_draw(candidates: Candidates, index: int) -> DrawnToken:
    """The result if the token is taken without a draw."""
    token, logits = candidates.id_of(index), candidates.values[index : index + 1].copy()  # (1,) float32
    return DrawnToken(token, 1.0, float(logits[0]), np.array([token]), np.ones(1), logits)
