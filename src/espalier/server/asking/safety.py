"""Reads the safety filter of a body, `espalier.safety` or `safety`: a preset's name, or the fields of `Safety`. It
compiles nothing."""

from __future__ import annotations

from typing import Any

from espalier.constraints.joining.rule import together
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import Spec
from espalier.server.asking.naming import field_names
from espalier.server.http.errors import BadRequest

OWN = "espalier.safety"
FIELDS = ("preset", "categories", "without", "include", "exclude", "patterns", "lists", "mode")


def join_safety(constraint: Spec | None, asked: Any, *, max_bytes: int, own: str = OWN) -> Spec | None:
    """The constraint joined with the filter. own: the field of the body that has it. Raises BadRequest for
    a filter larger than max_bytes, SpecError and its kin; each names the field of the body."""
    if asked is None:
        return constraint
    with field_names({name: f"{own}.{name}" for name in FIELDS}, otherwise=own):
        safety = safety_of(asked)
        size = len(safety.key())
        if size > max_bytes:
            raise BadRequest(f"the filter has {size} characters; the limit is {max_bytes}", field=own)
        return together(constraint, safety)
