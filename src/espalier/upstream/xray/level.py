"""How large the logits themselves are, which a server tells only up to a constant; a repeat penalty needs to know.

One position is asked for again with one token of its history raised, and then divided by a penalty that is known: by
how much it lies below the others then tells how large it was. It makes no requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from espalier.errors import UpstreamError
from espalier.upstream.xray.distribution import Level, ReportedTokens
from espalier.upstream.xray.wire.alignment import is_cut

RAISED, DIVIDED = 400.0, 10.0
"""The token's logit is raised so far that it is above 0 in any model, and comes back among the best by the division."""
COMPARED = 10
LEAST_OFF, MOST_OFF = 2e-5, 0.05
"""What rounding takes; what would be another distribution."""
ALONE_OFF = 1e-3
"""Where there is only one token to compare with."""


class Probe(NamedTuple):
    """token: the one that is raised. window: how far back the penalty looks, so that it meets this token."""

    token: int
    window: int

    def settings(self) -> dict[str, Any]:
        """The sampler's part of the request."""
        return {
            "samplers": ["penalties"],
            "repeat_last_n": self.window,
            "repeat_penalty": DIVIDED,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logit_bias": [[self.token, RAISED]],
            "mirostat": 0,
            "temperature": 1.0,
            "post_sampling_probs": True,
        }


def probe_of(reported: ReportedTokens, history: Sequence[int], pieces: Sequence[bytes]) -> Probe | None:
    """The best listed token that is in the history and ends no text inside a character: such a one gets no entry. None
    without one. pieces: by token."""
    back: dict[int, int] = {}
    for distance, token in enumerate(reversed(history), 1):
        back.setdefault(token, distance)
    for token in reported.ids.tolist():
        if token in back and not is_cut(pieces[token]):
            return Probe(token, back[token])
    return None


def level_of(entry: Any, reported: ReportedTokens, probe: Probe, history: Sequence[int]) -> Level | None:
    """entry: the server's answer. None if it does not fit what was reported. Raises UpstreamError if it cannot be
    read."""
    probs = _probs(entry)
    listed = dict(zip(reported.ids.tolist(), reported.logprobs.tolist(), strict=True))
    own, last = probs.get(probe.token, 0.0), set(history[-probe.window :])
    others = [token for token in reported.ids.tolist() if probs.get(token, 0.0) > 0 and token not in last][:COMPARED]
    if own <= 0 or not others or not math.isfinite(listed[probe.token]):
        return None
    raised = (listed[probe.token] + RAISED) / DIVIDED
    levels = [(raised - listed[other] - math.log(own / probs[other])) / (1 - 1 / DIVIDED) for other in others]
    value = median(levels)
    spread = max(abs(level - value) for level in levels) if len(levels) > 1 else ALONE_OFF
    return None if not spread <= MOST_OFF else Level(value, max(LEAST_OFF, 3 * spread))


def _probs(entry: Any) -> Mapping[int, float]:
    try:
        return {int(top_prob["id"]): float(top_prob["prob"]) for top_prob in entry["top_probs"]}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UpstreamError(f"the probabilities of the reply cannot be read: {error!r}") from error
