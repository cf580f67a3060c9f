"""Meets demands (`Exists`): at least one property, whose name is not fixed, has a value that satisfies a literal.

    not {"additionalProperties": {"type": "null"}}, properties {"a": …}: some name but "a" has a value that is not null

Such demands come from negations only. Each way to meet one gives facts of its own: one for each possible name. Where
the names are not enumerated the demand is left out, unless counting properties expresses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from espalier.schema.form import Rest
from espalier.schema.normal.container_facts import Exists, ObjectFacts
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.objects import NodeSource, declared, name_fits, names_of, undeclared_groups, value_of

MAX_ABSENT = 3
"""Declared names outside the set whose subsets are distinguished when a demand is met by counting."""


def ways_to_have(demand: Exists, facts: ObjectFacts, graph: NodeSource) -> Iterator[ObjectFacts]:
    """Copies of the facts, one for each way to meet a demand; the facts as they are where the demand is left out."""
    by_name = demand.pattern is None and demand.group is None
    few = names_of((demand.literal,), graph)[0] if by_name else None
    names = list(declared(facts)) if few is None else list(few)
    if few is None and facts.names:
        few = names_of(facts.names, graph)[0]
        names += [name for name in few or () if name not in names]
    ways: list[ObjectFacts] = []
    for name in names:
        literals = value_of(facts, graph, name)
        if literals is None or not demand.covers(name) or (by_name and not name_fits((demand.literal,), name, graph)):
            continue
        known = by_name or graph.inspector.implies(literals, demand.literal)
        if known and name in facts.required:
            yield facts
            return
        new = facts.clone()
        try:
            new.require(name, demand.at)
            if not known:
                new.child(name, demand.literal)
            new.settle(graph.inspector)
        except Contradiction:
            continue
        ways.append(new)
    if few is None and any(may_cover(demand, rest) for rest in undeclared_groups(facts, graph)):
        more = by_counting(demand, facts, graph, names)
        if more is None:
            graph.leave(demand.literal, "that some property has such a value was left out: its name could be any")
            yield facts
            return
        ways = more
    yield from ways


def may_cover(demand: Exists, rest: Rest) -> bool:
    """Whether some undeclared name of this group may be in the set of the demand."""
    if demand.pattern is not None:
        return demand.pattern not in rest.not_patterns
    return demand.group is None or not any(pattern in rest.patterns for pattern, _ in demand.group.patterns)


def surely_covers(demand: Exists, rest: Rest) -> bool:
    """Whether every undeclared name of this group is in the set of the demand."""
    if demand.pattern is not None:
        return demand.pattern in rest.patterns
    return demand.group is not None and all(pattern in rest.not_patterns for pattern, _ in demand.group.patterns)


def by_counting(demand: Exists, facts: ObjectFacts, graph: NodeSource, names: list[str]) -> list[ObjectFacts] | None:
    """Meet a demand for a name in the set, whatever its value, by a minimum of properties: more than the declared names
    outside the set that occur. None where the value matters too, or too many names are outside."""
    if demand.literal.constant <= 0 or not all(surely_covers(demand, rest) for rest in undeclared_groups(facts, graph)):
        return None
    known = [name for name in names if not demand.covers(name) and value_of(facts, graph, name) is not None]
    if len(known) > MAX_ABSENT:
        return None
    ways = []
    for chosen in range(1 << len(known)):
        absent = [name for i, name in enumerate(known) if chosen >> i & 1]
        new = facts.clone()
        try:
            for name in absent:
                new.forbid(name, demand.at)
            new.longer(len(known) - len(absent) + 1, demand.at)
        except Contradiction:
            continue
        ways.append(new)
    return ways
