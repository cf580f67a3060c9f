"""The shape of a rule, and what rules share: subschemas of a literal, size keywords, failures that cannot be expressed.

Every operation has two functions: `holds` states facts on a branch, `fails` lists the ways in which a value can violate
it. For `minLength: 3` at the pointer /minLength, these are

    holds      branch.facts.longer(3, "/minLength")
    fails      [(("shorter", 2, origin),)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from espalier.schema.normal.branch import Alternative, Branch
from espalier.schema.normal.container_facts import Exists
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.read.documents import Subschema

Holds: TypeAlias = Callable[[Branch, SchemaLiteral, Any], None]
"""`(branch, literal, value of the operation)`. Raises Contradiction."""
Fails: TypeAlias = Callable[[Branch, SchemaLiteral, Any], "list[Alternative] | None"]
"""One alternative for each way to fail; `[]`: it cannot fail; None: it fails for every value of the branch's type.
Raises Inexpressible."""


class Inexpressible(Exception):
    """The normal form cannot express that this keyword fails."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


def kids(literal: SchemaLiteral, keyword: str) -> dict[Any, Subschema]:
    """The subschemas of a keyword that holds several, by name or index."""
    subschemas: dict[Any, Subschema] = literal.subschema.kids.get(keyword) or {}
    return subschemas


def within(
    branch: Branch, literal: SchemaLiteral, subschema: Subschema, positive: bool, keyword: str = ""
) -> SchemaLiteral:
    """The literal of a subschema of `literal`, or of one that it refers to. keyword: the keyword that negates the
    subschema, where `literal` itself is positive."""
    if positive:
        return branch.table.literal(subschema, literal, True)
    origin = literal.subschema.at(keyword) if literal.positive else literal
    return branch.table.literal(subschema, literal, False, origin)


def least(keyword: str) -> tuple[Holds, Fails]:
    """The rules of `minLength`, `minItems` and `minProperties`."""

    def holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
        branch.run((("longer", value, literal.subschema.at(keyword)),))

    def fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
        return [(("shorter", value - 1, literal.origin),)] if value else []

    return holds, fails


def most(keyword: str) -> tuple[Holds, Fails]:
    """The rules of `maxLength`, `maxItems` and `maxProperties`."""

    def holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
        branch.run((("shorter", value, literal.subschema.at(keyword)),))

    def fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
        return [(("longer", value + 1, literal.origin),)]

    return holds, fails


def fails_as(step: str, reading: Callable[[Any], tuple[Any, ...]]) -> Fails:
    """Fails in one way: by one step, with arguments read from the value of the operation."""

    def fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
        return [((step, *reading(value), literal.origin),)]

    return fails


def inexpressible(keyword: str) -> Fails:
    """For operations whose failure the normal form cannot express."""

    def fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
        raise Inexpressible(keyword)

    return fails


def unevaluated(keyword: str) -> tuple[Holds, Fails]:
    """The rules of `unevaluatedItems` and `unevaluatedProperties`. One fails in a way of its own only where all other
    keywords of its schema hold."""

    def holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
        branch.await_evaluation(keyword, literal, literal)

    def fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
        schema = literal.subschema
        others = schema.derive(
            ("without", keyword),
            {name: inner for name, inner in schema.value.items() if name != keyword},
            {name: inner for name, inner in schema.kids.items() if name != keyword},
        )
        rest = within(branch, literal, others, True)
        return [(("add", rest, literal), ("await_evaluation", keyword, literal, rest))]

    return holds, fails


def is_impossible(way: Alternative) -> bool:
    """Whether a way to fail needs a value that violates a schema which every value satisfies."""
    step = way[-1]
    literal = None
    if isinstance(step[1], Exists):
        literal = step[1].literal
    elif step[0] in ("child", "item", "every"):
        literal = step[-1]
    return literal is not None and literal.constant < 0
