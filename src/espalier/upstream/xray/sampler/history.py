"""Biases, penalties and DRY over ServerCandidates: what is added to the logits of single tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from espalier.sampling.samplers.context import Breakers
from espalier.sampling.samplers.dry import longest_repeats, losses, repeat_limit
from espalier.upstream.xray.sampler.candidates import ServerCandidates
from espalier.upstream.xray.sampler.settings import SamplerSettings


def biased(given: ServerCandidates, settings: SamplerSettings) -> ServerCandidates:
    """Raises UndecidedDraw if an unlisted token might come to the top."""
    return given if not settings.bias else _add_amounts(given, settings.bias)


def penalised(given: ServerCandidates, settings: SamplerSettings, history: Sequence[int]) -> ServerCandidates:
    """Penalties for repetition, presence and frequency. history: prompt and output. With a repeat penalty the logits
    are the server's own, with no constant between."""
    if not settings.has_penalties:
        return given
    counts = counted(settings, history)
    if settings.has_repeat:
        return _penalise_repeats(given, settings, counts)
    each, once = np.float32(settings.frequency_penalty), np.float32(settings.presence_penalty)
    return _add_amounts(given, [(token, -float(np.float32(count) * each + once)) for token, count in counts.items()])


def counted(settings: SamplerSettings, history: Sequence[int]) -> Mapping[int, int]:
    """How often each of the last tokens is there that penalties look at."""
    last = settings.repeat_last_n
    return Counter(history[-last:] if last > 0 else history)


def _penalise_repeats(
    given: ServerCandidates, settings: SamplerSettings, counts: Mapping[int, int]
) -> ServerCandidates:
    """A logit of 0 or less is multiplied, one above is divided; then as without it."""
    factor = np.float32(settings.repeat_penalty)
    each, once = np.float32(settings.frequency_penalty), np.float32(settings.presence_penalty)
    places = {int(token): place for place, token in enumerate(given.ids.tolist())}
    logits, rest = given.logits.copy(), given.rest
    for token, count in counts.items():
        amount = np.float32(count) * each + once
        place = places.get(token)
        if place is not None:
            logit = logits[place]
            logits[place] = (logit * factor if logit <= 0 else logit / factor) - amount
        elif not given.is_whole:
            most = np.float32(given.rest)
            rest = max(rest, float((most * factor if most <= 0 else most / factor) - amount))
    return given.with_logits(logits, is_sorted=False, rest=rest, whole_mass=None)


def dry(
    given: ServerCandidates, settings: SamplerSettings, history: Sequence[int], breakers: Breakers
) -> ServerCandidates:
    """history: prompt and output. breakers: of `resolve_breakers`."""
    if not settings.has_dry:
        return given
    window, least = settings.dry_penalty_last_n, settings.dry_allowed_length
    length = len(history) if window < 0 else min(len(history), window)
    if length <= least:
        return given
    limit = repeat_limit(history, length, breakers)
    if limit < least:
        return given
    repeats = longest_repeats(history, length, limit, least)
    found: Mapping[int, float] = losses(repeats, settings.dry_multiplier, settings.dry_base, least, breakers)
    return _add_amounts(given, [(token, -loss) for token, loss in found.items()])


def _add_amounts(given: ServerCandidates, amounts: Sequence[tuple[int, float]]) -> ServerCandidates:
    """The logits with these amounts added, one after the other. An unlisted token that is raised raises `rest`."""
    if not amounts:
        return given
    places = {int(token): place for place, token in enumerate(given.ids.tolist())}
    logits = given.logits.copy()
    raised: dict[int, float] = {}
    for token, amount in amounts:
        place = places.get(token)
        if place is not None:
            logits[place] = np.float32(logits[place] + np.float32(amount))
        elif not given.is_whole:
            raised[token] = raised.get(token, 0.0) + amount
    rest = given.rest + max([0.0, *raised.values()]) if not given.is_whole else -math.inf
    return given.with_logits(logits, is_sorted=False, rest=rest, whole_mass=None)
