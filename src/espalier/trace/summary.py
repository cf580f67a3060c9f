"""Sums over the steps of one run: how much was refused, what it cost, and where; equal whether steps are kept or not.

It is given steps as `Measured` says and knows nothing else of them; the numbers of a step are of `measure.py`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from espalier.automata.reasons.blame import Blame
from espalier.trace.measure import costs_by, cumulative
from espalier.trace.paths import document_start, json_paths

WORST = 10
"""So many of the dearest tokens are named."""

Costs = dict[str, dict[str, float]]
Counts = dict[str, dict[str, int]]
"""By category, and in it by pattern."""
SAFETY = "safety"
"""The member that safety filters are blamed as, alone or at the end of a composition's path; the rule of such a blame
is `category/pattern`."""


class Measured(Protocol):
    """What is looked at of a step; see `StepRecord`."""

    @property
    def step(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def bytes(self) -> bytes: ...
    @property
    def is_special(self) -> bool: ...
    @property
    def numbers(self) -> tuple[float, float, float, float]: ...
    @property
    def kinds(self) -> tuple[bool, bool, bool]: ...
    @property
    def removed_by(self) -> tuple[tuple[str, float], ...]: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def blame(self) -> Blame | None: ...


class TakenBack(Protocol):
    """What is looked at of a `Rewind`."""

    @property
    def blame(self) -> Blame | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstToken:
    """A token at which the constraint cost much. tax_nats: -ln Z there. path: the JSON pointer of its first byte, None
    outside of a document."""

    step: int
    text: str
    tax_nats: float
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """rejected_steps: at which a token was drawn and refused; forced_steps: at which none was drawn; changed_steps: at
    which the model's favourite was not allowed. Taxes and entropies in nats, of all steps and a step's mean.

    removed_by: of each member of a composition, and each ban, the mass that it is the first to refuse, a step's mean;
    None where no step says. by_path, by_rule: `tokens`, `tax_nats`, the sum, and `removed_mass`, the mean, by JSON
    pointer and by rule of the grammar; None where there is no document, and where nothing tells the rules.
    worst_tokens: the dearest first, of equals the earlier; none that cost nothing.
    refused_favourites: by category and pattern, the steps at which a safety filter refused what the model wanted most,
    or what was drawn; taken_back: how often it took text back. None where it did so nowhere.
    """

    total_steps: int
    rejected_steps: int
    forced_steps: int
    changed_steps: int
    total_tax_nats: float
    mean_removed_mass: float
    mean_entropy_before: float
    mean_entropy_after: float
    removed_by: dict[str, float] | None = None
    by_path: Costs | None = None
    by_rule: Costs | None = None
    worst_tokens: tuple[WorstToken, ...] = ()
    refused_favourites: Counts | None = None
    taken_back: Counts | None = None

    @property
    def rejected_rate(self) -> float:
        """Of the steps at which a token was drawn."""
        drawn = self.total_steps - self.forced_steps
        return self.rejected_steps / drawn if drawn else 0.0

    @property
    def forced_share(self) -> float:
        return self.forced_steps / self.total_steps if self.total_steps else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "total_steps": self.total_steps,
            "rejected_steps": self.rejected_steps,
            "rejected_rate": self.rejected_rate,
            "forced_steps": self.forced_steps,
            "forced_share": self.forced_share,
            "changed_steps": self.changed_steps,
            "total_tax_nats": self.total_tax_nats,
            "mean_removed_mass": self.mean_removed_mass,
            "mean_entropy_before": self.mean_entropy_before,
            "mean_entropy_after": self.mean_entropy_after,
            "removed_by": self.removed_by,
            "by_path": self.by_path,
            "by_rule": self.by_rule,
            "worst_tokens": [asdict(one) for one in self.worst_tokens],
            "refused_favourites": self.refused_favourites,
            "taken_back": self.taken_back,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Summary:
        plain = {name: value for name, value in data.items() if name not in ("rejected_rate", "forced_share")}
        worst = tuple(WorstToken(**one) for one in plain.pop("worst_tokens"))
        return Summary(**plain, worst_tokens=worst)


class TokenCost(NamedTuple):
    """One token's row: what the constraint cost there, in nats and in mass, and up to there. path, rule: where its
    first byte stands, None where nothing tells."""

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
    steps: Iterable[Measured], constraint: Mapping[str, Any] | None, text: str, rewinds: Iterable[TakenBack] = ()
) -> Summary:
    """constraint: as its `to_json` says; text: the whole of it."""
    sums = Sums()
    for step in steps:
        sums.add(step)
    for one in rewinds:
        sums.take_back(one)
    return sums.summary(constraint, text)


def token_costs(steps: Sequence[Measured], constraint: Mapping[str, Any] | None, text: str) -> tuple[TokenCost, ...]:
    """A row for each step."""
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
    """Takes the steps of one run in order and forgets them; of each it keeps its numbers and its bytes, since where a
    document begins may be known only at the end."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, bytes, bool, str | None]] = []
        self._numbers: list[tuple[float, float, float, float]] = []
        self._rejected = self._forced = self._changed = 0
        self._removed: dict[str, list[float]] = {}
        self._refused: Counts = {}
        self._taken_back: Counts = {}

    def add(self, step: Measured) -> None:
        self._rows.append((step.step, step.text, step.bytes, step.is_special, step.rule))
        self._numbers.append(step.numbers)
        rejected, forced, changed = step.kinds
        self._rejected += rejected
        self._forced += forced
        self._changed += changed
        for name, mass in step.removed_by:
            self._removed.setdefault(name, []).append(mass)
        _count(self._refused, step.blame)

    def take_back(self, one: TakenBack) -> None:
        _count(self._taken_back, one.blame)

    def summary(self, constraint: Mapping[str, Any] | None, text: str) -> Summary:
        """constraint: as its `to_json` says; text: the whole of it."""
        count = len(self._rows)
        taxes, masses, before, after = (list(c) for c in zip(*self._numbers, strict=True)) if count else ([],) * 4
        paths = _paths(((data, shown, special) for _, shown, data, special, _ in self._rows), constraint, text)
        rules = [rule for *_, rule in self._rows]
        worst = heapq.nsmallest(WORST, (at for at in range(count) if taxes[at] > 0), key=lambda at: (-taxes[at], at))
        return Summary(
            total_steps=count,
            rejected_steps=self._rejected,
            forced_steps=self._forced,
            changed_steps=self._changed,
            total_tax_nats=math.fsum(taxes),
            mean_removed_mass=_mean(masses, count),
            mean_entropy_before=_mean(before, count),
            mean_entropy_after=_mean(after, count),
            removed_by={name: _mean(found, count) for name, found in self._removed.items()} or None,
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
    """Where a safety filter is to blame; a refusal of bytes that no text holds there has no rule, and is none of it."""
    if blame is None or blame.rule is None or blame.member.rpartition(".")[2] != SAFETY:
        return
    category, _, pattern = blame.rule.partition("/")
    found = counts.setdefault(category, {})
    found[pattern] = found.get(pattern, 0) + 1


def _table(keys: Sequence[str | None], taxes: Sequence[float], masses: Sequence[float]) -> Costs:
    return {key: cost._asdict() for key, cost in costs_by(keys, taxes, masses).items()}


def _paths(
    pieces: Iterable[tuple[bytes, str, bool]], constraint: Mapping[str, Any] | None, text: str
) -> list[str | None] | None:
    """Of each token the path of its first byte; None where there is no document. pieces: bytes, spelling, whether it is
    a special token."""
    start = document_start(constraint, text)
    if start is None:
        return None
    # Where a marker comes first, the text spells it also where it is a special token, which has no bytes.
    return json_paths((shown.encode() if start and special else data for data, shown, special in pieces), start)


def _mean(values: Sequence[float], count: int) -> float:
    return math.fsum(values) / count if count else 0.0
