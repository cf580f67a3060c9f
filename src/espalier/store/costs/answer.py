"""What one answer adds to the sums, worked out of its stored trace. It knows no database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from espalier.store import rows
from espalier.store.costs.bins import bin_of
from espalier.store.trace_columns import finite
from espalier.trace.packed_steps import PackedSteps, RefusedFavourite
from espalier.trace.paths import document_start, json_paths, without_indices

TOKEN, NAME = 80, 200
"""Characters of a wanted token, and of a path or a model: PostgreSQL takes keys of 2,700 bytes."""
MOST_SPEC = 200_000
"""Characters of a constraint that is kept."""
MOST_PATHS = 200
"""Of one answer; what is beyond has the path OTHERS."""
OTHERS = "…"
MOST = 1e9
"""A tax, or a count, beyond is no measurement: traces of other programs may hold anything."""


class PathSums(NamedTuple):
    """What an answer adds at a path. tax: nats. removed: mass, over its tokens."""

    tokens: int
    tax: float
    removed: float


class WantedToken(NamedTuple):
    """A token that the constraint did not allow where the model wanted it, and the one that was taken."""

    path: str
    wanted: str
    taken: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSums:
    """What one answer adds."""

    #: By the columns of COST_SUMS.
    sums: Mapping[str, float]
    #: Of its tax, and of its tax for each token; None where the tax is not known.
    bins: Mapping[str, int] | None
    paths: Mapping[str, PathSums]
    #: How often each, and the tax of these steps; empty where texts or steps are not kept.
    wanted: Mapping[WantedToken, tuple[int, float]] = field(default_factory=dict)
    #: The constraint as JSON, where texts are kept.
    spec: str | None = None


def sums_of(stored: Mapping[str, Any], columns: Mapping[str, Any], *, has_texts: bool) -> AnswerSums:
    """stored: the trace as it is stored. columns: what `trace_columns.columns_of` made of it."""
    summary, metadata = stored["summary"], stored["metadata"]
    tokens, tax, seconds = _count(columns["tokens"]), _measured(columns["tax_nats"]), _measured(columns["total"])
    removed = _measured(columns["removed_mass"])
    spec = metadata.get("constraint")
    return AnswerSums(
        sums={
            "answers": 1,
            "tokens": tokens,
            "invalid": int(columns["valid"] is False),
            "cut": int(columns["finish_reason"] == "length"),
            "measured": int(tax is not None),
            "measured_tokens": 0 if tax is None else tokens,
            "tax": tax or 0.0,
            "tax_squares": (tax or 0.0) ** 2,
            "removed": (removed or 0.0) * tokens,
            "changed": _count(columns["changed_steps"]),
            "forced": _count(summary.get("forced_steps")),
            "drafted": sum(_count(draft["accepted"]) for draft in metadata.get("drafts") or ()),
            "timed": int(seconds is not None),
            "timed_tokens": 0 if seconds is None else tokens,
            "seconds": seconds or 0.0,
        },
        bins=None if tax is None else {"answer": bin_of(tax), "token": bin_of(tax / tokens if tokens else 0.0)},
        paths=dict(_paths(summary)),
        wanted=_wanted(stored) if has_texts and spec is not None else {},
        spec=None if not has_texts or spec is None else _shown_spec(spec),
    )


def _measured(value: Any) -> float | None:
    """The number if it may be one that was measured."""
    number = finite(value)
    return number if number is not None and 0 <= number <= MOST else None


def _count(value: Any) -> int:
    return int(_measured(value) or 0)


def _shown_spec(spec: Mapping[str, Any]) -> str | None:
    text = json.dumps(spec)  # in ASCII: a database may refuse a character that a schema may have
    return text if len(text) <= MOST_SPEC else None


def _paths(summary: Mapping[str, Any]) -> Iterator[tuple[str, PathSums]]:
    by_path = summary.get("by_path")
    costs = by_path or summary.get("by_rule") or {}
    sums: dict[str, PathSums] = {}
    for path, cost in costs.items():
        shown = (without_indices(path) or "/") if by_path else path
        shown = rows.column_text(shown)[:NAME]
        name = shown if shown in sums or len(sums) < MOST_PATHS else OTHERS
        tokens, tax, removed = sums.get(name, PathSums(0, 0.0, 0.0))
        count = _count(cost["tokens"])
        more = (_measured(cost["removed_mass"]) or 0.0) * count
        sums[name] = PathSums(tokens + count, tax + (_measured(cost["tax_nats"]) or 0.0), removed + more)
    yield from sums.items()


def _wanted(stored: Mapping[str, Any]) -> dict[WantedToken, tuple[int, float]]:
    """The favourites that were not allowed, by path."""
    counted: dict[tuple[str | None, str | None, str, str], list[float]] = {}
    for step in _refused(stored):  # texts are cut and joined once for all steps that are alike
        key = step.path, step.rule, step.wanted, step.taken
        counted.setdefault(key, []).append(_measured(step.tax_nats) or 0.0)
    wanted: dict[WantedToken, tuple[int, float]] = {}
    for (path, rule, favourite, taken), taxes in counted.items():
        place = (rule or OTHERS) if path is None else without_indices(path) or "/"
        shown = (rows.column_text(text)[:TOKEN] for text in (favourite, taken))
        token = WantedToken(rows.column_text(place)[:NAME], *shown)
        times, tax = wanted.get(token, (0, 0.0))
        wanted[token] = times + len(taxes), tax + sum(taxes)
    return wanted


def _refused(stored: Mapping[str, Any]) -> Iterator[RefusedFavourite]:
    steps = stored["steps"]
    if isinstance(steps, PackedSteps):
        yield from steps.refused_favourites()
        return
    changed = [i for i, step in enumerate(steps) if _favourite(step) is not None]
    if not changed:
        return
    text, constraint = stored["text"], stored["metadata"]["constraint"]
    start = document_start(constraint, text)
    paths: list[str | None] = [None] * len(steps)
    if start is not None:
        paths = json_paths([_bytes_of(step["token"], shows_special=bool(start)) for step in steps], start)
    for index in changed:
        step, favourite = steps[index], str(_favourite(steps[index]))
        tax = step.get("tax_nats")
        yield RefusedFavourite(paths[index], step.get("rule"), favourite, step["token"]["text"], tax or 0.0)


def _favourite(step: Mapping[str, Any]) -> str | None:
    """The text of the token that the model wanted most, if it was not allowed."""
    listed = step.get("pre_masking") or ()
    return None if not listed or listed[0]["allowed"] else str(listed[0]["text"])


def _bytes_of(token: Mapping[str, Any], *, shows_special: bool) -> bytes:
    if shows_special and token.get("is_special"):
        return str(token["text"]).encode()
    return bytes(token["bytes"])
