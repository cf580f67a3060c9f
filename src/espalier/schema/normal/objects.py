"""Builds the case of an object from its facts: a node for each declared name, groups of patterns for all others.

    properties {"a": A}, patternProperties {"^x": B}, additionalProperties C
        Property("a", A), Rest(B, patterns=("^x",)), Rest(C, not_patterns=("^x",))

Demands (`Exists`) that a declared name meets are facts already, see `demands.py`. For those that are left, a group is
divided: `not {"additionalProperties": D}` beside C above, and nothing else, gives

    demands=(Demand(…),), rest=(Rest(C), Rest(C and not D, meets=1))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from espalier.schema.form import Demand, NodeId, Object, Property, Rest
from espalier.schema.normal.container_facts import Exists, ObjectFacts
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.inspect import Inspector
from espalier.schema.normal.judge import UndecidedValue
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.normal.overlap import may_overlap
from espalier.schema.read.values import STRING, type_of

MAX_PATTERNS = 40
"""Patterns of names whose overlaps are examined."""
MAX_SETS = 64
"""Sets of patterns that one name may match together."""
EVERY_NAME = frozenset(("", "^", ".*", "^.*", "[\\s\\S]*", "(.*)"))
"""Patterns that are found in any text."""


class NodeSource(Protocol):
    """The part of the graph (`graph.py`) that assembling needs."""

    inspector: Inspector

    @property
    def false(self) -> NodeId: ...

    def node(self, literals: tuple[SchemaLiteral, ...]) -> NodeId:
        """The node of the values that satisfy all of these."""
        ...

    def leave(self, pointer: str | SchemaLiteral, note: str) -> None:
        """Leave a keyword out, so that more values fit than should."""
        ...

    def decides(self, literals: tuple[SchemaLiteral, ...]) -> bool:
        """Whether the normal form of these is exact: no keyword was left out at their node, or below it."""
        ...


def declared(facts: ObjectFacts) -> dict[str, None]:
    """Every name that some keyword mentions, in the order of the text."""
    names: dict[str, None] = {}
    for group in facts.groups:
        names.update(dict.fromkeys(group.properties))
    names.update(dict.fromkeys(facts.extra))
    names.update(dict.fromkeys(facts.required))
    names.update(dict.fromkeys(facts.forbidden))
    return names


def value_of(facts: ObjectFacts, graph: NodeSource, name: str) -> tuple[SchemaLiteral, ...] | None:
    """The literals for the value of a declared name, None where the name may not occur."""
    if name in facts.forbidden:
        return None
    literals = facts.literals(name)
    if any(literal.constant < 0 for literal in literals):
        return None
    if facts.names and not name_fits(facts.names, name, graph):
        return None
    return literals


def plain_object(facts: ObjectFacts, graph: NodeSource) -> Object:
    """The case of an object whose demands, if any, undeclared names meet. Raises Contradiction where a required name
    may not occur, or no undeclared name can meet a demand."""
    few = names_of(facts.names, graph)[0] if facts.names else None
    stated = declared(facts)
    if few is not None:
        stated |= dict.fromkeys(few)
    rest = tuple(undeclared_groups(facts, graph)) if few is None else ()
    for i, demand in enumerate(facts.undeclared):
        if not any(group.meets >> i & 1 for group in rest):
            raise Contradiction(demand.at)
    properties: list[Property] = []
    for name in stated:
        literals = value_of(facts, graph, name)
        required = name in facts.required
        if literals is None and required:
            raise Contradiction(facts.required[name], *(literal.subschema.at() for literal in facts.names))
        node = graph.false if literals is None else graph.node(literals)
        properties.append(Property(name=name, node=node, required=required))
    return Object(
        properties=tuple(properties),
        rest=rest,
        demands=tuple(
            Demand(at=demand.at, by_value=not demand.by_name and demand.literal.constant <= 0)
            for demand in facts.undeclared
        ),
        min_properties=facts.size.least,
        max_properties=facts.size.most,
    )


def undeclared_groups(facts: ObjectFacts, graph: NodeSource) -> Iterator[Rest]:
    """Groups of names that are not declared, by the set of patterns that they match and the demands that they meet."""
    if not facts.undeclared and not facts.names and not any(group.patterns for group in facts.groups):
        node = graph.node(undeclared_literals(facts, set()))
        if node != graph.false:
            yield Rest(node=node)
        return
    sets = undeclared_sets(facts, facts.undeclared)
    if sets is None and facts.undeclared:
        for demand in facts.undeclared:
            graph.leave(demand.literal, "that some property has such a value was left out: too many patterns of names")
        facts.undeclared = ()
        sets = undeclared_sets(facts, ())
    if sets is None:
        yield from groups_by_first_match(facts, graph)
        return
    for matched, missed, literals in sets:
        narrowing = tuple(pattern for pattern in matched if pattern not in EVERY_NAME)
        for node, names, meets in kinds_of_members(facts, matched, literals, graph):
            yield Rest(node=node, patterns=narrowing, not_patterns=missed, names=names, meets=meets)


def undeclared_sets(
    facts: ObjectFacts, demands: Sequence[Exists]
) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[SchemaLiteral, ...]]] | None:
    """For each set of patterns that an undeclared name may match: the patterns, those that it does not match, and the
    literals for its value. Patterns are those of the facts and of the demands. None where there are too many sets."""
    patterns = list(
        dict.fromkeys((*patterns_of(facts), *(pattern for demand in demands for pattern in demand.patterns)))
    )
    sets = overlapping_sets(patterns)
    if sets is None:
        return None
    return [
        (
            matched,
            tuple(pattern for pattern in patterns if pattern not in matched),
            undeclared_literals(facts, set(matched)),
        )
        for matched in sets
    ]


def patterns_of(facts: ObjectFacts) -> list[str]:
    """The patterns of names that the facts mention."""
    return list(dict.fromkeys(pattern for group in facts.groups for pattern, _ in group.patterns))


def kinds_of_members(
    facts: ObjectFacts, matched: tuple[str, ...], literals: tuple[SchemaLiteral, ...], graph: NodeSource
) -> Iterator[tuple[NodeId, NodeId | None, int]]:
    """The undeclared members whose names match these patterns, by the demands that they meet: the node of values, the
    node of names (None for any), and a bit for each demand. First come all these members, with the demands that each
    of them meets."""
    covering = [(1 << i, demand) for i, demand in enumerate(facts.undeclared) if demand.covers_undeclared(matched)]
    met = sum(bit for bit, demand in covering if not demand.by_name and demand.literal.constant > 0)
    free = [(bit, demand) for bit, demand in covering if not met & bit]
    kinds: dict[tuple[NodeId, NodeId | None], int] = {}
    for chosen in range(1 << len(free)):
        some = [pair for i, pair in enumerate(free) if chosen >> i & 1]
        node = graph.node((*literals, *(demand.literal for _, demand in some if not demand.by_name)))
        wanted = (*facts.names, *(demand.literal for _, demand in some if demand.by_name))
        few, names = names_of(wanted, graph) if wanted else (None, None)
        if node != graph.false and few is None:  # the names are declared where they are few
            kinds[node, names] = kinds.get((node, names), 0) | met | sum(bit for bit, _ in some)
    for (node, names), meets in kinds.items():
        yield node, names, meets


def overlapping_sets(patterns: list[str]) -> list[tuple[str, ...]] | None:
    """The sets of patterns that one name may match together, the empty one last; None where there are too many sets."""
    sets: list[tuple[str, ...]] = [()]
    if len(patterns) > MAX_PATTERNS:
        return None
    for pattern in patterns:
        with_it = [(*s, pattern) for s in sets if all(may_overlap(*sorted((pattern, other))) for other in s)]
        sets = with_it if pattern in EVERY_NAME else with_it + sets
        if len(sets) > MAX_SETS:
            return None
    return sets


def undeclared_literals(facts: ObjectFacts, matched: set[str]) -> tuple[SchemaLiteral, ...]:
    """The literals for the value of an undeclared name that matches exactly these patterns."""
    literals: list[SchemaLiteral] = []
    for group in facts.groups:
        mine = [literal for pattern, literal in group.patterns if pattern in matched]
        if not mine and group.rest is not None:
            mine = [group.rest]
        literals += mine
    return tuple(literals)


def groups_by_first_match(facts: ObjectFacts, graph: NodeSource) -> Iterator[Rest]:
    """Groups by the first pattern that a name matches; what further patterns say of the name is left out."""
    at = next(group.at for group in facts.groups if group.patterns)
    graph.leave(
        at, "too many of these patterns may overlap: each name is held to the first pattern that it matches, not to all"
    )
    patterns = patterns_of(facts)
    names = names_of(facts.names, graph)[1] if facts.names else None
    for i, pattern in enumerate(patterns):
        node = graph.node(tuple(lit for group in facts.groups for p, lit in group.patterns if p == pattern))
        if node != graph.false:
            yield Rest(node=node, patterns=(pattern,), not_patterns=tuple(patterns[:i]), names=names)
    node = graph.node(undeclared_literals(facts, set()))
    if node != graph.false:
        yield Rest(node=node, not_patterns=tuple(patterns), names=names)


def name_fits(literals: tuple[SchemaLiteral, ...], name: str, graph: NodeSource) -> bool:
    """Whether a name, as a string, satisfies all of these. Where that cannot be judged it is left out: True."""
    try:
        return all(graph.inspector.judge.holds(literal, name) for literal in literals)
    except UndecidedValue:
        graph.leave(literals[0].subschema.at(), f"whether {name!r} fits could not be judged")
        return True


def names_of(literals: tuple[SchemaLiteral, ...], graph: NodeSource) -> tuple[tuple[str, ...] | None, NodeId]:
    """The names that satisfy all of these, None where they are not enumerated; and the node of names as strings."""
    table = graph.inspector.table
    text = table.store.main.root.derive("string", {"type": "string"})
    everything = (*literals, table.literal(text, None, True))
    values, _ = graph.inspector.finite(everything)
    if values is not None:
        return tuple(str(value) for value in values if type_of(value) == STRING), graph.false
    return None, graph.node(everything)
