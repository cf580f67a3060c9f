"""Compares two commits of Espalier by the benchmarks of the working tree: what changed beyond noise; and two runs of
the page: which ratios came out otherwise.

The older commit is checked out beside the working tree; repetitions take turns. Only what differs in all repetitions in
the same direction is told.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Table
from benchmarks.page.measure import ROOT, joined, run_once, warm
from benchmarks.page.plan import PARTS, selected
from benchmarks.page.ratios import is_change, ratios

NEAR = 0.1
"""Two runs are alike where a ratio differs by no more than this share."""


def main(revision: str, names: Sequence[str], repetitions: int, *, is_quick: bool) -> int:
    """Prints the rows that changed. Returns 1 where one became worse, else 0."""
    is_worse = False
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(base), revision], check=True)
        try:
            for source in (base / "src", ROOT / "src"):
                warm(source)
            for part, argv in selected(names, is_quick=is_quick):
                runs = {base / "src": [], ROOT / "src": []}  # type: dict[Path, list[dict[str, object]]]
                for number in range(repetitions):
                    for source in list(runs)[:: 1 if number % 2 else -1]:
                        runs[source].append(run_once(part.module, argv, source=source))
                is_worse |= _show(part.title, *(joined(reports)["rows"] for reports in runs.values()))
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)
    return int(is_worse)


def _show(title: str, before: Sequence[dict], after: Sequence[dict]) -> bool:  # type: ignore[type-arg]
    print(f"\n{title}")
    table = Table({"": "<56", "unit": "<14", "before": ">10.4g", "after": ">10.4g", "÷": ">8.2f"})
    older = {(row["table"], row["row"]): row for row in before}
    is_worse = False
    for row in after:
        known = older.get((row["table"], row["row"]))
        if known is None:
            continue
        name = next(iter(row["values"]))
        old, new = known["values"][name], row["values"][name]
        if not is_change(old, new):
            continue
        middles = statistics.median(old), statistics.median(new)
        worse = (middles[1] < middles[0]) is row["more_is_better"]
        is_worse |= worse
        share = middles[1] / middles[0] if middles[0] else float("inf")
        table.row(
            f"{row['table']}: {row['row']}"[:55], row["unit"], *middles, share, "  worse" if worse else "  better"
        )
    return is_worse


def show_other_run(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Print the ratios of two runs of the page that differ by more than NEAR, and how many do not. first, second: their
    data; only parts and rows that both have count, and only where the columns are engines."""
    apart = {part.title for part in PARTS if not part.is_compared}
    table = Table({"": "<64", "peer": "<20", "first": ">10.3g", "second": ">10.3g", "÷": ">8.2f"})
    before, after = _ratios(first, apart), _ratios(second, apart)
    both = [key for key in before if key in after]
    far = [key for key in both if abs(after[key] / before[key] - 1) > NEAR]
    for key in far:
        name, peer = key
        table.row(name[:63], peer, before[key], after[key], after[key] / before[key])
    print(f"{len(both) - len(far)} of {len(both)} ratios are within {NEAR:.0%}")


def _ratios(data: Mapping[str, Any], apart: set[str]) -> dict[tuple[str, str], float]:
    """The ratios of a run, by row and peer; those of 0 left out."""
    return {
        (f"{row['table']}: {row['row']}", ratio.peer): ratio.middle
        for part in data["parts"]
        if part["title"] not in apart
        for row in part["rows"]
        for ratio in ratios(row)
        if ratio.middle
    }
