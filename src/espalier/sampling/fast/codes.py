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
