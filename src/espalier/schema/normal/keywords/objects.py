"""Rules of the operations that apply to objects."""

from __future__ import annotations

from typing import Any

from espalier.schema.normal.branch import Alternative, Branch
from espalier.schema.normal.container_facts import Exists, ObjectFacts
from espalier.schema.normal.keywords.rules import is_impossible, kids, within
from espalier.schema.normal.literals import ObjectGroup, SchemaLiteral


def object_group(branch: Branch, literal: SchemaLiteral) -> ObjectGroup:
    """`properties`, `patternProperties` and `additionalProperties` of a schema; the literal keeps the group."""
    if literal.group is None:
        properties = {n: within(branch, literal, p, True) for n, p in kids(literal, "properties").items()}
        patterns = tuple((n, within(branch, literal, p, True)) for n, p in kids(literal, "patternProperties").items())
        rest = literal.subschema.kids.get("additionalProperties")
        literal.group = ObjectGroup(
            properties,
            patterns,
            None if rest is None else within(branch, literal, rest, True),
            literal.subschema.at("patternProperties"),
        )
    group: ObjectGroup = literal.group
    return group


def object_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, ObjectFacts)
    branch.facts.group(object_group(branch, literal))


def object_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    at = literal.origin
    ways: list[Alternative] = []
    for name, subschema in kids(literal, "properties").items():
        ways.append((("require", name, at), ("child", name, within(branch, literal, subschema, False))))
    for pattern, subschema in kids(literal, "patternProperties").items():
        ways.append((("demand", Exists(within(branch, literal, subschema, False), at, pattern=pattern)),))
    rest = literal.subschema.kids.get("additionalProperties")
    if rest is not None:
        unlisted = Exists(within(branch, literal, rest, False), at, group=object_group(branch, literal))
        ways.append((("demand", unlisted),))
    return [way for way in ways if not is_impossible(way)]


def required_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    at = literal.subschema.at("required")
    assert isinstance(branch.facts, ObjectFacts)
    for name in value:
        branch.facts.require(name, at)


def required_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return [(("forbid", name, literal.origin),) for name in dict.fromkeys(value)]


def names_hold(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    assert isinstance(branch.facts, ObjectFacts)
    branch.facts.name(within(branch, literal, literal.subschema.kids["propertyNames"], True))


def names_fail(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    denied = within(branch, literal, literal.subschema.kids["propertyNames"], False)
    return [] if denied.constant < 0 else [(("demand", Exists(denied, literal.origin)),)]


def dependent_required_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    names, keyword = value
    at = literal.subschema.at(keyword)
    for name, wanted in names.items():
        if wanted:
            present: Alternative = (("require", name, at), *(("require", other, at) for other in wanted))
            branch.choose(literal.subschema.at(keyword), [(("forbid", name, at),), present])


def dependent_required_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    at = literal.origin
    return [(("require", n, at), ("forbid", other, at)) for n, wanted in value[0].items() for other in wanted]


def dependent_schemas_hold(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    at = literal.subschema.at(value)
    for name, subschema in kids(literal, value).items():
        inner = within(branch, literal, subschema, True)
        if inner.constant <= 0:
            branch.choose(at, [(("forbid", name, at),), (("require", name, at), ("add", inner, literal))])


def dependent_schemas_fail(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    at = literal.origin
    return [
        (("require", name, at), ("add", within(branch, literal, subschema, False), literal))
        for name, subschema in kids(literal, value).items()
    ]
