"""Runs a fuzzer: one case after another, each with a seed of its own, until the time or the number of cases is up."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from espalier.errors import EspalierError

CASES_PER_SEED = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault of one spec. seed: of this case alone, for `--case`. text: the text that shows the fault, if one does."""

    seed: int
    fault: str
    spec: Any
    text: str = ""

    def __str__(self) -> str:
        return f"--case {self.seed}: {self.fault}: {self.spec!r} with {self.text!r}"


@dataclass(slots=True)
class Totals:
    #: Cases by what became of them, and texts by verdict.
    counts: Counter[str] = field(default_factory=Counter)
    #: Keywords and other parts of the specs that were tried. `group: name` belongs to a group that is listed by itself.
    features: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    #: The spec and the text that are being tried, for a finding about an exception.
    spec: Any = None
    text: str = ""


LISTED = 60
"""Features of a group that are listed by name; of a larger group, the rarest."""
RAREST = 5


def feature_lines(features: Counter[str]) -> list[str]:
    """The features and how often each was tried, a line for each group: `group: name`, by the most frequent."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for feature, count in features.most_common():
        group, _, name = feature.rpartition(": ")
        groups.setdefault(group, []).append((name, count))
    lines = []
    for group, members in sorted(groups.items()):
        shown = members if len(members) <= LISTED else members[-RAREST:]
        start = f"{group} ({len(members)}, each at least {members[-1][1]}): " if group else ""
        start += "the rarest: " if len(shown) < len(members) else ""
        lines.append(start + ", ".join(f"{name} {count}" for name, count in shown))
    return lines


class Fuzzer(Protocol):
    def one(self, seed: int, totals: Totals) -> None:
        """Try the case of this seed; the same seed gives the same case."""
        ...


def run(
    fuzzer: Fuzzer,
    seed: int,
    *,
    seconds: float | None = None,
    cases: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Totals:
    """Cases until `seconds` have passed by the clock or `cases` are tried."""
    totals = Totals()
    end = None if seconds is None else clock() + seconds
    number = 0
    while (end is None or clock() < end) and (cases is None or number < cases):
        try_case(fuzzer, seed * CASES_PER_SEED + number, totals)
        number += 1
    return totals


def try_case(fuzzer: Fuzzer, seed: int, totals: Totals) -> None:
    """One case. An exception that is not an EspalierError is a finding: no call of a compiled constraint or a matcher
    may raise one. An EspalierError that the fuzzer did not expect is raised."""
    totals.spec, totals.text = None, ""
    try:
        fuzzer.one(seed, totals)
    except EspalierError:
        raise
    except Exception as error:  # noqa: BLE001  # each one is reported
        totals.findings.append(Finding(seed=seed, fault=described(error), spec=totals.spec, text=totals.text))


def described(error: Exception) -> str:
    """The exception with the place in the code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"raises {type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno}, in {last.name})"
