"""The report of a batch as one HTML page without scripts. Texts of items are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

TRACES = "../../../../traces/{id}/page"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin-bottom:2rem}td,th{border-bottom:1px solid #8886;padding:.3rem .5rem;
text-align:left;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code{overflow-wrap:anywhere}@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8cf}}"""


def render(report: Mapping[str, Any], *, title: str = "Batch report", traces: str | None = None) -> str:
    """traces: the address of a trace's page, with `{id}`; None writes ids without a link."""
    tokens = report["tokens"]
    facts = {
        "items": _list_counts(report["items"]),
        "verdicts": _list_counts(report["verdicts"]) or "none",
        "errors": _list_counts(report["errors"]) or "none",
        "finish reasons": _list_counts(report["finish_reasons"]),
        "tokens": f"{tokens['prompt']} of prompts, {tokens['completion']} of answers",
        "tax": f"{report['tax_nats']:.2f} nats, {report['tax_nats_per_token']:.3f} a token",
        "removed mass": f"{report['removed_mass']:.1%}",
        "rejected, changed": f"{report['rejected_rate']:.1%} of drawn tokens, {report['changed_share']:.1%} of steps",
    }
    parts = [_table("", ("", ""), (((name, False), (text, False)) for name, text in facts.items()))]
    paths = report["by_path"].items()
    parts.append(
        _table(
            "Costs by path",
            ("path", "#items", "#tokens", "#nats", "#removed"),
            (
                (
                    (path or "(keys and punctuation)", False),
                    (cost["items"], True),
                    (f"{cost['tokens']:.0f}", True),
                    (f"{cost['tax_nats']:.2f}", True),
                    (f"{cost['removed_mass']:.1%}", True),
                )
                for path, cost in paths
            ),
        )
    )
    parts.append(
        _table(
            "Most expensive values",
            ("item", "path", "value", "#nats"),
            (
                (
                    (cost["custom_id"], False),
                    (cost["path"], False),
                    (cost["value"], False),
                    (f"{cost['tax_nats']:.2f}", True),
                )
                for cost in report["dearest_values"]
            ),
        )
    )
    parts.append(
        _table(
            "Why, and what to do",
            ("finding", "#items", "examples", "to do"),
            (
                (
                    (f"{finding['severity']}: {finding['code']}", False),
                    (finding["items"], True),
                    ("\n".join(finding["examples"]), False),
                    ("\n".join(finding["remedies"]), False),
                )
                for finding in report["findings"]
            ),
        )
    )
    parts.append(
        _table(
            "Not valid",
            ("item", "errors", "trace"),
            (
                (
                    (item["custom_id"], False),
                    ("\n".join(item["errors"]), False),
                    (_Trace(item.get("trace_id"), traces), False),
                )
                for item in report["invalid"]
            ),
        )
    )
    parts.append(
        _table(
            "Outliers",
            ("item", "#line", "#nats", "#tokens", "trace"),
            (
                (
                    (item["custom_id"], False),
                    (item["line"], True),
                    (f"{item['tax_nats']:.2f}", True),
                    (item["steps"], True),
                    (_Trace(item.get("trace_id"), traces), False),
                )
                for item in report["outliers"]
            ),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )


class _Trace:
    """A cell with the id of a trace, as a link where its page has an address."""

    def __init__(self, trace_id: str | None, address: str | None) -> None:
        self.html = escape(trace_id or "")
        if trace_id is not None and address is not None:
            self.html = f'<a href="{escape(address.format(id=trace_id), quote=True)}">{self.html}</a>'


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[tuple[Any, bool]]]) -> str:
    """A table with its heading; "" without rows. A name with # is of numbers; each cell says whether it is one."""
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if number else ''}>{_cell(value)}</td>" for value, number in row) + "</tr>"
        for row in rows
    )
    if not body:
        return ""
    head = "".join(f"<th{' class=n' if name[:1] == '#' else ''}>{escape(name.lstrip('#'))}</th>" for name in names)
    return f"{f'<h2>{escape(title)}</h2>' if title else ''}<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return value.html if isinstance(value, _Trace) else escape(str(value)).replace("\n", "<br>")


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
