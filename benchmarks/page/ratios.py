"""Ratios of one engine to another over repetitions, and whether a difference is more than noise."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LEVEL = 0.03
"""A ratio so near to 1 is neither ahead nor behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The first engine of a row over another: median, least and most of the repetitions' own ratios."""

    peer: str
    middle: float
    least: float
    most: float

    def text(self) -> str:
        if f"{self.least:.2g}" == f"{self.most:.2g}":
            return number(self.middle)
        return f"{number(self.middle)} ({number(self.least)}–{number(self.most)})"


def ratios(row: Mapping[str, Any]) -> list[Ratio]:
    """Those of a row of the page's data; none to a peer with a value of 0."""
    (_, ours), *others = row["values"].items()
    return [
        Ratio(peer=peer, middle=statistics.median(each), least=min(each), most=max(each))
        for peer, values in others
        if all(values)
        for each in [[one / other for one, other in zip(ours, values, strict=True)]]
    ]


def verdict(row: Mapping[str, Any]) -> str:
    """`ahead`, `behind` or `level` beside the best of the others; nothing where there is no other."""
    (_, ours), *others = row["values"].items()
    if not others:
        return ""
    more = row["more_is_better"]
    best = (max if more else min)(statistics.median(values) for _, values in others)
    mine = statistics.median(ours)
    if mine == best or (best and abs(mine / best - 1) < LEVEL):
        return "level"
    return "ahead" if (mine > best) is more else "behind"


def is_change(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether all repetitions after lie on one side of all before: by chance alone with probability 2/(n choose k)."""
    return max(before) < min(after) or max(after) < min(before)


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return format(Decimal(f"{value:.3g}"), "f")
