"""Draws the pictures of the page from its data, light and dark; none of a part that was not measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import OURS
from benchmarks.page.ratios import number

THEMES = {
    "light": {"text": "#1f2328", "dim": "#59636e", "us": "#00796b", "peer": "#8c959f"},
    "dark": {"text": "#e6edf3", "dim": "#9198a1", "us": "#4db6ac", "peer": "#656c76"},
}
WIDTH = 7.6
"""Inches; a picture is shown 760 pixels wide."""
Bars = Mapping[str, Sequence[tuple[str, float]]]
"""By the title of a group: the engines with their values."""


def draw(data: Mapping[str, Any], folder: Path) -> list[str]:
    """Write `bench-NAME-THEME.svg`. Returns the names of the pictures that were drawn."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "espalier", "svg.fonttype": "none", "font.family": "sans-serif"})
    rows = {(row["table"], row["row"]): row for part in data["parts"] for row in part["rows"]}
    drawn = []
    for name, (groups, note) in PICTURES.items():
        bars = groups(rows)
        if not bars:
            continue
        for theme in THEMES:
            _draw(bars, note, theme, folder / f"bench-{name}-{theme}.svg")
        drawn.append(name)
    return drawn


def exactness(rows: Mapping[tuple[str, str], Any]) -> Bars:
    shown = {
        "JSON Schema Test Suite": ("test suite, all", "test suite, draft2020-12"),
        "schemas from the wild": ("from the wild, all",),
    }
    bars = {}
    for title, tables in shown.items():
        measured = [rows[key] for key in ((f"Exactness: {table}", "entirely right") for table in tables) if key in rows]
        bars |= {title: _values(measured[0])} if measured else {}
    return bars


def speed(rows: Mapping[tuple[str, str], Any]) -> Bars:
    titles = {
        "schemas: to first mask": "a new schema: until the first mask is there",
        "schemas: whole text": "a new schema: compile, and all masks and advances of a text",
        "schemas: second text": "a known schema: all masks and advances of a text",
    }
    table = "New constraints, 131,072 ids"
    return {title: _values(rows[table, row]) for row, title in titles.items() if (table, row) in rows}


def tax(rows: Mapping[tuple[str, str], Any]) -> Bars:
    forms = [row for (table, _), row in rows.items() if table == "Tax of the demo model"]
    bars = [(str(row["row"]), statistics.median(row["values"]["tax, nats"])) for row in forms]
    return {"the demo model": bars} if bars else {}


PICTURES: Mapping[str, tuple[Callable[[Mapping[tuple[str, str], Any]], Bars], str]] = {
    "exactness": (exactness, "% of the schemas judged entirely right; more is better"),
    "speed": (speed, "mean ms of one core, 131,072 ids; less is better"),
    "tax": (tax, "nats an answer that the form takes from the model; less is better"),
}


def _values(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(name, statistics.median(values)) for name, values in row["values"].items()]


def _draw(bars: Bars, note: str, theme: str, path: Path) -> None:
    from matplotlib.figure import Figure

    colours = THEMES[theme]
    lines = sum(len(group) + 1.6 for group in bars.values())
    figure = Figure(figsize=(WIDTH, 0.22 * lines + 0.3), facecolor="none")
    axes = figure.add_axes((0.19, 0.0, 0.7, 1.0), facecolor="none")
    most = max(value for group in bars.values() for _, value in group) or 1.0
    y = 0.0
    for title, group in bars.items():
        axes.text(-0.27 * most, y, title, color=colours["text"], fontsize=10, fontweight="bold", va="center")
        for name, value in group:
            y += 1
            axes.barh(y, value, height=0.72, color=colours["us" if name == OURS else "peer"])
            axes.text(-0.27 * most, y, name, color=colours["text"], fontsize=9, va="center")
            axes.text(value + 0.015 * most, y, number(value), color=colours["text"], fontsize=9, va="center")
        y += 1.6
    axes.text(-0.27 * most, y - 0.4, note, color=colours["dim"], fontsize=8, va="center")
    axes.set(xlim=(0, most), ylim=(y + 0.2, -0.8))
    axes.axis("off")
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
