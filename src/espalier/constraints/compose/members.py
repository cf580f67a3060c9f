"""Base class of `AllOf` and `AnyOf`: how members are given, named and written as JSON.

It does not know how the members are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from espalier.constraints.spec import Spec
from espalier.errors import SpecError


@dataclass(frozen=True, slots=True, init=False)
class MembersSpec(Spec):
    """Members, given one by one or as one sequence. A member of the same kind is replaced by its own members, and equal
    members are kept once. Raises SpecError."""

    members: tuple[Spec, ...]

    def __init__(self, *members: Spec | Sequence[Spec]) -> None:
        listed: Any = members
        if len(members) == 1 and isinstance(members[0], Sequence) and not isinstance(members[0], str):
            listed = members[0]
        if not listed:
            raise SpecError(f"{type(self).__name__} needs at least one member", field="members")
        distinct: dict[str, Spec] = {}
        for number, member in enumerate(listed):
            if not isinstance(member, Spec):
                raise SpecError(
                    f"member {number} is a Spec such as Regex(...), not {type(member).__name__}", field="members"
                )
            for part in member.members if isinstance(member, type(self)) else (member,):
                distinct.setdefault(part.key(), part)
        object.__setattr__(self, "members", tuple(distinct.values()))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "members": [member.to_json() for member in self.members]}

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> MembersSpec:
        members = values.get("members", ())
        if isinstance(members, str) or not isinstance(members, Sequence):
            raise SpecError("members are a list of constraints", field="members")
        try:
            return cls([Spec.from_json(member) for member in members])
        except RecursionError:
            raise SpecError("the constraints are nested too deeply", field="members") from None

    def begun(self, before: str) -> str:
        """The beginning that the first member finds in the prompt, if any member does."""
        return next((beginning for member in self.members if (beginning := member.begun(before))), "")

    def names(self) -> list[str]:
        """The name of each member in blames and errors: `all_of[1].regex`."""
        return [f"{self.kind}[{place}].{member.kind}" for place, member in enumerate(self.members)]
