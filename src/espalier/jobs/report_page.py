"""The report of a batch as one HTML page without scripts; `pages/batch.html` is its template. Texts of items are
escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from espalier.trace.report.findings import words_of
from espalier.trace.report.page import render_report

TRACES = "../../../../traces/{id}/page"


def render(report: Mapping[str, Any], *, title: str = "Batch report", traces: str | None = None) -> str:
    """The HTML document. traces: the address of a trace's page, with `{id}`; None writes ids without a link."""

    def trace(item: Mapping[str, Any]) -> Markup:
        trace_id = item.get("trace_id")
        if trace_id is None:
            return Markup("")
        if traces is None:
            return Markup(" <code>{}</code>").format(trace_id)
        return Markup(' <a href="{}">trace</a>').format(traces.format(id=trace_id))

    return render_report(
        "batch.html",
        title=title,
        report=report,
        sentence=sentence(report),
        tiles=_tiles(report),
        has_traces=any("trace_id" in item for item in report["outliers"]),
        trace=trace,
        words=words_of,
        many=_many,
    )


def sentence(report: Mapping[str, Any]) -> str:
    """How many items were answered and how well, why others failed, and how many wait."""
    why = f": {_list_counts(report['errors'])}" if report["errors"] else ""
    waiting = {state: count for state, count in report["items"].items() if state not in ("done", "failed")}
    rest = f" Others: {_list_counts(waiting)}." if waiting else ""
    return f"{report['answers']}{why}.{rest}"


def _tiles(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    verdicts, tokens = report["verdicts"], report["tokens"]
    judged = sum(count for name, count in verdicts.items() if name != "not judged")
    tiles = [
        ("Valid", f"{verdicts.get('valid', 0)} of {judged}", "of the judged answers") if judged else None,
        ("Tokens", f"{tokens['completion']:,}", f"after {tokens['prompt']:,} of prompts"),
    ]
    if report["measured"]:
        tiles += [
            ("Grammar tax", f"{report['tax_nats']:.2f} nats", f"{report['tax_nats_per_token']:.2f} per token"),
            ("Removed mass", f"{report['removed_mass']:.1%}", "of the model’s probability, per step"),
            ("First draw rejected", f"{report['rejected_rate']:.1%}", "of the drawn tokens"),
            ("Top choice blocked", f"{report['changed_share']:.1%}", "of the steps"),
        ]
    return [tile for tile in tiles if tile is not None]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
