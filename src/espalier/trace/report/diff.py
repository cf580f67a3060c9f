"""Compare two traces: how long they agree, where they diverge, and what each cost, also by path and rule.

The result is data, and lines for a terminal. This module does not know whether one trace is a replay of the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from espalier.json_record import Json, JsonRecord, in_json
from espalier.trace.records import Trace

SAME_TAX = 1e-9
"""Nats: smaller differences of a step's cost are rounding errors of the forward pass."""
WIDTH = 80
SHOWN = 10
"""Rows of each table, largest differences first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffToken(JsonRecord):
    id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting(JsonRecord):
    """The first position at which the tokens differ; a side is None if its text has ended."""

    step: int
    left: DiffToken | None
    right: DiffToken | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCost(JsonRecord):
    """The cost of one side, from its own summary. Taxes in nats."""

    tokens: int
    tax_nats: float
    rejected: Annotated[int, Json("rejected_steps")]
    forced: Annotated[int, Json("forced_steps")]
    changed: Annotated[int, Json("changed_steps")]
    unknown: Annotated[int, Json("unknown_steps")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPair(JsonRecord):
    """The cost of a path or rule on each side, in nats; None if a side does not have it."""

    name: str
    left: float | None
    right: float | None

    @property
    @in_json("difference")
    def more(self) -> float:
        """Nats that the right side costs more."""
        return (self.right or 0.0) - (self.left or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDiff:
    """common: number of tokens that both begin with, None if a side kept no steps (level `summary`). parting: where
    they diverge; None if they do not, or if unknown. common_tax: nats of the common tokens on each side. dearer: common
    tokens whose cost differs, as (step, left, right). paths, rules: largest differences first; empty if one side has
    none."""

    texts: tuple[str, str]
    finishes: tuple[str, str]
    common: int | None
    parting: Parting | None
    costs: tuple[SideCost, SideCost]
    common_tax: tuple[float, float]
    dearer: tuple[tuple[int, float, float], ...]
    paths: tuple[CostPair, ...]
    rules: tuple[CostPair, ...]

    @property
    def is_same(self) -> bool:
        """Whether both have the same tokens, the same end and the same cost."""
        if self.common is None and not _is_near(self.costs[0].tax_nats, self.costs[1].tax_nats):
            return False
        return (
            self.parting is None
            and self.texts[0] == self.texts[1]
            and self.finishes[0] == self.finishes[1]
            and self.costs[0].tokens == self.costs[1].tokens
            and not self.dearer
        )

    def to_json(self) -> dict[str, Any]:
        left, right = self.costs
        return {
            "same": self.is_same,
            "common_tokens": self.common,
            "first_divergence": None if self.parting is None else self.parting.to_json(),
            "left": {"text": self.texts[0], "finish_reason": self.finishes[0], **left.to_json()},
            "right": {"text": self.texts[1], "finish_reason": self.finishes[1], **right.to_json()},
            "tax_difference_nats": right.tax_nats - left.tax_nats,
            "common_tax_nats": {"left": self.common_tax[0], "right": self.common_tax[1]},
            "steps": [{"step": step, "left": first, "right": second} for step, first, second in self.dearer],
            "by_path": [pair.to_json() for pair in self.paths],
            "by_rule": [pair.to_json() for pair in self.rules],
        }

    def lines(self, names: tuple[str, str] = ("left", "right")) -> list[str]:
        """The comparison for a terminal of 80 columns."""
        if self.is_same:
            left = self.costs[0]
            return [f"the same: {_tokens(left.tokens)}, {left.tax_nats:.2f} nats"]
        return [
            *self._where(names),
            "",
            f"{'':<16}{clip(names[0], 20):>20}{clip(names[1], 20):>20}{'difference':>14}",
            *self._figures(),
            *self.tables(),
        ]

    def tables(self) -> list[str]:
        """The cost of each path and rule: left, right, and the difference; largest differences first, none if all are
        equal."""
        return [*self._table("path", self.paths), *self._table("rule", self.rules)]

    def _where(self, names: tuple[str, str]) -> list[str]:
        if self.common is None:
            return ["one of them kept no steps, so only the sums are compared"]
        if self.parting is None:
            if self.texts[0] != self.texts[1] or self.finishes[0] != self.finishes[1]:
                return [f"the same {_tokens(self.common)}, and another end: {' and '.join(self.finishes)}"]
            return [f"the same {_tokens(self.common)}; the cost differs at {len(self.dearer)} of them"]
        lines = [f"the first {_tokens(self.common)} are the same; they part at step {self.parting.step}:"]
        for name, token in zip(names, (self.parting.left, self.parting.right), strict=True):
            text = "its end" if token is None else repr(token.text)
            lines.append(clip(f"  {clip(name, 24):<24} {text}", WIDTH))
        return lines

    def _figures(self) -> list[str]:
        left, right = self.costs
        rows: list[tuple[str, float, float, str]] = [
            ("tokens", left.tokens, right.tokens, ".0f"),
            ("tax, nats", left.tax_nats, right.tax_nats, ".2f"),
            ("rejected", left.rejected, right.rejected, ".0f"),
            *([("not known", left.unknown, right.unknown, ".0f")] if left.unknown or right.unknown else []),
            ("changed", left.changed, right.changed, ".0f"),
            ("forced", left.forced, right.forced, ".0f"),
        ]
        if self.common:
            rows.insert(2, ("in common, nats", *self.common_tax, ".2f"))
        return [
            f"{name:<16}{first:>20{form}}{second:>20{form}}{second - first:>+14{form}}"
            for name, first, second, form in rows
        ]

    def _table(self, what: str, places: Sequence[CostPair]) -> list[str]:
        pairs = [pair for pair in places if abs(pair.more) >= 0.005][:SHOWN]
        if not pairs:
            return []
        lines = ["", f"{'tax by ' + what:<36}"]
        for pair in pairs:
            left, right = ("-" if tax is None else f"{tax:.2f}" for tax in (pair.left, pair.right))
            lines.append(
                f"{clip(pair.name or '(keys and punctuation)', 34):<36}{left:>15}{right:>15}{pair.more:>+14.2f}"
            )
        return lines


def diff(left: Trace, right: Trace) -> TraceDiff:
    """Compare whole traces; a side at level `summary` is compared by its sums alone."""
    has_steps = all(side.sums is None for side in (left, right))
    common, parting = _common(left, right) if has_steps else (None, None)
    taxes = [[step.tax_nats for step in side.steps[: common or 0]] for side in (left, right)]
    return TraceDiff(
        texts=(left.text, right.text),
        finishes=(left.finish_reason, right.finish_reason),
        common=common,
        parting=parting,
        costs=(_cost(left), _cost(right)),
        common_tax=(math.fsum(taxes[0]), math.fsum(taxes[1])),
        dearer=tuple(
            (at, first, second)
            for at, (first, second) in enumerate(zip(*taxes, strict=True))
            if not _is_near(first, second)
        ),
        paths=_places(_by_path(left, right), _by_path(right, left)),
        rules=_places(left.by_rule(), right.by_rule()),
    )


def clip(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis at the end if cut off. Unprintable characters are escaped, so that
    no text of a model controls the terminal."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _common(left: Trace, right: Trace) -> tuple[int, Parting | None]:
    ids = [[step.token_id for step in side.steps] for side in (left, right)]
    common = next(
        (at for at, (first, second) in enumerate(zip(*ids, strict=False)) if first != second), min(map(len, ids))
    )
    sides = [
        DiffToken(id=side.steps[common].token_id, text=side.steps[common].text) if common < len(side.steps) else None
        for side in (left, right)
    ]
    if sides == [None, None]:
        return common, None
    return common, Parting(step=common, left=sides[0], right=sides[1])


def _cost(trace: Trace) -> SideCost:
    sums = trace.summary()
    return SideCost(
        tokens=sums["total_steps"],
        tax_nats=sums["total_tax_nats"],
        rejected=sums["rejected_steps"],
        forced=sums["forced_steps"],
        changed=sums["changed_steps"],
        unknown=sums["unknown_steps"],
    )


def _by_path(trace: Trace, other: Trace) -> Mapping[str, Mapping[str, float]] | None:
    """Costs by the trace's own document; if it has none and the texts are equal, by the other's document."""
    costs = trace.by_path()
    if costs is not None or trace.sums is not None or trace.text != other.text:
        return costs
    return replace(trace, constraint=other.constraint).by_path()


def _places(
    left: Mapping[str, Mapping[str, float]] | None, right: Mapping[str, Mapping[str, float]] | None
) -> tuple[CostPair, ...]:
    if left is None or right is None:
        return ()  # one side has no data: a column of gaps would claim that it has no such path
    pairs = [
        CostPair(
            name=name,
            left=left[name]["tax_nats"] if name in left else None,
            right=right[name]["tax_nats"] if name in right else None,
        )
        for name in dict.fromkeys([*left, *right])
    ]
    return tuple(sorted(pairs, key=lambda pair: -abs(pair.more)))


def _is_near(first: float, second: float) -> bool:
    return first == second or abs(first - second) <= SAME_TAX


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"
