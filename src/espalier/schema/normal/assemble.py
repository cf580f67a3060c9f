"""From finished branches to cases: which literals each property, name and item must fit.

What is only known now is settled here: `unevaluated*`, and that some name of a kind has some value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from espalier.schema.form import Array, Case, Contains, NodeId, Object, Property, Rest, Values
from espalier.schema.normal import cases
from espalier.schema.normal.branch import Branch, Whole
from espalier.schema.normal.facts import ArrayFacts, Contradiction, NumberFacts, ObjectFacts, Some, StringFacts
from espalier.schema.normal.literals import ArrayGroup, Literal, ObjectGroup
from espalier.schema.normal.overlap import may_overlap
from espalier.schema.read.documents import Place
from espalier.schema.read.values import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING
from espalier.time_limit import check as check_time

MAX_PATTERNS = 40
"""Patterns of names of which it is seen whether they overlap."""
MAX_SETS = 64
"""Sets of patterns that one name may match together."""
MAX_ABSENT = 3
"""Declared names of which all sets are told apart, to say that there is another one."""
EVERY_NAME = frozenset(("", "^", ".*", "^.*", "[\\s\\S]*", "(.*)"))
"""Patterns that are found in any text."""


class Graph(Whole, Protocol):
    """What builds nodes."""

    @property
    def false(self) -> NodeId: ...

    def leave(self, pointer: str | Literal, note: str) -> None:
        """A keyword is left out, so that more fits than should."""
        ...

    def node(self, literals: tuple[Literal, ...]) -> NodeId:
        """The node of what fits all of these."""
        ...

    def name_fits(self, literals: tuple[Literal, ...], name: str) -> bool: ...

    def names_of(self, literals: tuple[Literal, ...]) -> tuple[tuple[str, ...] | None, NodeId]:
        """What names must be: all of them where they are few, and the node."""
        ...

    def decides(self, literals: tuple[Literal, ...]) -> bool:
        """Everything that these say is in the normal form."""
        ...


def assemble(branch: Branch, graph: Graph) -> Iterator[Case]:
    """The cases of a branch; none where its facts contradict each other. Raises Contradiction."""
    for literal, name in branch.unevaluated:
        UNEVALUATED[name](branch, literal)
    facts = branch.facts
    excluded = list(branch.excluded.values())
    if branch.kind == NULL:
        yield cases.NULL_CASE
    elif branch.kind == BOOLEAN:
        yield Values(values=tuple(b for b in (True, False) if b not in excluded)) if excluded else cases.BOOLEAN_CASE
    elif branch.kind == NUMBER:
        assert isinstance(facts, NumberFacts)
        yield cases.number(facts, excluded)
    elif branch.kind == STRING:
        assert isinstance(facts, StringFacts)
        yield cases.string(facts, excluded)
    elif branch.kind == ARRAY:
        assert isinstance(facts, ArrayFacts)
        facts.settle(graph)
        yield array(facts, graph)
    elif branch.kind == OBJECT:
        assert isinstance(facts, ObjectFacts)
        yield from objects(facts, graph)


# Arrays


def array(facts: ArrayFacts, graph: Graph) -> Array:
    prefix = tuple(graph.node(facts.literals(index)) for index in range(facts.first))
    beyond = tuple(group.rest for group in facts.groups if group.rest is not None)
    counted: list[Contains] = []
    for match, other, least, most, at in facts.contains:
        shared = () if prefix else beyond
        decided = graph.decides((*shared, other))
        if most is not None and not decided:
            graph.leave(at, "the most that may match was left out: what does not match cannot be told")
            most = None
        counted.append(
            Contains(
                match=graph.node((*shared, match)),
                other=graph.node((*shared, other)) if decided else None,
                least=least,
                most=most,
            )
        )
    return Array(
        prefix=prefix,
        items=graph.node(beyond),
        min_items=facts.size.least,
        max_items=facts.size.most,
        contains=tuple(c for c in counted if c.least or c.most is not None),
        unique=facts.unique,
    )


def unevaluated_items(branch: Branch, literal: Literal) -> None:
    known = 0
    matched: list[Literal] = []
    for inner in applied(branch, literal):
        schema, draft = inner.place.schema, inner.place.resource.draft
        words = {keyword for keyword in schema if keyword in draft.keywords}
        listed = isinstance(schema.get("items"), list)
        if ("items" in words and not listed) or ("additionalItems" in words and listed):
            return
        if inner is not literal and "unevaluatedItems" in words:
            return
        first = schema["items"] if listed else schema["prefixItems"] if "prefixItems" in words else ()
        known = max(known, len(first))
        if draft.contains_evaluates and "contains" in words:
            matched.append(branch.whole.literal(inner.place.kids["contains"], inner, True))
    rest = branch.whole.literal(literal.place.kids["unevaluatedItems"], literal, True)
    if matched:
        rest = either(branch, literal, [*matched, rest])
    assert isinstance(branch.facts, ArrayFacts)
    branch.facts.group(ArrayGroup((None,) * known, rest))


def either(branch: Branch, literal: Literal, options: list[Literal]) -> Literal:
    """A literal that holds where one of these does: of a place that the document does not have."""
    if any(option.constant > 0 for option in options):
        return next(option for option in options if option.constant > 0)
    place, known = literal.place, ("any", tuple(options))
    if known not in place.made:
        schema = {"anyOf": [option.place.schema for option in options]}
        made = Place(schema, place.pointer, place.resource, place.order, place.depth)
        made.kids = {"anyOf": {i: option.place for i, option in enumerate(options)}}
        place.made[known] = made
    return branch.whole.literal(place.made[known], literal, True)


def applied(branch: Branch, literal: Literal) -> Iterator[Literal]:
    """The literal and what was applied through it to the same value, and held."""
    seen, stack = {literal}, [literal]
    while stack:
        check_time()
        current = stack.pop()
        yield current
        for inner, parents in branch.parents.items():
            if inner.positive and current in parents and inner not in seen:
                seen.add(inner)
                stack.append(inner)


# Objects


def unevaluated_properties(branch: Branch, literal: Literal) -> None:
    names: dict[str, Literal] = {}
    patterns: list[tuple[str, Literal]] = []
    anything = branch.whole.anything
    for inner in applied(branch, literal):
        schema = inner.place.schema
        if inner.place.resource.draft.ref_alone and "$ref" in schema:
            continue
        if "additionalProperties" in schema or (inner is not literal and "unevaluatedProperties" in schema):
            return
        names |= dict.fromkeys(schema.get("properties", ()), anything)
        patterns += [(pattern, anything) for pattern in schema.get("patternProperties", ())]
    rest = branch.whole.literal(literal.place.kids["unevaluatedProperties"], literal, True)
    assert isinstance(branch.facts, ObjectFacts)
    branch.facts.group(ObjectGroup(names, tuple(patterns), rest, literal.place.at("unevaluatedProperties")))


UNEVALUATED = {"unevaluatedItems": unevaluated_items, "unevaluatedProperties": unevaluated_properties}


def objects(facts: ObjectFacts, graph: Graph) -> Iterator[Object]:
    """One case, or several where some name of a kind must have some value."""
    facts.new = dict.fromkeys(facts.required)
    facts.settle(graph)
    if not facts.some:
        yield plain_object(facts, graph)
        return
    some, facts.some = facts.some[0], facts.some[1:]
    for new in ways_to_have(some, facts, graph):
        try:
            yield from objects(new, graph)
        except Contradiction:
            continue


def declared(facts: ObjectFacts) -> dict[str, None]:
    """Every name of which something is said, in the order of the text."""
    names: dict[str, None] = {}
    for group in facts.groups:
        names.update(dict.fromkeys(group.properties))
    names.update(dict.fromkeys(facts.extra))
    names.update(dict.fromkeys(facts.required))
    names.update(dict.fromkeys(facts.forbidden))
    return names


def value_of(facts: ObjectFacts, graph: Graph, name: str) -> tuple[Literal, ...] | None:
    """What the value of a declared name must fit, None where the name may not occur."""
    if name in facts.forbidden:
        return None
    literals = facts.literals(name)
    if any(literal.constant < 0 for literal in literals):
        return None
    if facts.names and not graph.name_fits(facts.names, name):
        return None
    return literals


def plain_object(facts: ObjectFacts, graph: Graph) -> Object:
    names, few = None, None
    if facts.names:
        few, names = graph.names_of(facts.names)
    stated = declared(facts)
    if few is not None:
        stated |= dict.fromkeys(few)
    properties: list[Property] = []
    for name in stated:
        literals = value_of(facts, graph, name)
        required = name in facts.required
        if literals is None and required:
            raise Contradiction(facts.required[name], *(literal.place.at() for literal in facts.names))
        node = graph.false if literals is None else graph.node(literals)
        properties.append(Property(name=name, node=node, required=required))
    return Object(
        properties=tuple(properties),
        rest=tuple(others(facts, graph)) if few is None else (),
        names=names if few is None else None,
        min_properties=facts.size.least,
        max_properties=facts.size.most,
    )


def others(facts: ObjectFacts, graph: Graph) -> Iterator[Rest]:
    """Names that are not declared, by the patterns that they match."""
    patterns = list(dict.fromkeys(pattern for group in facts.groups for pattern, _ in group.patterns))
    sets = overlaps(patterns)
    if sets is None:
        yield from by_first_match(patterns, facts, graph)
        return
    for matched in sets:
        node = graph.node(undeclared(facts, set(matched)))
        if node != graph.false:
            kept = tuple(pattern for pattern in matched if pattern not in EVERY_NAME)
            missed = tuple(pattern for pattern in patterns if pattern not in matched)
            yield Rest(node=node, patterns=kept, not_patterns=missed)


def overlaps(patterns: list[str]) -> list[tuple[str, ...]] | None:
    """The sets of patterns that one name may match together, the empty one last; None where they are too many."""
    sets: list[tuple[str, ...]] = [()]
    if len(patterns) > MAX_PATTERNS:
        return None
    for pattern in patterns:
        with_it = [(*s, pattern) for s in sets if all(may_overlap(*sorted((pattern, other))) for other in s)]
        sets = with_it if pattern in EVERY_NAME else with_it + sets
        if len(sets) > MAX_SETS:
            return None
    return sets


def undeclared(facts: ObjectFacts, matched: set[str]) -> tuple[Literal, ...]:
    """What the value of a name must fit that is not declared and matches these patterns alone."""
    literals: list[Literal] = []
    for group in facts.groups:
        mine = [literal for pattern, literal in group.patterns if pattern in matched]
        if not mine and group.rest is not None:
            mine = [group.rest]
        literals += mine
    return tuple(literals)


def by_first_match(patterns: list[str], facts: ObjectFacts, graph: Graph) -> Iterator[Rest]:
    """Each name by the first pattern that it matches: what the others say of it is left out."""
    at = next(group.at for group in facts.groups if group.patterns)
    graph.leave(at, "of so many patterns that may overlap, each name is held to the first that it matches")
    for i, pattern in enumerate(patterns):
        node = graph.node(tuple(lit for group in facts.groups for p, lit in group.patterns if p == pattern))
        if node != graph.false:
            yield Rest(node=node, patterns=(pattern,), not_patterns=tuple(patterns[:i]))
    node = graph.node(undeclared(facts, set()))
    if node != graph.false:
        yield Rest(node=node, not_patterns=tuple(patterns))


def ways_to_have(some: Some, facts: ObjectFacts, graph: Graph) -> Iterator[ObjectFacts]:
    """The ways in which some name of a kind has a value that fits. Left out where that cannot be said."""
    by_name = some.pattern is None and some.group is None
    few = graph.names_of((some.literal,))[0] if by_name else None
    names = list(declared(facts)) if few is None else list(few)
    if few is None and facts.names:
        few = graph.names_of(facts.names)[0]
        names += [name for name in few or () if name not in names]
    ways: list[ObjectFacts] = []
    for name in names:
        literals = value_of(facts, graph, name)
        if literals is None or not some.covers(name) or (by_name and not graph.name_fits((some.literal,), name)):
            continue
        known = by_name or graph.implies(literals, some.literal)
        if known and name in facts.required:
            yield facts
            return
        new = facts.clone()
        try:
            new.require(name, some.at)
            if not known:
                new.child(name, some.literal)
            new.settle(graph)
        except Contradiction:
            continue
        ways.append(new)
    if few is None and any(reaches(some, rest) for rest in others(facts, graph)):
        more = another(some, facts, graph, names)
        if more is None:
            graph.leave(some.literal, "that some name has some value was left out: any name may come")
            yield facts
            return
        ways = more
    yield from ways


def reaches(some: Some, rest: Rest) -> bool:
    """An undeclared name of this group may be of the kind."""
    if some.pattern is not None:
        return some.pattern not in rest.not_patterns
    return some.group is None or not any(pattern in rest.patterns for pattern, _ in some.group.patterns)


def surely_reaches(some: Some, rest: Rest) -> bool:
    """Every undeclared name of this group is of the kind."""
    if some.pattern is not None:
        return some.pattern in rest.patterns
    return some.group is not None and all(pattern in rest.not_patterns for pattern, _ in some.group.patterns)


def another(some: Some, facts: ObjectFacts, graph: Graph, names: list[str]) -> list[ObjectFacts] | None:
    """There is a name of the kind, whatever its value: by counting, where few names are not of the kind."""
    if some.literal.constant <= 0 or not all(surely_reaches(some, rest) for rest in others(facts, graph)):
        return None
    known = [name for name in names if not some.covers(name) and value_of(facts, graph, name) is not None]
    if len(known) > MAX_ABSENT:
        return None
    ways = []
    for chosen in range(1 << len(known)):
        absent = [name for i, name in enumerate(known) if chosen >> i & 1]
        new = facts.clone()
        try:
            for name in absent:
                new.forbid(name, some.at)
            new.longer(len(known) - len(absent) + 1, some.at)
        except Contradiction:
            continue
        ways.append(new)
    return ways
