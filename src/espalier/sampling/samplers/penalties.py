"""Repetition, frequency and presence penalties: pure functions of logits and token counts.

The arithmetic is llama.cpp's (`llama_sampler_penalties` in `src/llama-sampler.cpp`). The counts follow the definitions:
repetition (arXiv:1909.05858) counts prompt and output, frequency and presence (OpenAI) count the output. llama.cpp
counts the prompt for all three; see docs/sampling.md. `history.py` keeps the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from espalier.sampling.fields import Number, Whole
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.sampler import Sampler
from espalier.tokens.mask import LARGEST, Logits


def penalties(
    logits: Logits,
    repetition: float,
    frequency: float,
    presence: float,
    seen: Mapping[int, int],
    produced: Mapping[int, int],
) -> Logits:
    """For each token of `seen`: divide its logit by `repetition` if positive, else multiply. For each token of
    `produced`: subtract `frequency` per occurrence and `presence` once. Values of 1, 0 and 0 change nothing.

    seen: how often each id occurs in the window, prompt and output. produced: the same for the output alone. Penalties
    ban nothing: results are clipped to float32's range. Ids outside V are ignored.
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
            count = produced.get(token, 0)
            if count:
                value = _finite(value - _finite(np.float32(count) * each + once))
            out[token] = value
    return out


def amount(value: float) -> np.float32:
    """A field of the config as float32, clipped to its finite range."""
    return np.float32(min(max(value, -LARGEST), LARGEST))


def _finite(value: np.float32) -> np.float32:
    return np.float32(min(max(float(value), -LARGEST), LARGEST))


def _transform(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    return penalties(
        logits,
        config.repetition_penalty,
        config.frequency_penalty,
        config.presence_penalty,
        context.seen,
        context.produced,
    )


def _is_on(config: Any) -> bool:
    changes = config.repetition_penalty != 1 or config.frequency_penalty != 0 or config.presence_penalty != 0
    return bool(changes and config.repetition_window != 0)


PENALTIES = Sampler(
    name="penalties",
    llama="penalties",
    letter="e",
    transform=_transform,
    on_if=_is_on,
    fields=(
        Number(
            name="repetition_penalty",
            default=1.1,
            off=1.0,
            is_above=True,
            help="Divides the logits of tokens in the last `repetition_window` tokens, prompt included; 1 is off.",
            hint="1 is off",
            common=5,
            llama="repeat_penalty",
            openai="repetition_penalty",
        ),
        Whole(
            name="repetition_window",
            default=64,
            low=-1,
            help="How many of the last tokens the three penalties look at; 0 switches them off, -1 is all.",
            hint="0 is off, -1 is everything",
            llama="repeat_last_n",
        ),
        Number(
            name="frequency_penalty",
            default=0.0,
            off=0.0,
            help="Subtracted from a logit for each time its token was generated within the window; 0 is off.",
            low=-math.inf,
            hint="0 is off",
            llama="frequency_penalty",
            openai="frequency_penalty",
        ),
        Number(
            name="presence_penalty",
            default=0.0,
            off=0.0,
            help="Subtracted once from the logit of a token that was generated within the window; 0 is off.",
            low=-math.inf,
            hint="0 is off",
            llama="presence_penalty",
            openai="presence_penalty",
        ),
    ),
)
