"""Estimate rejections from a response without a log: what its log probabilities prove, and what they leave open.

llama-server's log probabilities are the model's own, before grammar and samplers. Without a rejection, a token can only
be drawn from what the samplers leave; a token that they would have removed was therefore drawn a second time, after the
first draw was refused. No claim is made if the reply does not name its samplers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from espalier.errors import InputError
from espalier.sampling.samplers.truncations import MIN_P
from espalier.trace.foreign.responses import ApiStep, Response, finite

Acceptance = Literal["rejected", "accepted", "unknown"]
CLOSE = 1e-4
"""Nats within which two log probabilities count as equal: servers print them rounded."""
PENALTIES: Mapping[str, float] = {
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0.0,
    "dynatemp_range": 0.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "ignore_eos": 0.0,
}
"""If one of these is off its neutral value, the samplers do not see the probabilities in the reply, or may remove a
token that is more likely than one they keep; the order of the candidates then proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one step proves. why: in words. rejected: the candidate that was refused, if that is certain. lower, upper:
    bounds on the removed mass."""

    verdict: Acceptance
    why: str
    rejected: Mapping[str, Any] | None = None
    lower: float = 0.0
    upper: float = 1.0


def estimates(
    response: Response, steps: Sequence[ApiStep], *, temperature: float | None = None
) -> tuple[Estimate, ...]:
    """One estimate per step. temperature: used if the response does not tell it; without any, nothing is certain.

    Raises InputError for probabilities after sampling, which hide what was refused.
    """
    if any(step.after for step in steps):
        raise InputError(
            "these are probabilities after sampling, which show nothing of what was refused",
            hint="ask for them without post_sampling_probs",
            field="response",
        )
    heat = response.temperature if temperature is None else temperature
    if response.request is not None:
        return tuple(_ours(_estimate(step, response.settings, heat)) for step in steps)
    if response.settings.get("grammar") == "" and not response.settings.get("json_schema"):
        return tuple(_free(step) for step in steps)
    return tuple(_estimate(step, response.settings, heat) for step in steps)


def _ours(estimate: Estimate) -> Estimate:
    """A reply of Espalier's server does not say its strategy, and most of them mask before they draw: what was refused
    is known, but not whether it had been drawn."""
    if estimate.verdict != "rejected":
        return estimate
    why = f"the constraint refused a more likely token, and the strategy is not told ({estimate.why})"
    return replace(estimate, verdict="unknown", why=why, rejected=None)


def _free(step: ApiStep) -> Estimate:
    return Estimate(verdict="accepted", why="the request had no grammar", upper=0.0)


def _estimate(step: ApiStep, settings: Mapping[str, Any], heat: float | None) -> Estimate:
    if step.logprob is None or step.logprob > CLOSE or not step.top:
        return Estimate(verdict="unknown", why="the response lists no candidates here")
    upper = max(0.0, -math.expm1(step.logprob))  # everything but the token itself
    ranked = ranked_of(step)
    better = [candidate for candidate in ranked if candidate["logprob"] > step.logprob + CLOSE]
    if not better:
        sure = heat is not None and heat <= 0 and not _has_penalties(settings)
        return Estimate(
            verdict="accepted" if sure else "unknown",
            why="the most likely token was taken" + ("" if sure else "; a draw may have been refused before it"),
            upper=upper,
        )
    if heat is None:
        return Estimate(verdict="unknown", why="the response does not tell its temperature", upper=upper)
    if _has_penalties(settings):
        return Estimate(verdict="unknown", why="penalties change the order of the candidates", upper=upper)
    if heat <= 0:
        # Greedy: everything more likely was refused, and the most likely token was drawn first.
        mass = math.fsum(math.exp(candidate["logprob"]) for candidate in better)
        return Estimate(
            verdict="rejected",
            why=f"at temperature 0 the most likely token is taken, and it was {_word_place(len(better) + 1, ranked)}",
            rejected=better[0],
            lower=min(mass, upper),
            upper=upper,
        )
    cut = _cut_by(step, ranked, better, settings)
    if cut:
        return Estimate(verdict="rejected", why=f"{cut} would have left this token out", upper=upper)
    return Estimate(verdict="unknown", why="it may have been the first draw or the second", upper=upper)


def _cut_by(
    step: ApiStep, ranked: Sequence[Mapping[str, Any]], better: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> str:
    """The first sampler that surely removes this token from the model's own distribution; "" if none does.

    Only samplers that see that distribution itself count: after a sampler of another kind, or a temperature, they see a
    different one.
    """
    order = settings.get("samplers")
    active = [name for name in order if isinstance(name, str)] if isinstance(order, list) else []
    min_keep = finite(settings.get("min_keep")) or 0.0  # tokens that probability-based samplers always keep
    if min_keep > len(better):
        return ""
    for name in active:
        if name in ("penalties", "dry"):
            continue  # neutral, or the caller has returned already
        if name == "top_k":
            k = settings.get("top_k")
            if isinstance(k, int) and 0 < k <= len(better):
                return f"top_k {k}"
        elif name == MIN_P.llama:
            # After top_k or top_p it still compares with the best token, which they keep.
            least = settings.get(name)
            if isinstance(least, int | float) and 0 < least <= 1 and _below(step, ranked, least):
                return f"{name} {least:g}"
        elif name == "top_p" and "top_k" not in active[: active.index(name)]:
            most = settings.get("top_p")
            if isinstance(most, int | float) and most < 1 and _mass(better) >= most + CLOSE:
                return f"top_p {most:g}"
        elif name != "top_p" and _is_on(name, settings):
            return ""
    return ""


def _below(step: ApiStep, ranked: Sequence[Mapping[str, Any]], share: float) -> bool:
    best = max(float(candidate["logprob"]) for candidate in ranked)
    return step.logprob is not None and step.logprob < best + math.log(share) - CLOSE


NEUTRAL: Mapping[str, tuple[str, float]] = {
    "top_n_sigma": ("top_n_sigma", 0.0),
    "typ_p": ("typical_p", 1.0),
    "xtc": ("xtc_probability", 0.0),
    "temperature": ("temperature", 1.0),
}


def _is_on(name: str, settings: Mapping[str, Any]) -> bool:
    known = NEUTRAL.get(name)
    if known is None:
        return True
    value = settings.get(known[0])
    return not isinstance(value, int | float) or (value > 0 if known[0] == "top_n_sigma" else value != known[1])


def _has_penalties(settings: Mapping[str, Any]) -> bool:
    target = finite(settings.get("adaptive_target"))
    if target is not None and target >= 0:  # a negative target switches that sampler off
        return True
    return any(name in settings and settings[name] != neutral for name, neutral in PENALTIES.items()) or bool(
        settings.get("logit_bias")
    )


def ranked_of(step: ApiStep) -> list[Mapping[str, Any]]:
    """The candidates of a step that have a log probability, most likely first."""
    candidates = [
        candidate for candidate in step.top if (ln := finite(candidate.get("logprob"))) is not None and ln <= CLOSE
    ]
    return sorted(candidates, key=lambda candidate: -float(candidate["logprob"]))


def _mass(candidates: Sequence[Mapping[str, Any]]) -> float:
    return math.fsum(math.exp(candidate["logprob"]) for candidate in candidates)


def _word_place(rank: int, ranked: Sequence[Mapping[str, Any]]) -> str:
    return f"one past the {len(ranked)} listed" if rank > len(ranked) else f"number {rank}"
