"""Draws the line of badges in README: each says what a file of this project says, so that none can be stale."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.figures import OURS
from benchmarks.page.ratios import number

LETTER, PAD, HEIGHT, GAP = 6.4, 6.0, 20, 6
"""Pixels: the width of a letter, the room beside a text, the height of a badge, the room between two."""
SUITE = (("Exactness: test suite, all", "entirely right"), ("Exactness: test suite, draft2020-12", "entirely right"))


def facts(data: Mapping[str, Any], root: Path) -> dict[str, str]:
    """What the badges say, by their titles. data: of the page. A fact that is not known is left out."""
    stated = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = stated["project"]
    found = {
        "version": project["version"],
        "python": project["requires-python"],
        "licence": project["license"].split(" AND ")[0],
    }
    if stated["tool"]["mypy"]["strict"] and (root / "src/espalier/py.typed").exists():
        found["types"] = "strict"
    # A quick run judges a few of the tests.
    whole = [part for part in data["parts"] if not part["is_quick"]]
    rows = {(row["table"], row["row"]): row for part in whole for row in part["rows"]}
    if measured := next((rows[key]["values"][OURS] for key in SUITE if key in rows), None):
        found["JSON Schema Test Suite"] = f"{number(statistics.median(measured))} % right"
    return found


def svg(said: Mapping[str, str]) -> str:
    """One picture of all of them."""
    x, parts = 0.0, []
    for title, text in said.items():
        left, right = (LETTER * len(words) + 2 * PAD for words in (title, text))
        for start, width, colour, words in ((x, left, "#444c56", title), (x + left, right, "#00796b", text)):
            parts.append(f'<rect x="{start:.1f}" width="{width:.1f}" height="{HEIGHT}" fill="{colour}"/>')
            parts.append(
                f'<text x="{start + width / 2:.1f}" y="14" textLength="{width - 2 * PAD:.1f}">{escape(words)}</text>'
            )
        x += left + right + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - GAP:.1f}" height="{HEIGHT}" role="img">'
    style = '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    return "\n".join((head, f"<title>{escape(alternative(said))}</title>", style, *parts, "</g>", "</svg>")) + "\n"


def alternative(said: Mapping[str, str]) -> str:
    """The same as a text."""
    return ", ".join(f"{title} {text}" for title, text in said.items())
