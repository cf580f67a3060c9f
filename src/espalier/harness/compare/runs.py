"""Two reports side by side: which cases changed, and the paired differences of success, length, time and cost."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.harness.compare.paired import Difference, paired
from espalier.harness.results import Report, Sample
from espalier.json_record import JsonRecord

METRICS: Mapping[str, Callable[[Sample], float | None]] = {
    "success": lambda sample: float(sample.passed),
    "tokens": lambda sample: None if sample.error is not None else float(sample.tokens),
    "latency": lambda sample: None if sample.error is not None else sample.latency,
    "tax": lambda sample: None if sample.error is not None else sample.tax,
}
"""Name -> figure of a sample; a pair counts where both have one."""
UNTESTED = ("latency",)
"""Figures without a sign: the iterations of a run share the machine and its load, which the other run had not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(JsonRecord):
    """first, second: the names of the runs. broken: cases that passed in the first and not in the second; mended: the
    other way. left_out: cases that are in one run alone, or are not the same in both."""

    first: str
    second: str
    cases: int
    differences: tuple[Difference, ...]
    broken: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def compared(first: Report, second: Report, *, names: tuple[str, str]) -> Comparison:
    """Compare the cases that are the same in both, but for the number of iterations."""
    old = {result.case.name: result for result in first.results}
    new = {result.case.name: result for result in second.results}
    same = [
        name
        for name in new
        if name in old and _without_iterations(old[name].case) == _without_iterations(new[name].case)
    ]
    pairs = [pair for name in same for pair in zip(old[name].samples, new[name].samples, strict=False)]
    differences = []
    for metric, figure in METRICS.items():
        both = [(figure(a), figure(b)) for a, b in pairs]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        figures = [a for a, _ in known], [b for _, b in known]
        differences.append(paired(metric, *figures, tested=metric not in UNTESTED))
    return Comparison(
        first=names[0],
        second=names[1],
        cases=len(same),
        differences=tuple(differences),
        broken=tuple(name for name in same if old[name].passed and not new[name].passed),
        mended=tuple(name for name in same if new[name].passed and not old[name].passed),
        left_out=tuple(sorted({*old, *new} - {*same})),
    )


def _without_iterations(case: Any) -> dict[str, Any]:
    return {name: value for name, value in case.to_json().items() if name != "iterations"}


def comparison_text(comparison: Comparison) -> str:
    """Lines of at most 80 columns."""
    lines = _wrap(f"A is {comparison.first}; B is {comparison.second}; {comparison.cases} cases are the same in both.")
    lines.append(f"{'':<9}{'A':>10}{'B':>10}{'B - A':>11}  95 % interval")
    lines += [difference_line(difference) for difference in comparison.differences]
    lines.append(
        f"Over {max(difference.pairs for difference in comparison.differences)} pairs; latency in s, tax in nats."
    )
    for label, names in (
        ("Broken", comparison.broken),
        ("Fixed", comparison.mended),
        ("Not compared", comparison.left_out),
    ):
        if names:
            lines += _wrap(f"{label}: {', '.join(names)}")
    return "\n".join(lines)


def difference_line(difference: Difference) -> str:
    """One figure: A, B, their difference, its interval, and what is decided."""
    if difference.mean is None:
        return f"{difference.metric:<9}{'-':>10}{'-':>10}{'-':>11}  no pairs"
    said = (
        {1: "B is higher", -1: "B is lower", 0: "not decided"}[difference.sign] if difference.tested else "not tested"
    )
    cells = "".join(f"{value:>10.3f}" for value in (difference.first, difference.second))
    interval = f"{difference.low:+.3f} to {difference.high:+.3f}"
    return f"{difference.metric:<9}{cells}{difference.mean:>+11.3f}  {interval}  {said}"


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 80, subsequent_indent="  ", break_on_hyphens=False)
