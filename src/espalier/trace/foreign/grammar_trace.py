"""Read a grammar trace, the format of the tool before rejection logs (`--grammar-trace`), as a Trace.

Its events are of two types: `token_filtering`, the candidates before and after the grammar, several for a step, and
`token_accepted`. Its probabilities are always 0, so they are made of the logits. A filtering that leaves nothing of a
single candidate is a first draw that was refused; which others the grammar refused is known of those listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.errors import InputError
from espalier.trace.foreign.responses import finite, whole
from espalier.trace.foreign.steps import of_filtering, text_of
from espalier.trace.records import Trace

MOST_STEPS = 1 << 20


@dataclass(slots=True)
class _Step:
    """before, after: the filtering with the most candidates, of at least two. refused: the only candidate of a
    filtering that left none; is_kept: whether one left its only candidate. taken: the token that was accepted."""

    before: Sequence[Mapping[str, Any]] = ()
    after: Sequence[Mapping[str, Any]] = ()
    refused: Mapping[str, Any] | None = None
    taken: Mapping[str, Any] | None = None
    is_kept: bool = False


@dataclass(slots=True)
class _GrammarSteps:
    found: dict[int, _Step] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any], position: int) -> None:
        """Raises InputError naming the event."""
        number, data, kind = whole(event.get("step")), event.get("data"), event.get("type")
        if number is None or not 0 <= number < MOST_STEPS or not isinstance(data, Mapping):
            raise InputError(f"event {position} of the grammar trace has no step and data", field="trace")
        step = self.found.setdefault(number, _Step())
        if kind == "token_accepted":
            step.taken = data
        elif kind == "token_filtering":
            before, after = _rows(data.get("candidates_before")), _rows(data.get("candidates_after"))
            if len(before) == 1:
                step.refused, step.is_kept = (step.refused, True) if after else (before[0], step.is_kept)
            elif len(before) > len(step.before):
                step.before, step.after = before, after


def grammar_trace(data: Mapping[str, Any]) -> Trace:
    """The trace in parsed JSON. A step without a `token_accepted` is left out, since its token is not known. Raises
    InputError for events that are none."""
    events = data.get("events")
    if not isinstance(events, list):
        raise InputError("the grammar trace has no events", field="trace")
    steps = _GrammarSteps()
    for position, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise InputError(f"event {position} of the grammar trace is no object", field="trace")
        steps.add(event, position)
    numbered = [(number, step) for number, step in sorted(steps.found.items()) if step.taken is not None]
    records = tuple(
        of_filtering(
            number,
            step.taken or {},
            before=chances(step.before),
            after=chances(step.after),
            refused=step.refused,
            is_unknown=step.refused is None and not step.is_kept,
        )
        for number, step in numbered
    )
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    origin = {name: metadata[name] for name in ("grammar_file", "timestamp") if isinstance(metadata.get(name), str)}
    return Trace(
        steps=records,
        text=text_of(records),
        finish_reason="unknown",
        model=_text(metadata.get("model")),
        prompt=_text(metadata.get("prompt")),
        strategy="rejection",
        decoding={"read_from": "grammar trace", "trace_version": str(data.get("trace_version"))[:40], **origin},
    )


def chances(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The candidates with `prob`, the softmax of their logits; those with a logit of -inf are masked."""
    logits = [finite(row.get("logit")) for row in rows]
    top = max((logit for logit in logits if logit is not None), default=0.0)
    weights = [0.0 if logit is None else math.exp(logit - top) for logit in logits]
    total = math.fsum(weights) or 1.0
    return [{**row, "prob": weight / total} for row, weight in zip(rows, weights, strict=True)]


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
