"""Joins a constraint and safety filters as one constraint; filters from several sources are merged into one."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.safety.spec import Safety, merged_safety
from espalier.constraints.spec import Spec


def with_safety(constraint: Spec | None, filters: Sequence[Safety]) -> Spec | None:
    """The constraint and the filters in one `AllOf`. A filter that the constraint itself is, or that is a member of its
    `AllOf`, is merged with the others; the merged filter comes last. Raises SpecError."""
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
