"""The report of a batch: verdicts, costs by path over all items, the most expensive values, findings with remedies,
outliers.

It sums figures of items one by one, in flat memory, and knows neither a database nor a model.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_EXPENSIVE = 10
OUTLIERS = 10
MOST_PATHS = 2_000
"""Paths that are summed apart: items of a list have a path each."""
EXAMPLES = 3
VERDICTS = ("valid", "invalid", "cut", "broken", "not judged")
FAULTY = ("invalid", "cut", "broken")
"""Verdicts on answers that are not what was asked for."""


@dataclass(slots=True)
class _PathTotals:
    items: int = 0
    tokens: float = 0.0
    tax_nats: float = 0.0
    removed: float = 0.0


@dataclass(slots=True)
class _FindingSums:
    severity: str = ""
    items: int = 0
    remedies: dict[str, None] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


class Summing:
    """Sums items. `add` takes what `Results.figures` gives."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.finish: Counter[str] = Counter()
        self.tokens = {"prompt": 0, "completion": 0}
        self.steps = {"all": 0, "rejected": 0, "changed": 0, "forced": 0}
        self.tax = self.removed = 0.0
        self.measured = 0
        self.lost_paths = self.cut = 0
        self._paths: dict[str, _PathTotals] = {}
        self._findings: dict[str, _FindingSums] = {}
        self._values: list[tuple[float, float, dict[str, Any]]] = []
        self._outliers: list[tuple[float, float, dict[str, Any]]] = []
        self._invalid: list[dict[str, Any]] = []

    def add(self, item: Mapping[str, Any]) -> None:
        self.states[str(item["state"])] += 1
        if item["good"] is None:
            return
        if not item["good"]:
            self.errors[str((item["error"] or {}).get("code"))] += 1
            return
        figures = item["figures"] or {}
        finish = figures.get("finish_reason")
        if finish is not None:
            self.finish[str(finish)] += 1
        is_cut = finish == "length" and item["valid"] is not True
        self.cut += is_cut
        verdict = {True: "valid", False: "cut" if is_cut else "invalid", None: "not judged"}[item["valid"]]
        self.verdicts["broken" if figures.get("broken") else verdict] += 1
        self.tokens["prompt"] += item["prompt_tokens"]
        self.tokens["completion"] += item["completion_tokens"]
        if "steps" in figures:
            self._measure(item, figures)
        if item["valid"] is False and len(self._invalid) < OUTLIERS:
            self._invalid.append({**_name_item(item), "errors": figures.get("errors", [])})

    def _measure(self, item: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
        self.measured += 1
        self.tax += figures["tax_nats"]
        steps = figures["steps"]
        self.steps["all"] += steps
        for name in ("rejected", "changed", "forced"):
            self.steps[name] += figures[f"{name}_steps"]
        self.removed += figures["removed_mass"] * steps
        for path, cost in figures["by_path"].items():
            general = general_path(path)
            if general not in self._paths and len(self._paths) >= MOST_PATHS:
                self.lost_paths += 1
                continue
            costs = self._paths.setdefault(general, _PathTotals())
            costs.items += 1
            costs.tokens += cost["tokens"]
            costs.tax_nats += cost["tax_nats"]
            costs.removed += cost["removed_mass"] * cost["tokens"]
        for value in figures["values"]:
            _keep(self._values, value["tax_nats"], item["line"], {**_name_item(item), **value}, MOST_EXPENSIVE)
        _keep(
            self._outliers,
            figures["tax_nats"],
            item["line"],
            {**_name_item(item), "tax_nats": figures["tax_nats"], "steps": steps},
            OUTLIERS,
        )
        counted: set[str] = set()  # one item may have a finding at several places
        for finding in figures["findings"]:
            summary = self._findings.setdefault(finding["code"], _FindingSums(severity=finding["severity"]))
            summary.items += finding["code"] not in counted
            counted.add(finding["code"])
            summary.remedies.update(dict.fromkeys(finding["remedies"]))
            if len(summary.examples) < EXAMPLES:
                summary.examples.append(f"{item['custom_id']}: {finding['message']}")

    def to_json(self) -> dict[str, Any]:
        """The report. `answers`: the first sentence to show. Of the verdicts, `broken` are items that break what was
        called enforced, and `cut` those that `max_tokens` cut before they satisfied it. `cut`: the answers that
        `max_tokens` cut, those without a constraint included. Taxes in nats; shares from 0 to 1; paths with `*` for
        the places of a list."""
        steps, drawn = self.steps["all"], self.steps["all"] - self.steps["forced"]
        order = ("fault", "cost", "note")
        paths = sorted(self._paths.items(), key=lambda pair: -pair[1].tax_nats)
        verdicts = {name: self.verdicts[name] for name in VERDICTS if self.verdicts[name]}
        if any(name in verdicts for name in FAULTY):
            verdicts = {"valid": 0, **verdicts}
        return {
            "answers": sentence(verdicts, cut=self.cut, failed=self.errors.total()),
            "items": dict(self.states),
            "verdicts": verdicts,
            "cut": self.cut,
            "errors": dict(self.errors.most_common(20)),
            "finish_reasons": dict(self.finish),
            "tokens": dict(self.tokens),
            "measured": self.measured,
            "tax_nats": self.tax,
            "tax_nats_per_token": self.tax / steps if steps else 0.0,
            "removed_mass": self.removed / steps if steps else 0.0,
            "rejected_rate": self.steps["rejected"] / drawn if drawn else 0.0,
            "changed_share": self.steps["changed"] / steps if steps else 0.0,
            "by_path": {
                path: {
                    "items": costs.items,
                    "tokens": costs.tokens,
                    "tax_nats": costs.tax_nats,
                    "removed_mass": costs.removed / costs.tokens if costs.tokens else 0.0,
                }
                for path, costs in paths
            },
            "paths_left_out": self.lost_paths,
            "dearest_values": [value for _, _, value in sorted(self._values, key=lambda value: -value[0])],
            "findings": [
                {
                    "code": code,
                    "severity": summary.severity,
                    "items": summary.items,
                    "examples": summary.examples,
                    "remedies": list(summary.remedies),
                }
                for code, summary in sorted(
                    self._findings.items(), key=lambda two: (order.index(two[1].severity), -two[1].items)
                )
            ],
            "outliers": [item for _, _, item in sorted(self._outliers, key=lambda item: -item[0])],
            "invalid": self._invalid,
        }


def sentence(verdicts: Mapping[str, int], *, cut: int, failed: int) -> str:
    """What became of the answers, the faulty ones counted: `3 answered: 0 valid, 3 cut at max_tokens`."""
    unjudged = verdicts.get("not judged", 0)
    parts = [f"{verdicts['valid']} valid"] if "valid" in verdicts else []
    parts += [f"{cut} cut at max_tokens"] if cut else []
    parts += [f"{verdicts['invalid']} not valid"] if "invalid" in verdicts else []
    parts += [f"{verdicts['broken']} broken by a fault of Espalier"] if "broken" in verdicts else []
    whole = unjudged - (cut - verdicts.get("cut", 0))
    parts += [f"{whole} without a constraint"] if whole > 0 and parts else []
    answered = f"{sum(verdicts.values())} answered" + (f": {', '.join(parts)}" if parts else "")
    return f"{answered}; {failed} failed" if failed else answered


def is_good(report: Mapping[str, Any]) -> bool:
    """Whether every item was answered, and no answer breaks its constraint."""
    return not report["errors"] and not any(report["verdicts"].get(name) for name in FAULTY)


def report_of(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of these items as JSON."""
    summing = Summing()
    for item in items:
        summing.add(item)
    return summing.to_json()


def general_path(pointer: str) -> str:
    """The pointer with `*` for places of lists, so that items with lists of different lengths are summed together."""
    return "/".join("*" if part.isdigit() else part for part in pointer.split("/"))


def _name_item(item: Mapping[str, Any]) -> dict[str, Any]:
    named = {"line": item["line"], "custom_id": item["custom_id"]}
    return named if item["trace_id"] is None else {**named, "trace_id": item["trace_id"]}


def _keep(
    heap: list[tuple[float, float, dict[str, Any]]], cost: float, line: int, row: dict[str, Any], most: int
) -> None:
    """Keep the `most` most expensive; the line decides between equals, and two of one item differ in nothing that
    matters."""
    entry = (cost, -line - len(heap) / 1e9, row)
    if len(heap) < most:
        heapq.heappush(heap, entry)
    elif heap[0][0] < cost:
        heapq.heapreplace(heap, entry)
