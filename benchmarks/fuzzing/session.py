"""Runs a fuzzer: one case after another, each with a seed of its own, until the time or the number of cases is up."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """counts: cases by what became of them, and texts by verdict. features: keywords and other parts of the specs that
    were tried."""

    counts: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


class Fuzzer(Protocol):
    def one(self, seed: int, totals: Totals) -> None:
        """Try the case of this seed; the same seed gives the same case."""
        ...


def run(fuzzer: Fuzzer, seed: int, *, seconds: float | None = None, cases: int | None = None) -> Totals:
    """Cases until `seconds` have passed or `cases` are tried."""
    totals = Totals()
    end = None if seconds is None else time.monotonic() + seconds
    number = 0
    while (end is None or time.monotonic() < end) and (cases is None or number < cases):
        fuzzer.one(seed * CASES_PER_SEED + number, totals)
        number += 1
    return totals
