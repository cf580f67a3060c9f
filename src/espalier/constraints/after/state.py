"""The states of `After`: before the marker, in the gap behind it, or inside the inner text."""

from __future__ import annotations

from typing import NamedTuple

IN_GAP = -1
"""`AfterState.at` behind the marker, while the inner text has not begun."""
INSIDE = -2
"""`AfterState.at` within the inner text."""


class AfterState(NamedTuple):
    """One state of an `AfterMatcher`.

    at: before the marker the state of its automaton (>= 0), else IN_GAP or INSIDE.
    gap: whitespace characters read since the marker.
    tokens: how many tokens the inner matcher took for the last token of the text.
    """

    at: int
    gap: int = 0
    tokens: int = 0
