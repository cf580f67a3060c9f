"""What the list of traces shows and filters by, worked out of a trace once, when it is stored.

It knows no database. `fingerprint`, the path costs of the summary and `created` are what sums by constraint, path and
hour are made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from espalier.constraints.spec import JsonSchema, Spec
from espalier.errors import EspalierError, InputError
from espalier.store import rows
from espalier.trace.packed_steps import PackedSteps
from espalier.trace.paths import without_indices
from espalier.trace.text_policy import TextPolicy, text_hash, without_texts

SHOWN = 200
"""Characters of prompt and output that stand in a list."""
TITLE = 60
"""Characters of a constraint's title."""
TOOLS = "tool_calls"
SOURCES = {"regex": "pattern", "gbnf": "grammar", "choice": "options", "wordlist": "lang"}
"""Kind -> the field that tells constraints of the kind apart for people."""


NO_TRACE = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""What reading a value raises that is no trace."""


def stored_form(trace: Mapping[str, Any], texts: TextPolicy) -> Mapping[str, Any]:
    """The trace as it is stored: as it is, or without texts. Raises InputError if it is no trace."""
    try:
        return trace if texts == "yes" else without_texts(trace, texts)
    except NO_TRACE as error:
        raise _no_trace(error) from error


def columns_of(
    stored: Mapping[str, Any],
    trace: Mapping[str, Any] | None = None,
    *,
    request_id: str,
    caller: str,
    index: int,
    route: str | None,
    template: str | None = None,
    to_first_token: float | None = None,
    total: float | None = None,
) -> dict[str, Any]:
    """The columns of a list but for `id` and `created`, from the trace and its request. stored: the trace as it is
    stored, perhaps without texts. trace: as it was, for what texts do not tell. template: the system's part of the
    prompt, of which a hash is kept. to_first_token, total: seconds from the request's arrival. Raises InputError if a
    value of the trace is missing."""
    trace = stored if trace is None else trace
    try:
        metadata, summary = stored["metadata"], stored["summary"]
        verdict, constraint = metadata["verdict"], metadata["constraint"]
        valid = None if verdict is None or verdict["valid"] is None else bool(verdict["valid"])
        fingerprint, title = identify_constraint(constraint)
        worst = worst_path(summary)
        return {
            "model": rows.column_text(metadata["model"]),
            "strategy": rows.column_text(metadata["strategy"]),
            "constraint_kind": None if constraint is None else rows.optional_text(constraint.get("kind")),
            "finish_reason": rows.column_text(metadata["finish_reason"]),
            "valid": valid,
            "tokens": int(summary["total_steps"]),
            "tax_nats": finite(summary["total_tax_nats"]),
            "removed_mass": finite(summary["mean_removed_mass"]),
            "rejected_steps": summary["rejected_steps"],
            "changed_steps": summary["changed_steps"],
            "unknown_steps": summary.get("unknown_steps"),
            "prompt": beginning(metadata.get("asked") or metadata["prompt"]),
            "text": beginning(stored["text"]),
            "bounded_steps": _count_bounded(trace["steps"]),
            "request_id": rows.column_text(request_id),
            "caller": rows.caller_text(caller),
            "output_index": index,
            "route": rows.optional_text(route),
            "level": rows.optional_text(metadata.get("level")),
            "prompt_tokens": len(trace["metadata"].get("prompt_ids", ())) or None,
            "fingerprint": fingerprint,
            "title": rows.optional_text(title),
            "template": None if template is None else text_hash(template),
            "worst_path": None if worst is None else rows.column_text(worst[0]),
            "worst_tax_nats": None if worst is None else finite(worst[1]),
            "to_first_token": finite(to_first_token),
            "total": finite(total),
            "flagged": valid is False,
        }
    except NO_TRACE as error:
        raise _no_trace(error) from error


def _count_bounded(steps: Sequence[Mapping[str, Any]]) -> int:
    if isinstance(steps, PackedSteps):
        return steps.bounded
    return sum(step.get("exactness") == "bounded" for step in steps)


def _no_trace(error: Exception) -> InputError:
    return InputError(f"this is not a trace: {type(error).__name__} {error}", field="trace")


def searched_texts(trace: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[str]:
    """The texts that a search finds the trace by: prompt, output, and the constraint's title."""
    metadata = trace["metadata"]
    for text in (metadata.get("asked") or "", trace["text"], columns["title"] or "", metadata["prompt"]):
        yield str(text)


def beginning(text: Any) -> str:
    """The first characters of a text, which a list shows on one line."""
    return rows.column_text(" ".join(str(text)[:SHOWN].split()))


def finite(value: Any) -> float | None:
    """The number if it is finite, else None."""
    return float(value) if value is not None and math.isfinite(value) else None


def path_costs(summary: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Tokens and tax by path without indices; the document itself is "". Empty where the text is no document."""
    costs: dict[str, tuple[int, float]] = {}
    for path, cost in (summary.get("by_path") or {}).items():
        name = without_indices(path)
        tokens, tax = costs.get(name, (0, 0.0))
        costs[name] = tokens + int(cost["tokens"]), tax + float(cost["tax_nats"] or 0.0)
    return costs


def worst_path(summary: Mapping[str, Any]) -> tuple[str, float] | None:
    """The path with the greatest tax and that tax, the first by name of equal ones; `/` is the document's own keys and
    brackets. A text that is no document has the rule of a grammar in its place. None where nothing cost anything."""
    taxes = {path or "/": tax for path, (_, tax) in path_costs(summary).items()}
    if not taxes:
        taxes = {rule: float(cost["tax_nats"] or 0.0) for rule, cost in (summary.get("by_rule") or {}).items()}
    worst = min(taxes.items(), key=lambda item: (-item[1], item[0]), default=None)
    return worst if worst is not None and worst[1] > 0 else None


def identify_constraint(constraint: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    """Fingerprint and title. A constraint with one JSON Schema in it, such as one that begins after a marker, has the
    schema's own; (None, None) for free text."""
    if constraint is None:
        return None, None
    return _identify(json.dumps(constraint, sort_keys=False, default=str))


@lru_cache(maxsize=256)
def _identify(text: str) -> tuple[str, str]:
    data = json.loads(text)
    try:
        spec = Spec.from_json(data)
    except EspalierError:  # of another program, or of a plug-in that is not installed here
        return text_hash(text).removeprefix("hash:")[:16], _title_of(data)
    schemas = [part for part in spec.walk() if isinstance(part, JsonSchema)] if spec.kind != TOOLS else []
    if len(schemas) == 1:
        return schemas[0].fingerprint, _schema_title(schemas[0].schema)
    return spec.fingerprint, _title_of(data)


def _schema_title(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any JSON" if schema else "no JSON"
    title = schema.get("title")
    if isinstance(title, str) and title.strip():
        return _clip(title)
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        return _clip("{" + ", ".join(map(str, properties)) + "}")
    return _clip(json.dumps(schema, ensure_ascii=False))


def _title_of(data: Mapping[str, Any]) -> str:
    kind = str(data.get("kind", "constraint"))
    tools = data.get("tools")
    if isinstance(tools, list):
        names = [str(tool.get("name")) for tool in tools if isinstance(tool, Mapping) and "name" in tool]
        if names:
            return _clip(", ".join(names))
    source = data.get(SOURCES.get(kind, ""))
    if isinstance(source, list):
        return _clip(" | ".join(map(str, source)))
    return kind if source is None else _clip(str(source))


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"
