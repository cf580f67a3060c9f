"""Sums over the steps of one run: how much was refused, what it cost, and where; equal whether steps are kept or not.

The measures of a step are in `measure.py`, and `steps.py` has what is summed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, NamedTuple

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.json_record import NEEDED, Json, JsonRecord, in_json, object_of
from espalier.sampling.fast.codes import AFTER, IS_BEST, TOKEN
from espalier.trace.listed import StepRow, gather_lines
from espalier.trace.measure import costs_by, cumulative
from espalier.trace.paths import document_start, json_paths
from espalier.trace.steps import Rewind, StepRecord

WORST = 10
"""How many of the most expensive tokens are listed."""

Cost = Annotated[dict[str, float], Json(read=object_of({"tokens": float, "tax_nats": float, "removed_mass": float}))]
Costs = dict[str, Cost]
Counts = dict[str, dict[str, int]]
"""Category -> pattern -> count."""
SAFETY = "safety"
"""The member name that safety filters are blamed under, alone or at the end of a composition's path; the rule of such a
blame is `category/pattern`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstToken(JsonRecord):
    """A token at which the constraint was expensive. tax_nats: -ln Z at this step. path: the JSON pointer of the
    token's first byte, None outside a document."""

    step: int
    text: str
    tax_nats: float
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary(JsonRecord):
    """Taxes and entropies in nats, as totals and means per step."""

    total_steps: int
    #: Steps at which a token was drawn and refused.
    rejected_steps: int
    #: Steps of which it is not known, in a trace that was made from a reply or a log.
    unknown_steps: int = 0
    #: Steps at which no token was drawn.
    forced_steps: int
    #: Steps at which the model's top choice was not allowed.
    changed_steps: int
    total_tax_nats: float
    mean_removed_mass: float
    mean_entropy_before: float
    mean_entropy_after: float
    #: For each member of a composition, and each ban, the mass that it is the first to refuse, averaged over the steps;
    #: None if no step tells.
    removed_by: dict[str, float] | None = None
    #: `tokens`, `tax_nats` (sum) and `removed_mass` (mean) by JSON pointer; None if there is no document.
    by_path: Costs | None = None
    #: The same by grammar rule; None if no rule is known.
    by_rule: Costs | None = None
    #: The most expensive first, ties by position; without tokens that cost nothing.
    worst_tokens: Annotated[tuple[WorstToken, ...], NEEDED] = ()
    #: By category and pattern, the number of steps at which a safety filter refused the model's top choice or the drawn
    #: token; None if no filter did.
    refused_favourites: Counts | None = None
    #: By category and pattern, how often a filter made the run undo text; None if none did.
    taken_back: Counts | None = None

    @property
    @in_json(after="unknown_steps")
    def rejected_rate(self) -> float:
        """The share of rejections among the steps at which a token was drawn, as far as that is known."""
        drawn = self.total_steps - self.forced_steps - self.unknown_steps
        return self.rejected_steps / drawn if drawn else 0.0

    @property
    @in_json(after="forced_steps")
    def forced_share(self) -> float:
        return self.forced_steps / self.total_steps if self.total_steps else 0.0


class TokenCost(NamedTuple):
    """One token's row: the cost of the constraint at this step, in nats and in mass, and the sums so far. path, rule:
    of the token's first byte, None if unknown."""

    step: int
    text: str
    removed_mass: float
    tax_nats: float
    cumulative_tax_nats: float
    entropy_before: float
    entropy_after: float
    path: str | None
    rule: str | None


def summarise(
    steps: Iterable[StepRecord], constraint: Mapping[str, Any] | None, text: str, rewinds: Iterable[Rewind] = ()
) -> TraceSummary:
    """constraint: `Spec.to_json()`; text: the complete output."""
    return summarise_with_paths(steps, constraint, text, rewinds)[0]


def summarise_with_paths(
    steps: Iterable[StepRecord], constraint: Mapping[str, Any] | None, text: str, rewinds: Iterable[Rewind] = ()
) -> tuple[TraceSummary, list[str | None] | None]:
    """Also the path of each step's first byte; None without a document."""
    sums = Sums()
    for is_listed, run in groupby(steps, key=lambda step: step.origin is not None):
        if is_listed:
            sums.add_listed([step.origin for step in run])
        else:
            for step in run:
                sums.add(step)
    for rewind in rewinds:
        sums.take_back(rewind)
    return sums.summary(constraint, text), sums.paths


def token_costs(steps: Sequence[StepRecord], constraint: Mapping[str, Any] | None, text: str) -> tuple[TokenCost, ...]:
    """One row per step."""
    numbers = [step.numbers for step in steps]
    so_far = cumulative([tax for tax, *_ in numbers])
    paths = _paths(((step.bytes, step.text, step.is_special) for step in steps), constraint, text)
    return tuple(
        TokenCost(step.step, step.text, mass, tax, total, before, after, path, step.rule)
        for step, (tax, mass, before, after), total, path in zip(
            steps, numbers, so_far, paths or [None] * len(steps), strict=True
        )
    )


