"""Compares what two edges gave for one request."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.fuzz.edges.ask import Answer, Output

EXACT, NEARLY = 1e-9, 2e-3
"""How far numbers may be apart: of the same passes, and of passes of other sizes."""
CANDIDATE = {"id", "prob", "logit", "allowed"}
"""Fields of a candidate."""


def difference(found: Answer, wanted: Answer, distance: float) -> str:
    """What differs first; empty for nothing. Fields that an edge does not give are not compared."""
    if isinstance(found, str) or isinstance(wanted, str):
        return "" if found == wanted else f"{_short(found)}, and should be {_short(wanted)}"
    if len(found) != len(wanted):
        return f"{len(found)} outputs, and should be {len(wanted)}"
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        for field in fields(Output):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            if (
                field.name == "logprobs"
                or (mine is None and field.name != "valid")
                or (theirs is None and field.name != "stop")
            ):
                continue
            told = unlike(mine, theirs, distance, field.name)
            if told:
                return f"output {place}: {told}"
    return ""


def unlike(found: Any, wanted: Any, distance: float, name: str) -> str:
    """Where two values differ; empty for nowhere."""
    if isinstance(found, bool) or isinstance(wanted, bool) or found is None or wanted is None:
        return "" if found is wanted else f"{name} is {found!r}, and should be {wanted!r}"
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return (
            ""
            if abs(found - wanted) <= distance * max(1.0, abs(wanted))
            else f"{name} is {found!r}, and should be {wanted!r}"
        )
    if isinstance(found, dict) and isinstance(wanted, dict):
        if found.keys() != wanted.keys():
            return f"{name} has the keys {list(found)}, and should have {list(wanted)}"
        # Candidates that are as probable may change places where passes have other sizes.
        is_tie = distance > EXACT and wanted.keys() >= CANDIDATE and found["id"] != wanted["id"]
        names = ("prob", "logit") if is_tie and "_" in name and name.endswith("]") else tuple(wanted)
        pairs = [(f"{name}.{key}", found[key], wanted[key]) for key in names]
    elif isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        if len(found) != len(wanted):
            return (
                f"{name} has {len(found)} entries, and should have {len(wanted)}: {_short(found)} and {_short(wanted)}"
            )
        pairs = [(f"{name}[{place}]", *pair) for place, pair in enumerate(zip(found, wanted, strict=True))]
    else:
        return "" if found == wanted else f"{name} is {found!r}, and should be {wanted!r}"
    return next((told for key, one, other in pairs if (told := unlike(one, other, distance, key))), "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else text[:400] + "…"
