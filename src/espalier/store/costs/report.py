"""What the sums of a window say: means, percentiles, intervals, changes against another window. It knows no database.

Intervals are of 95 %, from the normal distribution, since the sums have the squares of each answer's tax and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from espalier.store.costs.bins import middle_of

NORMAL = 1.959964
"""Standard deviations to both sides of the mean, of 95 % of a normal distribution."""
FEW = 10
"""Answers, in each of two windows, below which no interval is told."""
P95 = 0.95


class Interval(NamedTuple):
    """A mean and the ends of its interval; both None where there are too few answers."""

    mean: float
    low: float | None
    high: float | None


class Point(NamedTuple):
    """A part of a window. at: Unix seconds of its beginning. answers: whose tax is known; tax: theirs, in nats. marks:
    what began in it."""

    at: int
    answers: int
    tax: float
    marks: tuple[str, ...] = ()


class WantedRow(NamedTuple):
    """A token that the model wanted most and the constraint did not allow, and the one that came. tax: nats of all
    these steps."""

    wanted: str
    taken: str
    times: int
    tax: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintWindow:
    """The sums of one constraint in a window: the columns of `tables.COST_SUMS`, and the bins of the tax."""

    answers: int
    tokens: int
    invalid: int
    cut: int
    measured: int
    measured_tokens: int
    tax: float
    tax_squares: float
    removed: float
    changed: int
    forced: int
    drafted: int
    timed: int
    timed_tokens: int
    seconds: float
    #: By measure (`answer`, `token`): answers by bin.
    bins: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def mean_tax(self) -> float | None:
        """Nats for each answer."""
        return self.tax / self.measured if self.measured else None

    @property
    def token_tax(self) -> float | None:
        """Nats for each token."""
        return self.tax / self.measured_tokens if self.measured_tokens else None

    @property
    def token_seconds(self) -> float | None:
        return self.seconds / self.timed_tokens if self.timed_tokens else None

    def high_tax(self, measure: str) -> float | None:
        """The 95th percentile, within 4.5 %. measure: `answer` or `token`."""
        bins = self.bins.get(measure) or {}
        wanted, seen = P95 * sum(bins.values()), 0
        for number in sorted(bins):
            seen += bins[number]
            if seen >= wanted:
                return middle_of(number)
        return None

    def share(self, count: float) -> float:
        """A count of tokens as a share of all."""
        return count / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintCosts:
    """The costs of one constraint in a window. past: the window before, free: free text in this one, where there was
    any."""

    fingerprint: str
    kind: str
    title: str
    now: ConstraintWindow
    past: ConstraintWindow | None = None
    free: ConstraintWindow | None = None
    trend: Sequence[Point] = ()

    @property
    def change(self) -> Interval | None:
        """By how many nats an answer is dearer than in the window before; None without answers in one of them."""
        past = self.past
        if past is None or not past.measured or not self.now.measured:
            return None
        return difference(
            (past.measured, past.tax, past.tax_squares), (self.now.measured, self.now.tax, self.now.tax_squares)
        )

    def to_json(self) -> dict[str, Any]:
        """As `GET /costs` lists it."""
        now, change = self.now, self.change
        return {
            "fingerprint": self.fingerprint or None,
            "object": "constraint_costs",
            "kind": self.kind or None,
            "title": self.title or None,
            "answers": now.answers,
            "tokens": now.tokens,
            "invalid": now.invalid,
            "cut": now.cut,
            "tax_nats": now.tax,
            "tax_per_answer": {"mean": now.mean_tax, "p95": now.high_tax("answer")},
            "tax_per_token": {"mean": now.token_tax, "p95": now.high_tax("token")},
            "removed_mass": now.share(now.removed),
            "changed_rate": now.share(now.changed),
            "forced_share": now.share(now.forced),
            "draft_share": now.share(now.drafted),
            "seconds_per_token": now.token_seconds,
            "free_seconds_per_token": None if self.free is None else self.free.token_seconds,
            "change": None if change is None else change._asdict(),
            "trend": [point._asdict() | {"marks": list(point.marks)} for point in self.trend],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PathWindow:
    """The sums of one path in a window. answers: that have the path."""

    path: str
    answers: int
    tokens: int
    tax: float
    tax_squares: float
    removed: float
    wanted: tuple[WantedRow, ...] = ()

    def to_json(self, total: float) -> dict[str, Any]:
        """total: the tax of all paths."""
        return {
            "path": self.path,
            "answers": self.answers,
            "tokens": self.tokens,
            "tax_nats": self.tax,
            "share": self.tax / total if total > 0 else 0.0,
            "tax_per_answer": self.tax / self.answers if self.answers else None,
            "removed_mass": self.removed / self.tokens if self.tokens else 0.0,
            "wanted": [row._asdict() for row in self.wanted],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """How the tax of a path changed from one window to another. before, after: nats for each answer of the constraint,
    with the path or without it. change: after - before."""

    path: str
    before: float
    after: float
    change: Interval

    @property
    def percent(self) -> float:
        """The change in percent of before; infinite where that was nothing."""
        return 100.0 * self.change.mean / self.before if self.before > 0 else math.inf * (self.change.mean > 0)

    @property
    def is_dearer(self) -> bool:
        """Whether the whole interval is above nothing."""
        return self.change.low is not None and self.change.low > 0

    def to_json(self) -> dict[str, Any]:
        percent = None if math.isinf(self.percent) or math.isnan(self.percent) else self.percent
        return {
            "path": self.path,
            "before": self.before,
            "after": self.after,
            "change": self.change._asdict(),
            "percent": percent,
            "is_dearer": self.is_dearer,
        }


def path_changes(before: Sequence[PathWindow], after: Sequence[PathWindow], answers: Sequence[int]) -> list[PathChange]:
    """The changes of each path that either window has, the greatest first. answers: those of the constraint, with a
    known tax, in each window."""
    old, new = {path.path: path for path in before}, {path.path: path for path in after}
    changes = []
    for name in old.keys() | new.keys():
        (count, tax, squares), (count_after, tax_after, squares_after) = (
            (most, *((side[name].tax, side[name].tax_squares) if name in side else (0.0, 0.0)))
            for most, side in zip(answers, (old, new), strict=True)
        )
        if count and count_after:
            change = difference((count, tax, squares), (count_after, tax_after, squares_after))
            changes.append(PathChange(path=name, before=tax / count, after=tax_after / count_after, change=change))
    return sorted(changes, key=lambda path: (-path.change.mean, path.path))


def difference(before: tuple[int, float, float], after: tuple[int, float, float]) -> Interval:
    """The difference of two means, after - before, with its interval. before, after: how many answers, the sum, and the
    sum of squares. Welch's standard error: sqrt(s1^2 / n1 + s2^2 / n2)."""
    (count, total, squares), (count_after, total_after, squares_after) = before, after
    mean = total_after / count_after - total / count
    if min(count, count_after) < FEW:
        return Interval(mean, None, None)
    error = math.sqrt(
        _variance(count, total, squares) / count + _variance(count_after, total_after, squares_after) / count_after
    )
    return Interval(mean, mean - NORMAL * error, mean + NORMAL * error)


def _variance(count: int, total: float, squares: float) -> float:
    """Of the answers, unbiased; never negative where sums are rounded."""
    return max(0.0, (squares - total * total / count) / (count - 1)) if count > 1 else 0.0
