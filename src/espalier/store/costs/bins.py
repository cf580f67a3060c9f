"""Bins of the tax, from which percentiles are told. It knows no database."""

from __future__ import annotations

import math

BINS = 8
"""Bins of the tax in each doubling: a percentile of them is within 4.5 % of the true one."""
LEAST_BIN = -10 * BINS - 1
"""Below a thousandth of a nat all are alike."""


def bin_of(tax: float) -> int:
    """The bin of a tax in nats: so many eighths of a doubling from one nat."""
    return max(LEAST_BIN, math.floor(math.log2(tax) * BINS)) if tax > 0 else LEAST_BIN


def middle_of(number: int) -> float:
    """The tax in the middle of a bin, in nats; 0 for the lowest."""
    return 0.0 if number <= LEAST_BIN else 2.0 ** ((number + 0.5) / BINS)
