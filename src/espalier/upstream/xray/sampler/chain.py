"""`ServerChain`: one application of llama.cpp's sampler chain to what a server reported, and the token it drew.

A draw that is too close to call has several results; one that depends on unlisted tokens has none. Nothing here is
changed by drawing: the generator's place and mirostat's mu are a `SamplerPosition`, and results carry the next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.samplers.context import NO_BREAKERS, Breakers
from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.sampler import history as histories
from espalier.upstream.xray.sampler.candidates import CLOSE, ServerCandidates, UndecidedDraw
from espalier.upstream.xray.sampler.numbers import RandomNumbers
from espalier.upstream.xray.sampler.settings import SamplerSettings
from espalier.upstream.xray.sampler.steps import STEPS, draws_xtc, temperature, xtc

LOOKED_AT = 100
MOST_OPTIONS = 8
NEAR = 2e-5
"""Of mirostat 1's number of tokens, a power of sums of logarithms."""


@dataclass(frozen=True, slots=True)
class SamplerPosition:
    """Where the sampler is: how many numbers were drawn, how many of them by xtc, and mirostat's mu."""

    draws: int = 0
    chances: int = 0
    mu: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """token: what was drawn. ids, probs: what it was drawn from, `(n,)`. prob: the token's in there. after: the next
    place."""

    token: int
    prob: float
    ids: NDArray[np.int64]
    probs: NDArray[np.float64]
    logits: NDArray[np.float32]
    after: SamplerPosition


