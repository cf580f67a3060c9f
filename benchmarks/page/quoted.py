"""Ratios that README and docs quote: `3.6<!-- ratio: TABLE / ROW / PEER -->`. `make bench` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.page.ratios import Ratio, number, ratios

QUOTED = re.compile(r"(?P<value>\d[\d.,]*)(?P<mark><!-- ratio: (?P<table>.+?) / (?P<row>.+?) / (?P<peer>.+?) -->)")


def measured(data: Mapping[str, Any]) -> dict[tuple[str, str, str], Ratio]:
    """All ratios of the page's data, by table, row and peer."""
    rows = [row for part in data["parts"] for row in part["rows"]]
    return {(row["table"], row["row"], ratio.peer): ratio for row in rows for ratio in ratios(row)}


def quotations(text: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The numbers that a page quotes, each with the table, row and peer it names."""
    for quoted in QUOTED.finditer(text):
        yield quoted["value"], (quoted["table"], quoted["row"], quoted["peer"])


def quoted_anew(text: str, known: Mapping[tuple[str, str, str], Ratio]) -> str:
    """The page with what was measured last; what was not measured stays."""

    def write(quoted: re.Match[str]) -> str:
        ratio = known.get((quoted["table"], quoted["row"], quoted["peer"]))
        return quoted[0] if ratio is None else number(ratio.middle) + quoted["mark"]

    return QUOTED.sub(write, text)


def write_quotations(data: Mapping[str, Any], root: Path) -> None:
    """Write README and docs below a folder anew."""
    known = measured(data)
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        before = page.read_text(encoding="utf-8")
        after = quoted_anew(before, known)
        if after != before:
            page.write_text(after, encoding="utf-8")
