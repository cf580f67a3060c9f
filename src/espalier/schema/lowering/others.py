"""The undeclared members of an object, and which demands they meet: `not {"additionalProperties": {"type": "null"}}`
demands one whose value is not null.

    every    "\"" char* "\":" value
    kinds    the same, meets no demand; "\"" char* "\":" not-null, meets the demand

In a text an undeclared name may come twice, and then its last value counts. So where no matcher watches names, a member
that meets a demand by its value is the last one of its group; groups have no name in common. What was met, and which
groups may have no more members, is a number with a bit for each. This module does not know in which order members come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from espalier.automata.lazy.linear import Cost
from espalier.grammar.ast import Node, alt
from espalier.schema.form import Object


class OtherMembers(NamedTuple):
    """Members that meet the same demands. meets: a bit for each. closes: the groups that have no more members after one
    of these, none or its own. group: its own."""

    member: Node
    meets: int = 0
    closes: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The undeclared members of one object."""

    #: All members of each group; empty where there are none.
    every: tuple[Node, ...] = ()
    #: The same by what they meet; empty without demands.
    kinds: tuple[OtherMembers, ...] = ()
    #: How many demands there are.
    demands: int = 0

    def any(self, met: int = 0) -> Node:
        """Any member that may come then; NEVER for none."""
        return alt(*(member for i, member in enumerate(self.every) if not met >> self.demands + i & 1))

    def is_met(self, met: int) -> bool:
        everything = (1 << self.demands) - 1
        return met & everything == everything

    def after(self, met: int, kind: OtherMembers) -> int | None:
        """What is met after a member of this kind; None where it may not come."""
        if met >> self.demands & 1 << kind.group:
            return None
        after = met | kind.meets | kind.closes << self.demands
        return after if self.fewest(after) is not None else None

    def fewest(self, met: int) -> int | None:
        """The least number of members that meet what is not met, None where none do."""
        return 0 if self.is_met(met) else min(self.prices(lambda _: 0)(met), default=None)

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
                    if met >> self.demands & 1 << kind.group or not kind.meets & ~met:
                        continue
                    for count, rest in of(met | kind.meets | kind.closes << self.demands).items():
                        best[count + 1] = min(best.get(count + 1, price + rest), price + rest)
                known[met] = best
            return known[met]

        return of

    def with_rules(self, rule: Callable[[Node], Node]) -> Others:
        """The same with a rule for each member."""
        kinds = tuple(kind._replace(member=rule(kind.member)) for kind in self.kinds)
        return replace(self, every=tuple(map(rule, self.every)), kinds=kinds)


def undone(case: Object) -> list[int]:
    """For each group of undeclared members, the demands that they meet by their values, and that another member of the
    same name need not meet."""
    by_value = sum(1 << i for i, demand in enumerate(case.demands) if demand.by_value)
    every: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    for group in case.rest:
        every.setdefault((group.patterns, group.not_patterns), group.meets)
    return [group.meets & by_value & ~every[group.patterns, group.not_patterns] for group in case.rest]
