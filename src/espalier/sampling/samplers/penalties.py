"""Penalties on what was said before: pure functions of logits and counts. They do not know who counts.

Semantics are llama.cpp's (`llama_sampler_penalties` in `src/llama-sampler.cpp`) for the arithmetic. What is counted is
the field's: repetition (arXiv:1909.05858) looks at prompt and output, frequency and presence (OpenAI's) at the output.
llama.cpp counts the prompt for all three; see docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from espalier.tokens.mask import Logits

LARGEST = float(np.finfo(np.float32).max)


def penalties(
    logits: Logits,
    repetition: float,
    frequency: float,
    presence: float,
    seen: Mapping[int, int],
    said: Mapping[int, int],
) -> Logits:
    """Each token of `seen` once: its logit divided by `repetition` where positive, else multiplied. Then each token of
    `said` loses `frequency` for every time it occurred, and `presence` once. 1, 0 and 0 change nothing.

    seen: how often each id occurs in the window, prompt and output. said: the same of the output alone; a part of
    `seen`. Penalties ban nothing: what would leave float32's range stays at its end. Ids outside V are passed over.
    """
    out = logits.copy()  # (V,) float32
    factor, each, once = amount(repetition), amount(frequency), amount(presence)
    with np.errstate(over="ignore", divide="ignore"):
        for token in seen:
            if token >= logits.shape[0] or logits[token] == -np.inf:
                continue
            value = np.float32(logits[token])
            if repetition != 1.0:
                value = _finite(value * factor if value <= 0 else value / factor)
            count = said.get(token, 0)
            if count:
                value = _finite(value - _finite(np.float32(count) * each + once))
            out[token] = value
    return out


def amount(value: float) -> np.float32:
    """A field of the config as it is reckoned with: finite in float32 too."""
    return np.float32(min(max(value, -LARGEST), LARGEST))


def _finite(value: np.float32) -> np.float32:
    return np.float32(min(max(float(value), -LARGEST), LARGEST))


def count_window(history: Sequence[int], generated: int, window: int) -> tuple[dict[int, int], dict[int, int]]:
    """`seen` and `said` of a history of which the last `generated` ids are the output: how often each id occurs in
    the last `window` tokens (-1: in all), and how often as output there."""
    start = 0 if window < 0 else max(0, len(history) - window)
    first_said = len(history) - generated
    seen: dict[int, int] = {}
    said: dict[int, int] = {}
    for place in range(start, len(history)):
        token = history[place]
        seen[token] = seen.get(token, 0) + 1
        if place >= first_said:
            said[token] = said.get(token, 0) + 1
    return seen, said
