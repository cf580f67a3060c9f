"""Export a trace as a table, as JSON lines, and as an SVG chart of its cost over time. It returns text and writes no
files."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Callable
from typing import Any

from espalier.registry import Registry
from espalier.trace.files import json_text
from espalier.trace.records import Trace

COLUMNS = (
    "step",
    "token_id",
    "text",
    "logprob",
    "removed_mass",
    "removed_mass_upper",
    "tax_nats",
    "cumulative_tax_nats",
    "entropy_before",
    "entropy_after",
    "allowed_count",
    "was_rejected",
    "rejected_id",
    "rejected_text",
    "was_forced",
    "is_changed",
    "exactness",
    "path",
    "rule",
    "verdict",
)
WIDTH, HEIGHT = 960, 320
FILLS = {"rejected": "#b3401e", "accepted": "#c98a1b", "unknown": "#9a9a9a"}
LEFT, RIGHT, TOP, BOTTOM = 56, 56, 34, 40
"""Pixels around the chart, for its axes and title."""


def rows(trace: Trace) -> list[dict[str, Any]]:
    """One row per step, with COLUMNS; None if unknown. A step that was not measured has no entropy, and the lower
    bounds in removed_mass and tax_nats."""
    table = []
    for step, cost in zip(trace.steps, trace.by_token(), strict=True):
        known = step.exactness == "exact"
        table.append(
            {
                "step": step.step,
                "token_id": step.token_id if step.token_id >= 0 else None,
                "text": step.text,
                "logprob": step.logprob if math.isfinite(step.logprob) else None,
                "removed_mass": step.removed_mass,
                "removed_mass_upper": step.removed_mass if step.bounds is None else step.bounds[1],
                "tax_nats": step.tax_nats,
                "cumulative_tax_nats": cost.cumulative_tax_nats,
                "entropy_before": step.entropy_before if known else None,
                "entropy_after": step.entropy_after if known else None,
                "allowed_count": step.allowed_count if known else None,
                "was_rejected": None if step.is_unknown else step.was_rejected,
                "rejected_id": None if step.rejected is None or step.rejected.id < 0 else step.rejected.id,
                "rejected_text": None if step.rejected is None else step.rejected.text,
                "was_forced": step.was_forced,
                "is_changed": step.is_changed,
                "exactness": step.exactness,
                "path": cost.path,
                "rule": cost.rule,
                "verdict": step.verdict,
            }
        )
    return table


def to_csv(trace: Trace) -> str:
    """RFC 4180 with a header; texts as JSON strings, so that a line of the file is a step, and spreadsheets see no
    formulas."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    for row in rows(trace):
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in row.items() if _is_text(name, value)}
        writer.writerow(row | texts)
    return out.getvalue()


def to_json_lines(trace: Trace) -> str:
    """Each step as in the trace's own JSON, one per line."""
    return "".join(json_text(step.to_json()) for step in trace.steps)


def to_json(trace: Trace) -> str:
    """As `Trace.save` writes it."""
    return json_text(trace.to_json())


def to_svg(trace: Trace) -> str:
    """The tax of each step as bars, and the cumulative tax as a line, in nats; 960 by 320 pixels, with a text
    description."""
    taxes = [step.tax_nats for step in trace.steps]
    sums = trace.cumulative_tax_nats
    most, total = max(taxes, default=0.0), sums[-1] if sums else 0.0
    bounded = any(step.exactness == "bounded" for step in trace.steps)
    least = "at least " if bounded else ""
    legend = "red: rejected" + (", grey: not known" if any(step.is_unknown for step in trace.steps) else "")
    caption = f"{len(taxes)} steps, tax {least}{total:.2f} nats in all, {least}{most:.2f} at the most expensive step"
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    pitch = wide / max(1, len(taxes))
    bars, line = [], []
    for index, (tax, up_to) in enumerate(zip(taxes, sums, strict=True)):
        x = LEFT + index * pitch
        size = high * tax / most if most else 0.0
        if size >= 0.05:
            fill = FILLS[trace.steps[index].verdict]
            bars.append(
                f'<rect x="{x:.2f}" y="{TOP + high - size:.2f}" width="{max(0.6, 0.85 * pitch):.2f}" '
                f'height="{size:.2f}" fill="{fill}"/>'
            )
        line.append(f"{x + pitch / 2:.2f},{TOP + high - (high * up_to / total if total else 0.0):.2f}")
    base = TOP + high
    labels = [
        _label(LEFT, 20, caption, "start"),
        _label(LEFT - 6, TOP + 8, f"{most:.2f}", "end"),
        _label(LEFT - 6, base, "0", "end"),
        _label(WIDTH - RIGHT + 6, TOP + 8, f"{total:.2f}", "start"),
        _label(LEFT, base + 18, "step 0", "start"),
        _label(WIDTH - RIGHT, base + 18, str(trace.steps[-1].step) if trace.steps else "", "end"),
        _label(WIDTH // 2, base + 32, f"bars: nats a step ({legend}); line: the sum so far", "middle"),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" aria-label="{html.escape(caption, quote=True)}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            f'<path d="M{LEFT} {base}H{WIDTH - RIGHT}" stroke="#888888"/>',
            *bars,
            f'<polyline points="{" ".join(line)}" fill="none" stroke="#2457a6" stroke-width="1.5"/>',
            *labels,
            "</svg>",
            "",
        ]
    )


EXPORTERS: Registry[Callable[[Trace], str]] = Registry(
    "exporters", {"csv": to_csv, "json": to_json, "jsonl": to_json_lines, "svg": to_svg}
)
"""Format -> `(trace) -> str`."""


def exported(trace: Trace, form: str) -> str:
    """A trace in a format of EXPORTERS. Raises UnknownName, and BrokenPlugin for a plug-in's exporter that fails or
    gives no text."""
    write = EXPORTERS.load(form)
    if form in EXPORTERS.builtins():
        return str(write(trace))
    with EXPORTERS.blamed(form):
        text = write(trace)
        if not isinstance(text, str):
            raise TypeError(f"it gave a {type(text).__name__}, not a text")
    return text


def _label(x: int, y: int, text: str, anchor: str) -> str:
    return (
        f'<text x="{x}" y="{y}" font-family="sans-serif" font-size="12" fill="#333333" '
        f'text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def _is_text(name: str, value: Any) -> bool:
    return isinstance(value, str) and name in ("text", "rejected_text", "path", "rule")
