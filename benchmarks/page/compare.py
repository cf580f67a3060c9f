"""Compares two commits of Espalier by the benchmarks of the working tree: what changed beyond noise.

The older one is checked out beside the working tree; repetitions take turns. Only what differs in all repetitions in
the same direction is told.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Table
from benchmarks.page.measure import ROOT, joined, run_once
from benchmarks.page.plan import selected
from benchmarks.page.ratios import is_change


def main(revision: str, names: Sequence[str], repetitions: int, *, is_quick: bool) -> int:
    """Prints the rows that changed. Returns 1 where one became worse, else 0."""
    is_worse = False
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(base), revision], check=True)
        try:
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
