"""Rules of the operations that apply to arrays."""

from __future__ import annotations

from typing import Any

from espalier.schema.normal.branch import Alternative, Branch, Step
from espalier.schema.normal.container_facts import ArrayFacts
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.keywords.rules import is_impossible, within
from espalier.schema.normal.literals import ArrayGroup, SchemaLiteral
from espalier.schema.read.documents import Subschema


def item_subschemas(literal: SchemaLiteral) -> tuple[list[Subschema], Subschema | None]:
    """The schemas of the first items, one by one, and the schema of all that follow."""
    here = literal.subschema.kids
    if isinstance(literal.subschema.value.get("items"), list):
        return list((here.get("items") or {}).values()), here.get("additionalItems")
    return list((here.get("prefixItems") or {}).values()), here.get("items")


def array_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, ArrayFacts)
    prefix, rest = item_subschemas(literal)
    first = tuple(within(branch, literal, subschema, True) for subschema in prefix)
    branch.facts.group(ArrayGroup(first, None if rest is None else within(branch, literal, rest, True)))


def array_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    at = literal.origin
    prefix, rest = item_subschemas(literal)
    ways: list[Alternative] = [
        (("longer", i + 1, at), ("item", i, within(branch, literal, subschema, False)))
        for i, subschema in enumerate(prefix)
    ]
    if rest is not None:
        denied, held = within(branch, literal, rest, False), within(branch, literal, rest, True)
        if denied.constant >= 0:
            ways.append((("contain", denied, held, 1, None, at, len(prefix)),))
    return [way for way in ways if not is_impossible(way)]


def contains_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    lowest, highest = value
    subschema = literal.subschema.kids["contains"]
    match = within(branch, literal, subschema, True)
    other = within(branch, literal, subschema, False, "contains")
    branch.run((_contain(match, other, lowest, highest, literal.subschema.at("contains")),))


def _contain(match: SchemaLiteral, other: SchemaLiteral, lowest: int, highest: int | None, at: str) -> Step:
    if match.constant < 0 and lowest:
        raise Contradiction(match.subschema.at())
    if highest == 0:
        if lowest:
            raise Contradiction(at)
        return ("every", other)
    return ("contain", match, other, lowest, highest, at)


def contains_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    lowest, highest = value
    at = literal.origin
    subschema = literal.subschema.kids["contains"]
    match, other = within(branch, literal, subschema, True), within(branch, literal, subschema, False)
    ways: list[Alternative] = []
    if lowest:
        ways.append((_contain(match, other, 0, lowest - 1, at),))
    if highest is not None and match.constant >= 0:
        ways.append((("contain", match, other, highest + 1, None, at),))
    return ways


def unique_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, ArrayFacts)
    branch.facts.distinct()
