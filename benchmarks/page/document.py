"""Writes `docs/benchmarks.md` from the data of a run: each row with ours, each peer, and ratios with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from benchmarks.page.plan import PARTS
from benchmarks.page.ratios import number, ratios, verdict

HEAD = """# Benchmarks

Where Espalier stands beside other engines, measured in one run on one machine: where it is **behind**, the last column
says so. `make bench` measures all of it again and writes this page; `make bench QUICK=1` takes under four minutes.

"""
PICTURES = (
    ("exactness", "Share of schemas that each engine judges entirely right"),
    ("speed", "Time of a text under a new and under a known constraint, by engine"),
    ("tax", "What each form of an answer takes from the model"),
)


def document(data: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """The page. pictures: the names of the plots that were drawn."""
    pages = [HEAD + _machine(data), _pictures(pictures)]
    pages += [_part(part) for part in data["parts"]]
    return "\n".join(page for page in pages if page).rstrip() + "\n"


def _machine(data: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    counts = [part["repetitions"] for part in data["parts"] if part["repetitions"] > 1]
    repetitions = " to ".join(map(str, sorted({min(counts, default=1), max(counts, default=1)})))
    quick = ""
    if any(part["is_quick"] for part in data["parts"]):
        quick = " A part whose command has `--every`, `--count`, `--seeds` or `--rounds 1` is of a quick run."
    return (
        f"{data['date']}; {data['cpu']}, {data['cores']} cores; Python {data['python']}; {versions}. Figures are "
        f"medians of {repetitions} repetitions. A ratio is ours over the other's, the median of the "
        f"repetitions' own, with the least and the most.{quick}\n"
    )


def _pictures(names: Sequence[str]) -> str:
    return "\n".join(
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="images/bench-{name}-dark.svg">'
        f'<img alt="{about}" src="images/bench-{name}-light.svg" width="760"></picture>\n'
        for name, about in PICTURES
        if name in names
    )


def _part(part: Mapping[str, Any]) -> str:
    plan = next(planned for planned in PARTS if planned.title == part["title"])
    used = (
        f"others used up to {part['others']:.1f} cores" if part.get("others") else f"load up to {max(part['load']):.1f}"
    )
    busy = "" if part["was_idle"] else f" **The machine was busy: {used}.**"
    lines = [f"## {part['title']}\n", f"{plan.about} `{part['command']}`{busy}\n"]
    write = _table if plan.is_compared else _figures
    for table, rows in groupby(part["rows"], key=lambda row: str(row["table"])):
        lines.append(write(table, list(rows)))
    return "\n".join(lines)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    engines = list(dict.fromkeys(name for row in rows for name in row["values"]))
    peers = [name for name in engines if any(ratio.peer == name for row in rows for ratio in ratios(row))]
    head = [title, "", *engines, *(f"÷ {name}" for name in peers), ""]
    lines = ["| " + " | ".join(head) + " |", "|---" * 2 + "|---:" * (len(head) - 3) + "|---|"]
    for row in rows:
        by_peer = {ratio.peer: ratio.text() for ratio in ratios(row)}
        cells = [number(statistics.median(row["values"][name])) if name in row["values"] else "" for name in engines]
        word = verdict(row)
        lines.append(
            "| "
            + " | ".join(
                [
                    row["row"],
                    row["unit"],
                    *cells,
                    *(by_peer.get(name, "") for name in peers),
                    f"**{word}**" if word == "behind" else word,
                ]
            )
            + " |"
        )
    return "\n".join(lines) + "\n"


def _figures(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A table without ratios."""
    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    lines = ["| " + " | ".join([title, *names]) + " |", "|---" + "|---:" * len(names) + "|"]
    for row in rows:
        cells = [number(statistics.median(row["values"][name])) if name in row["values"] else "–" for name in names]
        lines.append("| " + " | ".join([row["row"], *cells]) + " |")
    return "\n".join(lines) + "\n"
