"""What a trace says on one screen of 80 columns: text, verdict, what the constraint cost, where, why, and what to do.

`diagnose.py` finds out the last two. It prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from espalier.columns import WIDTH, wrapped
from espalier.trace.measure import word_of
from espalier.trace.records import Trace
from espalier.trace.report.diff import clip
from espalier.trace.report.findings import Finding
from espalier.wording import Edge

LABEL = 8  # columns in front of a field
TEXT_LINES = 4
PLACES = 4
WORST = 3
FINDINGS = 3
REMEDIES = 5
BLAMES: Mapping[str, tuple[str, ...]] = {
    "enforced": ("this was called enforced: a fault of Espalier or the engine, report it",),
    "checked": ("this is only checked, not enforced: `espalier check` shows which keywords",),
}
"""By what an invalid text breaks; a text that was cut says so itself."""
REST: Mapping[Edge, str] = {"cli": "--json"}
"""Where the findings are that have no room; elsewhere `to_json` has them."""


def screen(trace: Trace, findings: Sequence[Finding], edge: Edge) -> list[str]:
    """At most 24 lines of 80 columns: text, verdict, cost, places, findings, remedies. edge: in whose words."""
    lines = facts(trace)
    why = [line for finding in findings[:FINDINGS] for line in _finding(finding)]
    if len(findings) > FINDINGS:
        why.append(f"and {len(findings) - FINDINGS} more: {REST.get(edge, 'to_json()')}")
    lines += _field("why", why or ["nothing stands out"])
    return lines + _field("to do", list(to_do(findings, edge)))


def facts(trace: Trace) -> list[str]:
    """The text, its verdict, the cost, the most expensive places and tokens."""
    lines = [*_field("text", [clip(line, WIDTH - LABEL) for line in _text(trace.text)])]
    blame = BLAMES.get((trace.verdict or {}).get("breaks") or "", ())
    lines += _field("valid", [*wrapped(_validity(trace.verdict), WIDTH - LABEL)[: 2 - len(blame)], *blame])
    lines += _field("cost", wrapped(cost(trace), WIDTH - LABEL))
    lines += _field("where", list(places(trace)))
    return lines + _field("worst", list(worst(trace)))


def cost(trace: Trace) -> str:
    """Tokens, nats, and the number of rejected, changed and forced steps."""
    figures = trace.summary()
    steps = figures["total_steps"]
    tax = figures["total_tax_nats"]
    mean = f", {tax / steps:.2f} a token ({word_of(tax / steps)})" if steps else ""
    shares = [
        f"{name} {figures[key]} ({figures[key] / steps:.0%})"
        for name, key in (
            ("rejected", "rejected_steps"),
            ("top choice blocked", "changed_steps"),
            ("forced", "forced_steps"),
        )
        if steps and (figures[key] or key == "changed_steps")
    ]
    return f"{steps} tokens, {tax:.2f} nats of tax{mean}; {', '.join(shares)}"


def places(trace: Trace) -> Iterator[str]:
    """The most expensive paths of a document, or rules of a grammar."""
    for what, table in (("path", trace.by_path()), ("rule", trace.by_rule())):
        if table:
            yield from _places(what, table)
            return
    yield "this text has no paths or rules to count by"


def _places(what: str, table: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"{what:<38}{'tokens':>10}{'nats':>12}{'removed':>12}"
    by_cost = sorted(table.items(), key=lambda cost: -cost[1]["tax_nats"])
    for name, path_cost in by_cost[:PLACES]:
        shown = clip(name or "(keys and punctuation)", 37)
        yield f"{shown:<38}{path_cost['tokens']:>10.0f}{path_cost['tax_nats']:>12.2f}{path_cost['removed_mass']:>12.1%}"
    if len(by_cost) > PLACES:
        yield f"and {len(by_cost) - PLACES} more"


def worst(trace: Trace) -> Iterator[str]:
    """The most expensive tokens, and what the model wanted instead."""
    steps = {step.step: step for step in trace.steps}
    for token in trace.summary()["worst_tokens"][:WORST]:
        step = steps.get(token["step"])
        wish = step.pre_masking[0] if step is not None and step.pre_masking else None
        wanted = "" if wish is None or wish.allowed else f"; wanted {wish.text!r} ({wish.prob:.0%})"
        yield clip(f"step {token['step']:<5}{token['text']!r} cost {token['tax_nats']:.2f} nats{wanted}", WIDTH - LABEL)


def to_do(findings: Sequence[Finding], edge: Edge) -> Iterator[str]:
    """Each remedy once, in the order of the findings."""
    remedies = list(dict.fromkeys(remedy.said(edge) for finding in findings for remedy in finding.remedies))
    for text in remedies[:REMEDIES]:
        yield from wrapped(text, WIDTH - LABEL)
    if not remedies:
        yield "nothing"


def _finding(finding: Finding) -> list[str]:
    message = clip(finding.message, 2 * (WIDTH - LABEL))
    return wrapped(f"{finding.severity}: {message}", WIDTH - LABEL)


def _validity(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return "not judged"
    errors = "; ".join(map(str, verdict.get("errors", ())))
    if verdict.get("valid") is None:
        return f"not known: {errors or 'no independent judge reads such a constraint'}"
    if verdict["valid"]:
        return f"yes, says {verdict.get('judge')}"
    return clip(f"NO, says {verdict.get('judge')}: {errors}", 2 * (WIDTH - LABEL))


def _text(text: str) -> list[str]:
    lines = wrapped(clip(text, 4 * WIDTH * TEXT_LINES), WIDTH - LABEL)
    return [*lines[: TEXT_LINES - 1], "…"] if len(lines) > TEXT_LINES else lines or ["(empty)"]


def _field(label: str, lines: Sequence[str]) -> list[str]:
    """Lines with a label in front of the first."""
    return [f"{label if at == 0 else '':<{LABEL}}{line}".rstrip() for at, line in enumerate(lines)]
