"""The numbers by which kernels know samplers, and the layout of the settings that tell them what to do.

`settings` is `(n,) float64`: `min_keep`; 1 for the most probable token; how many biases and how many samplers there
are; for each sampler, in order, its code and three amounts; the ids of the biases; the biases. `program.py` writes it.
"""

from __future__ import annotations

TOP_K, TOP_P, MIN_P, TYPICAL_P, TOP_N_SIGMA, XTC, PENALTIES, DRY, TEMPERATURE, DYNAMIC = range(10)
"""From PENALTIES on they change logits; the others remove tokens.

Amounts: k; p; ln p; p; n; probability, threshold; repetition, frequency, presence; none; the temperature; the lowest
temperature, the range, the exponent."""
LEAST, GREEDY, BIASES, SAMPLERS, FIRST = range(5)
SIZE = 4
"""Places of a sampler in the settings."""
DOUBT = 1e-9
"""The share of a sum within which two orders of adding up millions of terms may disagree."""
SLACK = 1e-12
"""The same of an entropy or a standard deviation."""
SMALL, LARGE = 1e-3, 1e30
"""Temperatures by which float32 logits are divided in float32; outside, in float64 and from the best one on."""

TOKEN, COUNT, IS_BEST, WANTED, ALLOWED, CHAIN, NUMBERS = range(7)
"""Places in the whole numbers of a listed step: the taken token; how many tokens are allowed, and whether the most
probable one is; how many candidates are listed before the mask, after it, and of what was drawn from. From NUMBERS on,
`width` places each: the ids before the mask, whether each is allowed, the ids after the mask, the ids drawn from."""
REMOVED, TAX, BEFORE, AFTER, LOG_TOTAL, LOG_ALLOWED, Z, PROB, LOGIT, LOGPROB, FIGURES = range(11)
"""Places in the figures of a listed step, named as in StepRecord and Measures; Z: `z_sampled`, NaN without one; PROB,
LOGIT: of the taken token in what it was drawn from. From FIGURES on, `width` places each: the logits of the three
lists, and the probabilities of the last."""
