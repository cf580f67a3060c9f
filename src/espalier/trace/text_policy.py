"""Leaves the texts out of a trace that is to be stored without them: prompt, output, and what quotes either.

A trace without texts has its sums only, since its steps spell the output token by token. What is kept of the metadata
is listed here, so that a field which is added to it, or by other tools, is left out until it is listed. A summary has
figures and names of rules; a text that it gets is to be left out here. It knows no store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from espalier.schema.pointers import ANY_KEY, below, split

TextPolicy: TypeAlias = Literal["yes", "no", "hash"]
"""Whether texts are stored: as they are, not at all, or as hashes, by which equal texts can be found."""

METADATA = (
    "model",
    "constraint",
    "soft",
    "sampling",
    "strategy",
    "finish_reason",
    "decoding",
    "closed_by_budget",
    "score",
)
VERDICT = ("valid", "judge", "breaks")


def without_texts(data: Mapping[str, Any], policy: TextPolicy) -> dict[str, Any]:
    """`Trace.to_json()` as a trace of level `summary` without texts or, with `hash`, with hashes in place of the last
    text that a person wrote and of the output. Raises KeyError for what is no trace."""
    metadata, summary = data["metadata"], data["summary"]
    spell = text_hash if policy == "hash" else _nothing
    verdict, known = metadata["verdict"], set(_names(metadata["constraint"]))
    return {
        "format": data.get("format", "espalier-trace"),
        "version": data.get("version", 1),
        "metadata": {
            **{name: metadata[name] for name in METADATA if name in metadata},
            "prompt": "",
            "asked": spell(metadata.get("asked") or metadata["prompt"]),
            "verdict": None if verdict is None else {name: verdict[name] for name in VERDICT if name in verdict},
            "level": "summary",
        },
        "text": spell(data["text"]),
        "steps": [],
        "summary": {
            **summary,
            "by_path": None if summary.get("by_path") is None else _safe_costs(summary["by_path"], known),
            "worst_tokens": [
                {**token, "text": "", "path": _safe_path(token["path"], known)}
                for token in summary.get("worst_tokens", ())
            ],
        },
    }


def text_hash(text: str) -> str:
    """A hash of a text, which tells equal ones; a short text can be found by trying."""
    return f"hash:{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"


def _nothing(text: str) -> str:
    return ""


def _names(value: Any) -> Iterator[str]:
    """Every name and text of a constraint: a property that it names is no text of the model."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield str(name)
            yield from _names(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _names(member)
    elif isinstance(value, str):
        yield value


def _safe_path(path: str | None, known: set[str]) -> str | None:
    if not path:
        return path
    safe = ""
    for step in split(path):
        safe = below(safe, step if step in known else ANY_KEY)
    return safe


def _safe_costs(costs: Mapping[str, Mapping[str, float]], known: set[str]) -> dict[str, dict[str, float]]:
    """Costs by path, those of paths that become one added up: tokens and tax as sums, removed mass as a mean."""
    joined: dict[str, dict[str, float]] = {}
    for path, cost in costs.items():
        safe = str(_safe_path(path, known))
        before = joined.get(safe)
        if before is None:
            joined[safe] = dict(cost)
            continue
        tokens = before["tokens"] + cost["tokens"]
        mass = before["removed_mass"] * before["tokens"] + cost["removed_mass"] * cost["tokens"]
        joined[safe] = {
            "tokens": tokens,
            "tax_nats": before["tax_nats"] + cost["tax_nats"],
            "removed_mass": mass / tokens if tokens else 0.0,
        }
    return joined
