"""A constraint and safety filters as one constraint: filters add up, wherever they come from. It knows no pattern."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.safety.spec import Safety, merged_safety
from espalier.constraints.spec import Spec


def with_safety(constraint: Spec | None, filters: Sequence[Safety]) -> Spec | None:
    """All of it at once. A filter that the constraint is, or that stands beside others in its `AllOf`, counts among the
    filters; they come last, as one. Raises SpecError."""
    members = constraint.members if isinstance(constraint, AllOf) else () if constraint is None else (constraint,)
    found = [*(one for one in members if isinstance(one, Safety)), *filters]
    if not filters:
        return constraint
    kept = [one for one in members if not isinstance(one, Safety)]
    whole = found[0] if len(found) == 1 else merged_safety(found)
    return AllOf(*kept, whole) if kept else whole


def filters_in(constraint: Spec | None) -> tuple[Safety, ...]:
    """The filters that a constraint is made of, however deep."""
    return () if constraint is None else tuple(one for one in constraint.walk() if isinstance(one, Safety))
