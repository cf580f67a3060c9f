"""Builds the cases of the normal form from finished branches.

    in     branch of type NUMBER, facts low=5                            out    Number(minimum=5)
    in     branch of type ARRAY, facts with literals for the items       out    Array(items=<node of these literals>)

`unevaluated*` is settled here, because only a finished branch knows which schemas were applied. Scalars are built in
`cases.py`, objects in `objects.py`. What items and properties must satisfy becomes nodes, which are expanded later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from espalier.schema.form import Array, Case, Contains, ItemKind, Object, Values
from espalier.schema.normal import cases
from espalier.schema.normal.branch import ANY_OF, NO_NEGATIONS, Branch
from espalier.schema.normal.closing import close_object
from espalier.schema.normal.container_facts import ArrayFacts, Exists, ObjectFacts
from espalier.schema.normal.demands import MAX_WAYS, declare_names, limit_ways, ways_to_have
from espalier.schema.normal.facts import Contradiction, NumberFacts, StringFacts
from espalier.schema.normal.literals import ArrayGroup, ObjectGroup, SchemaLiteral
from espalier.schema.normal.objects import NodeSource, plain_object
from espalier.schema.read.values import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING
from espalier.time_limit import check as check_time

MAX_CONTAINS = 4
"""Keywords `contains` that are counted together in one array: items are told apart by every set of them."""


def assemble(branch: Branch, graph: NodeSource) -> Iterator[Case]:
    """The cases of a branch without open choices: one, or several where a property with some name must exist.

    Raises Contradiction.
    """
    for keyword, literal, others in branch.unevaluated:
        UNEVALUATED[keyword](branch, literal, others)
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
        facts.settle(graph.inspector)
        yield array(facts, graph)
    elif branch.kind == OBJECT:
        assert isinstance(facts, ObjectFacts)
        if branch.table.closed:
            close_object(branch, facts)
        declare_names(facts, graph)
        limit_ways(facts, graph, MAX_WAYS if branch.level < NO_NEGATIONS else 1)
        yield from objects(facts, graph)


def array(facts: ArrayFacts, graph: NodeSource) -> Array:
    """The case of an array. `Contains.match` includes what all items must satisfy only where there is no prefix."""
    told_apart = max([facts.first, *(first for *_, first, _ in facts.contains)])
    prefix = tuple(graph.node(facts.literals(index)) for index in range(told_apart))
    beyond = tuple(group.rest for group in facts.groups if group.rest is not None)
    every = [*(facts.literals(index) for index in range(told_apart)), beyond]
    counted: list[Contains] = []
    sides: list[ContainsSides] = []
    for match, other, least, most, first, at in facts.contains:
        shared = () if prefix else beyond
        decided = all(graph.decides((*literals, other)) for literals in dict.fromkeys(every[first:]))
        if most is not None and not decided:
            graph.leave(at, "the most that may match was left out: which items do not match cannot be told")
            most = None
        if least or most is not None:
            sides.append(ContainsSides(match, other if decided else None, first))
            counted.append(
                Contains(
                    match=graph.node((*shared, match)),
                    other=graph.node((*shared, other)) if decided else None,
                    least=least,
                    most=most,
                    first=first,
                )
            )
    return Array(
        prefix=prefix,
        items=graph.node(beyond),
        min_items=facts.size.least,
        max_items=facts.size.most,
        contains=tuple(counted),
        kinds=tuple(kinds(literals, index, sides, graph) for index, literals in enumerate(every))
        if 0 < len(sides) <= MAX_CONTAINS
        else (),
        unique=facts.unique,
    )


class ContainsSides(NamedTuple):
    """One `contains`: what matches, what does not (None where that cannot be told), the index where it begins."""

    match: SchemaLiteral
    other: SchemaLiteral | None
    first: int


def kinds(
    literals: tuple[SchemaLiteral, ...], index: int, sides: list[ContainsSides], graph: NodeSource
) -> tuple[ItemKind, ...]:
    """The items at an index that satisfy these literals by which of `contains` they match, the ones that match most
    first."""
    item_kinds: list[ItemKind] = []
    counting = sum(1 << i for i, side in enumerate(sides) if side.first <= index)
    for matches in reversed(range(1 << len(sides))):
        if matches & ~counting:
            continue
        chosen = [side.match if matches >> i & 1 else side.other for i, side in enumerate(sides) if counting >> i & 1]
        node = graph.node((*literals, *(literal for literal in chosen if literal is not None)))
        if node != graph.false:
            item_kinds.append(ItemKind(matches=matches, node=node))
    return tuple(item_kinds)


def unevaluated_items(branch: Branch, literal: SchemaLiteral, others: SchemaLiteral) -> None:
    """State `unevaluatedItems` as an array group: the items after those that applied schemas evaluate. Where it fails,
    one of these does not satisfy it."""
    known = 0
    matched: list[SchemaLiteral] = []
    for inner in applied(branch, others):
        schema, draft = inner.subschema.value, inner.subschema.resource.draft
        asserted = {keyword for keyword in schema if keyword in draft.keywords}
        listed = isinstance(schema.get("items"), list)
        if ("items" in asserted and not listed) or ("additionalItems" in asserted and listed):
            return evaluate_all(literal)
        if inner is not literal and "unevaluatedItems" in asserted:
            return evaluate_all(literal)
        first = schema["items"] if listed else schema["prefixItems"] if "prefixItems" in asserted else ()
        known = max(known, len(first))
        if draft.contains_evaluates and "contains" in asserted:
            matched.append(branch.table.literal(inner.subschema.kids["contains"], inner, True))
    rest = branch.table.literal(literal.subschema.kids["unevaluatedItems"], literal, True)
    if matched:
        rest = either(branch, literal, [*matched, rest])
    facts = branch.facts
    assert isinstance(facts, ArrayFacts)
    if literal.positive:
        facts.group(ArrayGroup((None,) * known, rest))
    elif is_evaluation_known(branch, literal, others):
        denied = denial(branch, literal, rest)
        facts.contain(denied, rest, 1, None, literal.origin, known)
    return None


def evaluate_all(literal: SchemaLiteral) -> None:
    """Other schemas evaluate everything, so nothing unevaluated is left that could fail. Raises Contradiction where it
    must."""
    if not literal.positive:
        raise Contradiction(literal.origin)


def is_evaluation_known(branch: Branch, literal: SchemaLiteral, others: SchemaLiteral) -> bool:
    """Whether all that other schemas evaluate is known, as it must be to say that something else fails: options that
    hold beside the chosen ones may evaluate more."""
    table = branch.table
    for inner in applied(branch, others):
        for keyword in ("anyOf", "oneOf"):
            for option in inner.subschema.kids.get(keyword, {}).values():
                held, denied = (table.literal(option, inner, positive) for positive in (True, False))
                is_told = held.constant or held in branch.parents or denied in branch.parents
                if not is_told and (keyword == "anyOf" or branch.level >= ANY_OF):
                    text = f"which options of {inner.subschema.at(keyword)} evaluate something cannot be told"
                    branch.leave(literal, text)
                    return False
    return True


def denial(branch: Branch, literal: SchemaLiteral, rest: SchemaLiteral) -> SchemaLiteral:
    """The negation of a positive literal that stands in a negative one. Raises Contradiction where nothing fails."""
    denied = branch.table.literal(rest.subschema, literal, False, literal)
    if denied.constant < 0:
        raise Contradiction(literal.origin)
    return denied


def either(branch: Branch, literal: SchemaLiteral, options: list[SchemaLiteral]) -> SchemaLiteral:
    """The literal `{"anyOf": options}`."""
    if any(option.constant > 0 for option in options):
        return next(option for option in options if option.constant > 0)
    kids = {"anyOf": {i: option.subschema for i, option in enumerate(options)}}
    derived = literal.subschema.derive(
        ("any", tuple(options)), {"anyOf": [option.subschema.value for option in options]}, kids
    )
    return branch.table.literal(derived, literal, True)


def applied(branch: Branch, literal: SchemaLiteral) -> Iterator[SchemaLiteral]:
    """The literal, and every positive literal that was applied through it to the same value."""
    seen, stack = {literal}, [literal]
    while stack:
        check_time()
        current = stack.pop()
        yield current
        for inner, parents in branch.parents.items():
            if inner.positive and current in parents and inner not in seen:
                seen.add(inner)
                stack.append(inner)


def unevaluated_properties(branch: Branch, literal: SchemaLiteral, others: SchemaLiteral) -> None:
    """State `unevaluatedProperties` as an object group: the names that no applied schema evaluates. Where it fails, the
    value of one of these does not satisfy it."""
    names: dict[str, SchemaLiteral] = {}
    patterns: list[tuple[str, SchemaLiteral]] = []
    anything = branch.table.anything
    for inner in applied(branch, others):
        schema = inner.subschema.value
        if inner.subschema.resource.draft.ref_alone and "$ref" in schema:
            continue
        if "additionalProperties" in schema or (inner is not literal and "unevaluatedProperties" in schema):
            return evaluate_all(literal)
        names |= dict.fromkeys(schema.get("properties", ()), anything)
        patterns += [(pattern, anything) for pattern in schema.get("patternProperties", ())]
    rest = branch.table.literal(literal.subschema.kids["unevaluatedProperties"], literal, True)
    group = ObjectGroup(names, tuple(patterns), rest, literal.subschema.at("unevaluatedProperties"))
    facts = branch.facts
    assert isinstance(facts, ObjectFacts)
    if literal.positive:
        facts.group(group)
    elif is_evaluation_known(branch, literal, others):
        facts.demand(Exists(denial(branch, literal, rest), literal.origin, group=group))
    return None


UNEVALUATED = {"unevaluatedItems": unevaluated_items, "unevaluatedProperties": unevaluated_properties}


def objects(facts: ObjectFacts, graph: NodeSource) -> Iterator[Object]:
    """One case; several where a property with some name must exist (`Exists`), one for each way to have it."""
    facts.unsettled = dict.fromkeys(facts.required)
    facts.settle(graph.inspector)
    if not facts.demands:
        yield plain_object(facts, graph)
        return
    demand, facts.demands = facts.demands[0], facts.demands[1:]
    for new in ways_to_have(demand, facts, graph):
        try:
            yield from objects(new, graph)
        except Contradiction:
            continue
