"""Builds the case of an object from its facts: a node for each declared name, groups of patterns for all others.

    properties {"a": A}, patternProperties {"^x": B}, additionalProperties C
        Property("a", A), Rest(B, patterns=("^x",)), Rest(C, not_patterns=("^x",))

Demands (`Exists`) were met before, in `demands.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from espalier.schema.form import NodeId, Object, Property, Rest
from espalier.schema.normal.container_facts import ObjectFacts
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.inspect import Inspector
from espalier.schema.normal.judge import Undecided
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
    """The case of an object without demands. Raises Contradiction where a required name may not occur."""
    names, few = None, None
    if facts.names:
        few, names = names_of(facts.names, graph)
    stated = declared(facts)
    if few is not None:
        stated |= dict.fromkeys(few)
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
        rest=tuple(undeclared_groups(facts, graph)) if few is None else (),
        names=names if few is None else None,
        min_properties=facts.size.least,
        max_properties=facts.size.most,
    )


def undeclared_groups(facts: ObjectFacts, graph: NodeSource) -> Iterator[Rest]:
    """Groups of names that are not declared, by the set of patterns that they match."""
    patterns = list(dict.fromkeys(pattern for group in facts.groups for pattern, _ in group.patterns))
    sets = overlapping_sets(patterns)
    if sets is None:
        yield from groups_by_first_match(patterns, facts, graph)
        return
    for matched in sets:
        node = graph.node(undeclared_literals(facts, set(matched)))
        if node != graph.false:
            kept = tuple(pattern for pattern in matched if pattern not in EVERY_NAME)
            missed = tuple(pattern for pattern in patterns if pattern not in matched)
            yield Rest(node=node, patterns=kept, not_patterns=missed)


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


def groups_by_first_match(patterns: list[str], facts: ObjectFacts, graph: NodeSource) -> Iterator[Rest]:
    """Groups by the first pattern that a name matches; what further patterns say of the name is left out."""
    at = next(group.at for group in facts.groups if group.patterns)
    graph.leave(
        at, "too many of these patterns may overlap: each name is held to the first pattern that it matches, not to all"
    )
    for i, pattern in enumerate(patterns):
        node = graph.node(tuple(lit for group in facts.groups for p, lit in group.patterns if p == pattern))
        if node != graph.false:
            yield Rest(node=node, patterns=(pattern,), not_patterns=tuple(patterns[:i]))
    node = graph.node(undeclared_literals(facts, set()))
    if node != graph.false:
        yield Rest(node=node, not_patterns=tuple(patterns))


def name_fits(literals: tuple[SchemaLiteral, ...], name: str, graph: NodeSource) -> bool:
    """Whether a name, as a string, satisfies all of these. Where that cannot be judged it is left out: True."""
    try:
        return all(graph.inspector.judge.holds(literal, name) for literal in literals)
    except Undecided:
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
