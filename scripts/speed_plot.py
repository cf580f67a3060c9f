"""Draws the plot of speed in the README from saved figures of a benchmark: `python scripts/speed_plot.py`.

`python -m benchmarks.cold schemas --save docs/images/speed.json` measures; this draws `speed-light.svg` and
`speed-dark.svg` beside that file. It measures nothing.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
FIGURES = IMAGES / "speed.json"
GROUPS = {
    "to first mask": "new schema: until the first mask is there",
    "whole text": "new schema: compile, all masks of a text",
    "second text": "known schema: all masks of a text",
}
WIDTH, BAR, GAP, LEFT, RIGHT = 760, 16, 30, 110, 120
THEMES = {
    "light": {"text": "#1f2328", "dim": "#59636e", "us": "#00796b", "peer": "#8c959f"},
    "dark": {"text": "#e6edf3", "dim": "#9198a1", "us": "#4db6ac", "peer": "#656c76"},
}


def plot(report: dict[str, Any], theme: str) -> str:
    """An SVG with three groups of bars, one bar for each engine, in milliseconds. report: as `--save` writes it."""
    ((width, kinds),) = report["widths"].items()
    schemas = kinds["schemas"]
    engines = schemas["engines"]
    colours = THEMES[theme]
    most = max(engine[measure] for engine in engines.values() for measure in GROUPS)
    parts, y = [], 22
    for measure, title in GROUPS.items():
        parts.append(text(0, y, title, colours["text"], 14, bold=True))
        y += 10
        for name, figures in engines.items():
            length = max(1, round((WIDTH - LEFT - RIGHT) * figures[measure] / most))
            colour = colours["us" if name == "Espalier" else "peer"]
            parts.append(text(0, y + 13, name, colours["text"], 13))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" rx="2" fill="{colour}"/>')
            parts.append(text(LEFT + length + 8, y + 13, f"{figures[measure] / 1000:.1f} ms", colours["text"], 13))
            y += BAR + 6
        y += GAP
    refused = ", ".join(f"{name} refuses {f['refused']}" for name, f in engines.items() if f["refused"])
    notes = [
        f"Mean CPU time of one core over {schemas['texts']} real schemas, one text each, {int(width):,} token ids; "
        f"shorter is better.",
        f"{report['cpu']}; {', '.join(f'{name} {v}' for name, v in report['versions'].items())}"
        + (f"; {refused} of the schemas." if refused else "."),
    ]
    for line in notes:
        parts.append(text(0, y - 8, line, colours["dim"], 11))
        y += 16
    label = "Speed: " + "; ".join(
        f"{title}: " + ", ".join(f"{name} {figures[measure] / 1000:.1f} ms" for name, figures in engines.items())
        for measure, title in GROUPS.items()
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" role="img" '
        f'aria-label="{escape(label)}">'
    )
    return "\n".join([opening, *parts, "</svg>", ""])


def text(x: int, y: int, words: str, colour: str, size: int, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}"{weight}>{escape(words)}</text>'


def plots() -> dict[str, str]:
    """Name -> SVG, from the saved figures."""
    report = json.loads(FIGURES.read_text(encoding="utf-8"))
    return {f"speed-{theme}.svg": plot(report, theme) for theme in THEMES}


def main() -> None:
    for name, picture in plots().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
