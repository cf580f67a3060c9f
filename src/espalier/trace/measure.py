"""The measures of one step: removed mass, tax, entropies. Sums in float64, by log-sum-exp.

`p` is the softmax of the model's raw logits; `A` is the allowed set; `Z` is the sum of p over A.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.fast.candidates import DRAWS, kernels
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits

T = TypeVar("T", bound=np.generic)

SCALE: tuple[tuple[float, str], ...] = ((0.0, "negligible"), (0.1, "mild"), (0.7, "strong"), (4.6, "extreme"))
"""The least nats of tax per token, and the word: up to a tenth, half and 99 % of the probability was removed."""


def word_of(nats: float) -> str:
    """The word for a tax per token."""
    return [word for least, word in SCALE if nats >= least or not least][-1]


class Measures(NamedTuple):
    """removed_mass = 1 - Z. tax_nats = -ln Z = KL(q || p), where q is p renormalised over A. Entropies in nats.

    log_total: ln of the sum of exp(logit), so that `ln p(v) = logit(v) - log_total`. log_allowed: the same over A.
    """

    removed_mass: float
    tax_nats: float
    entropy_before: float
    entropy_after: float
    log_total: float
    log_allowed: float


def measure(raw: Logits, allowed: NDArray[np.bool_] | None, *, top: float | None = None) -> Measures:
    """`raw` is `(V,) float32`, finite or -inf; `allowed` is `(V,) bool` with at least one finite logit under it. top:
    the largest logit, if the caller knows it."""
    top = float(raw.max()) if top is None else top
    total, spread, inside, inside_spread = _sums(raw, allowed, top)
    before, log_total = _entropy(total, spread, top)
    if allowed is None:
        return Measures(0.0, 0.0, before, before, log_total, log_total)
    if inside < TINY:
        # The allowed logits are so far below the best that their weights have lost digits: shift by their own maximum.
        rest = raw[allowed]  # (n,)
        top = float(rest.max())
        inside, inside_spread, _, _ = _sums(rest, None, top)
    return _measures(before, log_total, *_entropy(inside, inside_spread, top))


def measures_of(
    total: float, spread: float, inside: float, inside_spread: float, top: float, *, has_mask: bool
) -> Measures | None:
    """As `measure`, from the sums of `exp(logit - top)` and of that times `logit - top`, over all and over the allowed
    tokens; None where these are too small."""
    before, log_total = _entropy(total, spread, top)
    if not has_mask:
        return Measures(0.0, 0.0, before, before, log_total, log_total)
    return _measures(before, log_total, *_entropy(inside, inside_spread, top)) if inside >= TINY else None


def _measures(before: float, log_total: float, after: float, log_allowed: float) -> Measures:
    # The two sums are rounded separately, so that a mask which removes nothing could cost -1e-17.
    tax = max(0.0, log_total - log_allowed)
    return Measures(-math.expm1(-tax), tax, before, after, log_total, log_allowed)


def allowed_mass(logits: Logits, allowed: NDArray[np.bool_] | None) -> float:
    """The softmax mass of `allowed` under `(V,) float32` logits, float64."""
    if allowed is None:
        return 1.0
    total, _, inside, _ = _sums(logits, allowed, float(logits.max()))
    return inside / total


def removed_by(
    raw: Logits,
    allowed: NDArray[np.bool_],
    members: Sequence[tuple[str, NDArray[np.bool_]]],
    *,
    sure: int | None = None,
) -> tuple[tuple[str, float], ...]:
    """For each member, the mass that it is the first to refuse; together they are 1 - Z. members: in order of blame,
    `(V,) bool` each; members of the same name are merged. sure: how many members are always listed, None for all; the
    others are listed only if they are the first to refuse some mass. Mass that only `allowed` excludes goes to
    `OTHERS`."""
    weights = _weights(raw)
    total = float(weights.sum())
    left = np.ones(raw.shape[0], dtype=np.bool_)  # (V,), tokens that no member has refused so far
    shares: dict[str, float] = {}
    for index, (name, allows) in enumerate([*members, (OTHERS, allowed)]):
        refused = left & ~allows  # (V,) bool
        share = float(weights[refused].sum()) / total
        if index < (len(members) if sure is None else sure) or share > 0.0:
            shares[name] = shares.get(name, 0.0) + share
        left &= allows
    return tuple(shares.items())


class Cost(NamedTuple):
    """Costs of a group of tokens: their number, the sum of their taxes in nats, the mean of their removed masses."""

    tokens: int
    tax_nats: float
    removed_mass: float


def costs_by(keys: Iterable[str | None], taxes: Iterable[float], masses: Iterable[float]) -> dict[str, Cost]:
    """Group tokens by key (a JSON path, a rule), in order of first occurrence; tokens with key None are left out. The
    three arguments have equal length. Sums are rounded once, independent of the order."""
    groups: dict[str, tuple[list[float], list[float]]] = {}
    for key, tax, mass in zip(keys, taxes, masses, strict=True):
        if key is not None:
            costs = groups.setdefault(key, ([], []))
            costs[0].append(tax)
            costs[1].append(mass)
    return {key: Cost(len(paid), math.fsum(paid), math.fsum(lost) / len(lost)) for key, (paid, lost) in groups.items()}


def cumulative(values: Sequence[float]) -> list[float]:
    """Prefix sums, each including its own value; each is as exact as `math.fsum`."""
    parts: list[float] = []  # non-overlapping partial sums, smallest first (Shewchuk 1997)
    sums = []
    for value in values:
        rest, errors = value, []
        for part in parts:
            large, small = (rest, part) if abs(rest) >= abs(part) else (part, rest)
            rest = large + small
            lost = small - (rest - large)
            if lost:
                errors.append(lost)
        parts = [*errors, rest]
        sums.append(math.fsum(parts))
    return sums


OTHERS = "filters"
TINY = 1e-200  # smaller sums of weights are recomputed, far above where float64 loses digits


NOTHING = np.empty(0, dtype=np.uint32)  # (0,)


def plain(array: NDArray[T]) -> NDArray[T]:
    """The array as kernels take it, contiguous and writable; copied only if necessary."""
    return array if array.flags.carray else np.require(array, requirements=("C", "W", "A"))


def _sums(
    logits: NDArray[np.float32], allowed: NDArray[np.bool_] | None, top: float
) -> tuple[float, float, float, float]:
    """The sums of `sum_row`: by its kernel, or by numpy until that is loaded."""
    if not DRAWS.is_loaded:
        return sum_plainly(logits, allowed, top)
    words = NOTHING if allowed is None else masks.from_bool(allowed).view(np.uint32)
    return kernels("sums").sum_row(plain(logits), words, top)  # type: ignore[no-any-return]


def sum_plainly(
    logits: NDArray[np.float32], allowed: NDArray[np.bool_] | None, top: float
) -> tuple[float, float, float, float]:
    """The sums of `sum_row`, worked out by numpy until the kernel is loaded."""
    distances = logits.astype(np.float64) - top  # (n,)
    weights = np.exp(distances)  # (n,)
    spreads = np.multiply(weights, distances, where=weights > 0.0, out=np.zeros_like(weights))  # (n,)
    total, spread = float(weights.sum()), float(spreads.sum())
    if allowed is None:
        return total, spread, 0.0, 0.0
    return total, spread, float(weights[allowed].sum()), float(spreads[allowed].sum())


def _entropy(total: float, spread: float, top: float) -> tuple[float, float]:
    """(entropy in nats, ln of the sum of exp), from the sums of `exp(logit - top)` and of that times `logit - top`."""
    return max(0.0, math.log(total) - spread / total), top + math.log(total)


def _weights(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """exp(logit - best), `(n,)`."""
    shifted = logits.astype(np.float64)  # (n,)
    shifted -= float(logits.max())
    return np.exp(shifted)
