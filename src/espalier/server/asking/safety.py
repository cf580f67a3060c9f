"""Reads the safety filter `espalier.safety`: a preset's name, or the fields of `Safety`. It compiles nothing."""

from __future__ import annotations

from typing import Any

from espalier.constraints.joining.rule import together
from espalier.constraints.safety.spec import safety_of
from espalier.constraints.spec import Spec
from espalier.server.asking.naming import field_names
from espalier.server.http.errors import BadRequest

OWN = "espalier.safety"
FIELDS = ("preset", "categories", "without", "include", "exclude", "patterns", "lists", "mode")


def join_safety(constraint: Spec | None, asked: Any, *, max_bytes: int) -> Spec | None:
    """The constraint joined with the filter. Raises BadRequest for a filter larger than max_bytes, SpecError and its
    kin; each names the field of the body."""
    if asked is None:
        return constraint
    with field_names({name: f"{OWN}.{name}" for name in FIELDS}, otherwise=OWN):
        found = safety_of(asked)
        size = len(found.key())
        if size > max_bytes:
            raise BadRequest(f"the filter has {size} characters; the limit is {max_bytes}", field=OWN)
        return together(constraint, found)
