"""The undeclared members of an object, and which demands they meet: `not {"additionalProperties": {"type": "null"}}`
demands one whose value is not null.

    any      "\\"" char* "\\":" value
    kinds    the same, meets no demand; "\\"" char* "\\":" not-null, meets the demand

What is met so far is a number, a bit for each demand. In a text an undeclared name may come twice, and then its last
value counts. So where no matcher watches names, a member that meets a demand by its value comes last, and meets all that
is left. It does not know how declared members and others are ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from espalier.automata.lazy.linear import Cost
from espalier.grammar.ast import NEVER, Node
from espalier.schema.form import Object

SEALED = -1
"""All demands are met, and no undeclared member may follow."""


class Kind(NamedTuple):
    """Members that meet the same demands, a bit for each. is_last: no undeclared member may follow."""

    member: Node
    meets: int = 0
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The undeclared members of one object."""

    #: Any of them; NEVER where there are none.
    any: Node = NEVER
    #: The same by what they meet; empty without demands.
    kinds: tuple[Kind, ...] = ()
    #: All demands, a bit for each.
    demands: int = 0

    def is_met(self, met: int) -> bool:
        return met in (self.demands, SEALED)

    def after(self, met: int, kind: Kind) -> int | None:
        """What is met after a member of this kind; None where it may not come."""
        more = met | kind.meets
        if kind.is_last:
            return SEALED if more == self.demands else None
        return more

    def fewest(self, met: int) -> int:
        """The least number of members that meet what is not met."""
        return min(self.prices(lambda _: 0)(met))

    def prices(self, cost: Cost) -> Callable[[int], dict[int, int]]:
        """For what is met so far: by the number of members that meet the rest, each of them more than those before,
        their least bytes in all."""
        known: dict[int, dict[int, int]] = {}
        costs = [cost(kind.member) for kind in self.kinds]

        def of(met: int) -> dict[int, int]:
            if self.is_met(met):
                return {0: 0}
            if met not in known:
                best: dict[int, int] = {}
                for kind, price in zip(self.kinds, costs, strict=True):
                    after = self.after(met, kind)
                    if after is not None and after != met:
                        for count, rest in of(after).items():
                            best[count + 1] = min(best.get(count + 1, price + rest), price + rest)
                known[met] = best
            return known[met]

        return of

    def with_rules(self, rule: Callable[[Node], Node]) -> Others:
        """The same with a rule for each member."""
        kinds = tuple(kind._replace(member=rule(kind.member)) for kind in self.kinds)
        return replace(self, any=self.any if self.any is NEVER else rule(self.any), kinds=kinds)


def undone(case: Object) -> list[int]:
    """For each group of undeclared members, the demands that they meet by their values, and that another member of the
    same name need not meet."""
    by_value = sum(1 << i for i, demand in enumerate(case.demands) if demand.by_value)
    every: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    for group in case.rest:
        every.setdefault((group.patterns, group.not_patterns), group.meets)
    return [group.meets & by_value & ~every[group.patterns, group.not_patterns] for group in case.rest]
