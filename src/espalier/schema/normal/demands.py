"""Meets demands (`Exists`): at least one property, whose name is not fixed, has a value that satisfies a literal.

    not {"additionalProperties": {"type": "null"}}, properties {"a": …}: some name but "a" has a value that is not null

Such demands come from negations only. Each declared name that may meet one gives facts of its own. That a name meets it
which no keyword mentions gives one more: there the demand stays, for `objects.py` to state in the normal form.
"""

from __future__ import annotations

from collections.abc import Iterator

from espalier.schema.normal.container_facts import Exists, ObjectFacts
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.objects import NodeSource, declared, name_fits, names_of, undeclared_sets, value_of

MAX_WAYS = 512
"""Ways to meet all demands of one object."""
MAX_DEMANDS = 4
"""Demands that undeclared names meet in one object: members are told apart by every set of them."""


def declare_names(facts: ObjectFacts, graph: NodeSource) -> None:
    """Make every name a declared one that some demand treats differently from others."""
    if not facts.demands:
        return
    for demand in facts.demands:
        names = () if demand.group is None else tuple(demand.group.properties)
        if demand.by_name:
            names = names_of((*facts.names, demand.literal), graph)[0] or ()
        for name in names:
            facts.extra.setdefault(name, ())
    if facts.names:
        for name in names_of(facts.names, graph)[0] or ():
            facts.extra.setdefault(name, ())


def limit_ways(facts: ObjectFacts, graph: NodeSource, most: int) -> None:
    """Leave demands out, the last ones first, that together could be met in more ways than this."""
    ways, count = 1, 0
    for demand in facts.demands:
        ways *= 1 + sum(may_meet(demand, name, facts, graph) for name in declared(facts))
        if ways > most:
            break
        count += 1
    for demand in facts.demands[count:]:
        graph.leave(demand.literal, "there are too many ways in which it can fail")
    facts.demands = facts.demands[:count]


def may_meet(demand: Exists, name: str, facts: ObjectFacts, graph: NodeSource) -> bool:
    """Whether a declared name may meet a demand, as far as is plain to see."""
    if not demand.covers(name) or (literals := value_of(facts, graph, name)) is None:
        return False
    return demand.by_name or graph.inspector.contradiction((*literals, demand.literal)) is None


def ways_to_have(demand: Exists, facts: ObjectFacts, graph: NodeSource) -> Iterator[ObjectFacts]:
    """Copies of the facts, one for each way to meet a demand; the facts as they are where it is met anyway, or left
    out. All names that matter are declared."""
    ways: list[ObjectFacts] = []
    for name in declared(facts):
        literals = value_of(facts, graph, name)
        if literals is None or not demand.covers(name):
            continue
        if demand.by_name and not name_fits((demand.literal,), name, graph):
            continue
        known = demand.by_name or graph.inspector.implies(literals, demand.literal)
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
    if may_be_undeclared(demand, facts, graph):
        if len(facts.undeclared) == MAX_DEMANDS:
            text = f"that some property has such a value was left out: {MAX_DEMANDS} demands on names are met already"
            graph.leave(demand.literal, text)
            yield facts
            return
        new = facts.clone()
        new.undeclared = (*facts.undeclared, demand)
        ways.append(new)
    yield from ways


def may_be_undeclared(demand: Exists, facts: ObjectFacts, graph: NodeSource) -> bool:
    """Whether a name that no keyword mentions may meet a demand."""
    names = (*facts.names, demand.literal) if demand.by_name else facts.names
    if names and names_of(names, graph)[0] is not None:
        return False
    sets = undeclared_sets(facts, (demand,))
    return sets is None or any(
        demand.covers_undeclared(matched) and not any(literal.constant < 0 for literal in literals)
        for matched, _, literals in sets
    )