class Sums:
    """Sums up the steps of one run in order. It keeps only the numbers and the bytes of each step, since the start of a
    document may be known only at the end."""

    def __init__(self) -> None:
        #: of each step, once there is a summary; None without a document
        self.paths: list[str | None] | None = None
        self._rows: list[tuple[int, str, bytes, bool, str | None]] = []
        self._numbers: list[tuple[float, float, float, float]] = []
        self._rejected = self._forced = self._changed = self._unknown = 0
        self._removed: dict[str, list[float]] = {}
        self._refused: Counts = {}
        self._taken_back: Counts = {}

    def add(self, step: StepRecord) -> None:
        self._rows.append((step.step, step.text, step.bytes, step.is_special, step.rule))
        self._numbers.append(step.numbers)
        rejected, forced, changed = step.kinds
        self._rejected += rejected
        self._forced += forced
        self._changed += changed
        self._unknown += step.is_unknown
        for name, mass in step.removed_by:
            self._removed.setdefault(name, []).append(mass)
        _count(self._refused, step.blame)

    def add_listed(self, steps: Sequence[StepRow]) -> None:
        """Steps whose figures are in rows: nothing else of their records need be made."""
        numbers, figures = gather_lines([step.lines for step in steps])
        tokens = numbers[:, TOKEN].tolist()
        self._numbers += [(tax, removed, *rest) for removed, tax, *rest in figures[:, : AFTER + 1].tolist()]
        self._changed += len(steps) - int(np.count_nonzero(numbers[:, IS_BEST]))
        for step, token in zip(steps, tokens, strict=True):
            rule, why = step.reasons()
            text, data = step.spelling.of(token)
            self._rows.append((step.step, text, data, token in step.spelling.specials, rule))
            if why is not None:
                _count(self._refused, why)

    def take_back(self, rewind: Rewind) -> None:
        _count(self._taken_back, rewind.blame)

    def summary(self, constraint: Mapping[str, Any] | None, text: str) -> TraceSummary:
        """constraint: `Spec.to_json()`; text: the complete output."""
        count = len(self._rows)
        taxes, masses, before, after = (list(c) for c in zip(*self._numbers, strict=True)) if count else ([],) * 4
        paths = _paths(((data, shown, special) for _, shown, data, special, _ in self._rows), constraint, text)
        self.paths = paths
        rules = [rule for *_, rule in self._rows]
        worst = heapq.nsmallest(WORST, (at for at in range(count) if taxes[at] > 0), key=lambda at: (-taxes[at], at))
        return TraceSummary(
            total_steps=count,
            rejected_steps=self._rejected,
            forced_steps=self._forced,
            changed_steps=self._changed,
            unknown_steps=self._unknown,
            total_tax_nats=math.fsum(taxes),
            mean_removed_mass=_mean(masses, count),
            mean_entropy_before=_mean(before, count),
            mean_entropy_after=_mean(after, count),
            removed_by={name: _mean(removed, count) for name, removed in self._removed.items()} or None,
            by_path=None if paths is None else _table(paths, taxes, masses),
            by_rule=_table(rules, taxes, masses) or None,
            worst_tokens=tuple(
                WorstToken(
                    step=self._rows[at][0],
                    text=self._rows[at][1],
                    tax_nats=taxes[at],
                    path=paths[at] if paths else None,
                )
                for at in worst
            ),
            refused_favourites=self._refused or None,
            taken_back=self._taken_back or None,
        )


def _count(counts: Counts, blame: Blame | None) -> None:
    """Count a blame on a safety filter. A refusal of bytes that no text has at this point names no rule and is not
    counted."""
    if blame is None or blame.rule is None or blame.member.rpartition(".")[2] != SAFETY:
        return
    category, _, pattern = blame.rule.partition("/")
    patterns = counts.setdefault(category, {})
    patterns[pattern] = patterns.get(pattern, 0) + 1


def _table(keys: Sequence[str | None], taxes: Sequence[float], masses: Sequence[float]) -> Costs:
    return {key: cost._asdict() for key, cost in costs_by(keys, taxes, masses).items()}


def _paths(
    pieces: Iterable[tuple[bytes, str, bool]], constraint: Mapping[str, Any] | None, text: str
) -> list[str | None] | None:
    """The path of each token's first byte; None if there is no document. pieces: (bytes, spelling, whether it is a
    special token)."""
    start = document_start(constraint, text)
    if start is None:
        return None
    # After a marker, the text also spells special tokens, which have no bytes.
    return json_paths((shown.encode() if start and special else data for data, shown, special in pieces), start)


def _mean(values: Sequence[float], count: int) -> float:
    return math.fsum(values) / count if count else 0.0