class ServerChain:
    """The chain of one request."""

    def __init__(
        self,
        settings: SamplerSettings,
        *,
        width: int,
        breakers: Breakers = NO_BREAKERS,
        numbers: RandomNumbers | None = None,
    ) -> None:
        self.settings = settings
        self._width, self._breakers = width, breakers
        self._numbers = numbers or RandomNumbers(settings.seed)

    @property
    def start(self) -> SamplerPosition:
        return SamplerPosition(mu=float(np.float32(2) * np.float32(self.settings.mirostat_tau)))

    def draw(
        self,
        given: ReportedTokens,
        place: SamplerPosition,
        past: Sequence[int],
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[Draw]:
        """What the chain may have drawn. past: prompt and output before. allowed: `(V,) bool` if the grammar was
        applied first, None if not. Raises UndecidedDraw."""
        if not self.settings.has_repeat or self.is_level(given, past):
            return self._drawn(self._candidates(given, allowed), place, past)
        if given.level is None:
            raise UndecidedDraw
        levels = dict.fromkeys(given.level.value + off for off in (0.0, -given.level.off, given.level.off))
        found = [self._drawn(self._candidates(given, allowed, level=one), place, past) for one in levels]
        return _distinct([draw for draws in found for draw in draws])

    def is_level(self, given: ReportedTokens, past: Sequence[int]) -> bool:
        """Whether a repeat penalty changes no listed token, and raises no other."""
        last = histories.counted(self.settings, past)
        if given.is_whole or self.settings.repeat_penalty < 1:
            return not last
        return not any(token in last for token in given.ids.tolist())

    def _candidates(
        self, given: ReportedTokens, allowed: NDArray[np.bool_] | None, *, level: float = 0.0
    ) -> ServerCandidates:
        logits = (given.logprobs.astype(np.float64) + level).astype(np.float32) if level else given.logprobs
        if allowed is not None:
            logits = np.where(allowed[given.ids], logits, np.float32(-np.inf))
        # As the server fills its array: by id. What is equal is then found in the order of its own sorting.
        order = np.argsort(given.ids) if self._draws_by_id else np.arange(given.ids.shape[0])
        ids, logits = given.ids[order], logits[order]
        if given.is_whole:
            return ServerCandidates(ids, logits, is_sorted=False)
        # Equal ones are listed in the server's order.
        rest = float(np.nextafter(np.float32(float(given.logprobs[-1]) + level), np.float32(-np.inf)))
        whole = math.exp(level) if allowed is None else None
        return ServerCandidates(ids, logits, is_sorted=False, rest=rest, whole_mass=whole)

    @property
    def _draws_by_id(self) -> bool:
        """Whether no sampler sorts the array, so that it is gone through by id."""
        settings = self.settings
        if settings.mirostat:
            return False
        sorts = (
            ("top_k" in settings.samplers and settings.top_k > 0)
            or ("top_p" in settings.samplers and settings.top_p < 1)
            or ("typ_p" in settings.samplers and settings.typical_p < 1)
            or ("top_n_sigma" in settings.samplers and settings.top_n_sigma > 0)
            or ("temperature" in settings.samplers and settings.dynatemp_range > 0)
        )
        return not sorts

    def _drawn(self, given: ServerCandidates, place: SamplerPosition, past: Sequence[int]) -> list[Draw]:
        settings = self.settings
        given = histories.biased(given, settings)
        if settings.mirostat:
            return self._mirostat(given, place)
        options = [(given, place)]
        for name in settings.samplers:
            grown: list[tuple[ServerCandidates, SamplerPosition]] = []
            for one, at in options:
                grown += self._applied(name, one, at, past)
            if len(grown) > MOST_OPTIONS:
                raise UndecidedDraw
            options = grown
        found = [draw for one, at in options for draw in self._dist(one, at)]
        return _distinct(found)

    def _applied(
        self, name: str, given: ServerCandidates, place: SamplerPosition, past: Sequence[int]
    ) -> list[tuple[ServerCandidates, SamplerPosition]]:
        settings = self.settings
        if name == "penalties":
            return [(histories.penalised(given, settings, past), place)]
        if name == "dry":
            return [(histories.dry(given, settings, past, self._breakers), place)]
        if name == "xtc":
            if not draws_xtc(given, settings):
                return [(given, place)]
            chance = self._numbers.single(place.chances)
            after = replace(place, chances=place.chances + 1)
            return [(one, after) for one in xtc(given, settings, chance)]
        return [(one, place) for one in STEPS[name](given, settings)]

    def _dist(self, given: ServerCandidates, place: SamplerPosition) -> list[Draw]:
        """The last sampler: the first token at which the running sum reaches a uniform share of the whole."""
        given.need_whole()
        after = replace(place, draws=place.draws + 1)
        top = given.logits.max()
        if top == -np.inf:
            raise UndecidedDraw
        weights = np.exp(given.logits - top).astype(np.float64)
        return self._chosen(given, weights, self._numbers.uniform(place.draws), after)

    def _chosen(
        self, given: ServerCandidates, weights: NDArray[np.float64], chance: float, after: SamplerPosition
    ) -> list[Draw]:
        sums = np.cumsum(weights)
        total = float(sums[-1])
        target = total * chance
        at = min(int(np.searchsorted(sums, target, side="left")), sums.shape[0] - 1)
        places = [at]
        near = CLOSE * total
        if at + 1 < sums.shape[0] and float(sums[at]) - target < near:
            places.append(at + 1 + int(np.argmax(weights[at + 1 :] > 0)))
        if at > 0 and target - float(sums[at - 1]) < near:
            places.append(at - 1 - int(np.argmax(weights[at - 1 :: -1] > 0)))
        probs = weights / total
        return [
            Draw(int(given.ids[one]), float(probs[one]), given.ids, probs, given.logits, after)
            for one in places
            if weights[one] > 0
        ]

    def _mirostat(self, given: ServerCandidates, place: SamplerPosition) -> list[Draw]:
        settings = self.settings
        # `temp`, without dynamic temperature.
        (given,) = temperature(given, replace(settings, dynatemp_range=0.0))
        given.need_whole()
        given = given.sorted()
        probs = given.probs()
        counts = _mirostat_1(probs, place.mu, self._width) if settings.mirostat == 1 else _mirostat_2(probs, place.mu)
        return _distinct([draw for count in counts for draw in self._mirostat_draws(given.cut(count), place)])

    def _mirostat_draws(self, given: ServerCandidates, place: SamplerPosition) -> list[Draw]:
        settings = self.settings
        probs = given.probs()
        if probs.shape[0] == 1:  # a distribution of one number draws none
            found = self._chosen(given, probs.astype(np.float64), 0.0, place)
        else:
            after = replace(place, draws=place.draws + 1)
            found = self._chosen(given, probs.astype(np.float64), self._numbers.uniform(place.draws), after)
        made = []
        for draw in found:
            prob = probs[int(np.flatnonzero(given.ids == draw.token)[0])]  # the server's, whose sum is not quite 1
            seen = -np.log2(prob)
            mu = np.float32(place.mu) - np.float32(settings.mirostat_eta) * (seen - np.float32(settings.mirostat_tau))
            made.append(replace(draw, prob=float(prob), after=replace(draw.after, mu=float(mu))))
        return made


def _mirostat_1(probs: NDArray[np.float32], mu: float, width: int) -> list[int]:
    """How many tokens version 1 keeps; two numbers where it is too close to call."""
    some = probs[:LOOKED_AT]
    steps = np.arange(1, some.shape[0], dtype=np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = np.log((steps + 1) / steps)
        b = np.log(some[:-1] / some[1:])
        sums = np.cumsum(t * b, dtype=np.float32)[-1:], np.cumsum(t * t, dtype=np.float32)[-1:]
        s_hat = np.float32(sums[0][0] / sums[1][0]) if steps.size else np.float32(np.nan)
        epsilon = s_hat - np.float32(1)
        k = float(((epsilon * np.float32(2) ** np.float32(mu)) / (1 - np.float32(width) ** -epsilon)) ** (1 / s_hat))
    if not math.isfinite(k) or k > 2**31:
        raise UndecidedDraw
    return sorted({min(max(int(one), 1), probs.shape[0]) for one in (k, k * (1 - NEAR), k * (1 + NEAR))})


def _mirostat_2(probs: NDArray[np.float32], mu: float) -> list[int]:
    """How many tokens version 2 keeps; two numbers where it is too close to call."""
    with np.errstate(divide="ignore"):
        surprise = -np.log2(probs)
    counts = set()
    for edge in (mu, mu - 10 * CLOSE, mu + 10 * CLOSE):
        above = surprise > np.float32(edge)
        counts.add(max(1, int(np.argmax(above))) if above.any() else probs.shape[0])
    return sorted(counts)


def _distinct(found: list[Draw]) -> list[Draw]:
    """One draw for each token and place."""
    kept: dict[tuple[int, SamplerPosition], Draw] = {}
    for one in found:
        kept.setdefault((one.token, one.after), one)
    return list(kept.values())
