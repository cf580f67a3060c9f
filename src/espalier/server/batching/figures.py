"""What the report of a batch needs of each item: verdict, costs by path, most expensive values, findings. Small
JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from espalier.engines.base import Result
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose

VALUES = 3
SHOWN = 80
PATHS = 100
"""Of one item; a long document has a path for every value."""
DIAGNOSED_NATS = 1.0
"""Below this tax an item that is valid and complete has nothing to find."""


def valid_of(outputs: Sequence[Result]) -> bool | None:
    """False if any output is not valid, None if one is not known."""
    verdicts = [None if output.verdict is None else output.verdict.valid for output in outputs]
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def figures_of(outputs: Sequence[Result]) -> dict[str, Any] | None:
    """The figures of an item, by its first output with a trace; without one only `finish_reason` (`length` if any
    output was cut there) and `broken`, the number of outputs that break what was called enforced. None without any
    output."""
    if not outputs:
        return None
    broken = sum(output.breach is not None for output in outputs)
    cut = next((output for output in outputs if output.finish_reason == "length"), outputs[0])
    more: dict[str, Any] = {"finish_reason": cut.finish_reason, **({"broken": broken} if broken else {})}
    result = next((output for output in outputs if output.trace is not None), None)
    if result is None or result.trace is None:
        return more
    figures = result.trace.summary()
    paths: Mapping[str, Mapping[str, float]] = figures["by_path"] or {}
    by_cost = sorted(paths.items(), key=lambda cost: -cost[1]["tax_nats"])
    errors = [] if result.verdict is None else list(result.verdict.errors[:3])
    return {
        "steps": figures["total_steps"],
        "tax_nats": figures["total_tax_nats"],
        "removed_mass": figures["mean_removed_mass"],
        "changed_steps": figures["changed_steps"],
        "rejected_steps": figures["rejected_steps"],
        "forced_steps": figures["forced_steps"],
        "errors": [error[:SHOWN] for error in errors],
        "by_path": dict(by_cost[:PATHS]),
        "values": [
            {"path": path, "tax_nats": cost["tax_nats"], "value": _show_value(result.parsed, path)}
            for path, cost in by_cost[:VALUES]
            if path and cost["tax_nats"] > 0
        ],
        "findings": _findings(result, result.trace, figures["total_tax_nats"]),
        **more,
    }


def _findings(result: Result, trace: Trace, tax: float) -> list[dict[str, Any]]:
    """Code, severity and remedies of what the diagnosis finds."""
    is_fine = result.finish_reason != "length" and (result.verdict is None or result.verdict.valid)
    if is_fine and tax < DIAGNOSED_NATS:
        return []
    seen = trace if trace.steps or not result.records else replace(trace, steps=result.records, sums=None)
    return [
        {
            "code": finding.code,
            "severity": finding.severity,
            "message": finding.message[:200],
            "remedies": [remedy.said("http") for remedy in finding.remedies],
        }
        for finding in diagnose(seen)
    ]


def _show_value(document: Any, pointer: str) -> str:
    """The value at a JSON pointer, shortened; "" where there is none."""
    value = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return ""
    return repr(value)[:SHOWN]
