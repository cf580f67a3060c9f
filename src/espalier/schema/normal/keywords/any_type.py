"""Rules of the operations that apply to values of every type: `type`, `enum`, references, `allOf`, `not`, `if`, …"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from espalier.schema.normal.branch import Alternative, Branch
from espalier.schema.normal.facts import Contradiction, NumberFacts
from espalier.schema.normal.keywords.rules import kids, within
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.read.values import ARRAY, NUMBER, OBJECT, key, type_of

MAX_SUBSETS = 5
"""Options of an `anyOf` whose subsets are distinguished, where `unevaluated*` needs to know which options hold."""


def type_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    mask, whole = value
    if not mask & branch.kind:
        raise Contradiction(literal.subschema.at("type"))
    if whole and isinstance(branch.facts, NumberFacts):
        branch.facts.whole(literal.subschema.at("type"))


def type_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    mask, whole = value
    if not mask & branch.kind:
        return None
    return [(("not_multiple", Fraction(1), literal.origin),)] if whole and branch.kind == NUMBER else []


def values_hold(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    values, keyword = value
    branch.restrict(values, literal.subschema.at(keyword))


def values_fail(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    mine = {k: v for k, v in value[0].items() if type_of(v) == branch.kind}
    if not mine:
        return None
    if branch.kind not in (ARRAY, OBJECT):
        return [(("exclude", mine, literal.origin),)]
    return [tuple(("choose", literal.origin, differing(branch, literal, member)) for member in mine.values())]


def differing(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative]:
    """The ways in which an array or object can differ from this value."""
    at = literal.origin
    if isinstance(value, list):
        ways: list[Alternative] = [(("longer", len(value) + 1, at),)]
        if value:
            ways.append((("shorter", len(value) - 1, at),))
        for i, item in enumerate(value):
            ways.append((("longer", i + 1, at), ("item", i, other_than(branch, literal, item))))
        return ways
    ways = [(("longer", len(value) + 1, at),)]
    for name, inner in value.items():
        ways.append((("forbid", name, at),))
        ways.append((("require", name, at), ("child", name, other_than(branch, literal, inner))))
    return ways


def other_than(branch: Branch, literal: SchemaLiteral, value: Any) -> SchemaLiteral:
    """The literal `not {"const": value}`."""
    derived = literal.subschema.derive(("const", key(value)), {"enum": [value]})
    return branch.table.literal(derived, literal, False, literal)


def ref_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    branch.add(within(branch, literal, branch.table.target(literal, value), True), literal)


def ref_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, branch.table.target(literal, value), False), literal),)]


def all_hold(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    for subschema in kids(literal, "allOf").values():
        branch.add(within(branch, literal, subschema, True), literal)


def all_fail(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, p, False), literal),) for p in kids(literal, "allOf").values()]


def any_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    options = [within(branch, literal, subschema, True) for subschema in kids(literal, "anyOf").values()]
    if not branch.table.unevaluated:
        branch.choose(literal.subschema.at("anyOf"), [(("add", option, literal),) for option in options])
        return
    if len(options) > MAX_SUBSETS:
        branch.leave(literal.subschema.at("anyOf"), "too many options for what they evaluate together")
        return
    denied: list[SchemaLiteral] = []
    if branch.is_evaluation_denied(literal):
        denied = [within(branch, literal, subschema, False, "anyOf") for subschema in kids(literal, "anyOf").values()]
    ways: list[Alternative] = []
    for chosen in range(1, 1 << len(options)):
        held = [("add", option, literal) for i, option in enumerate(options) if chosen >> i & 1]
        ways.append((*held, *(("add", option, literal) for i, option in enumerate(denied) if not chosen >> i & 1)))
    branch.choose(literal.subschema.at("anyOf"), ways)


def any_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return [tuple(("add", within(branch, literal, p, False), literal) for p in kids(literal, "anyOf").values())]


def one_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    subschemas = list(kids(literal, "oneOf").values())
    options = [within(branch, literal, subschema, True) for subschema in subschemas]
    denied = [within(branch, literal, subschema, False, "oneOf") for subschema in subschemas]
    ways: list[Alternative] = [
        (("add", option, literal), ("only", literal, i, options, denied)) for i, option in enumerate(options)
    ]
    branch.choose(literal.subschema.at("oneOf"), ways)


def one_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    subschemas = list(kids(literal, "oneOf").values())
    held = [within(branch, literal, subschema, True) for subschema in subschemas]
    ways: list[Alternative] = [tuple(("add", within(branch, literal, p, False), literal) for p in subschemas)]
    ways += [(("add", first, literal), ("add", two, literal)) for i, first in enumerate(held) for two in held[:i]]
    return ways


def not_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    branch.add(within(branch, literal, literal.subschema.kids["not"], False, "not"), literal)


def not_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, literal.subschema.kids["not"], True), literal),)]


def if_holds(branch: Branch, literal: SchemaLiteral, value: Any) -> None:
    branch.choose(literal.subschema.at("if"), _conditions(branch, literal, True))


def if_fails(branch: Branch, literal: SchemaLiteral, value: Any) -> list[Alternative] | None:
    return _conditions(branch, literal, False)


def _conditions(branch: Branch, literal: SchemaLiteral, positive: bool) -> list[Alternative]:
    """`if` holds and so does `then` (or fails, where not positive), or `if` fails and so on with `else`."""
    ways: list[Alternative] = []
    for met, keyword in ((True, "then"), (False, "else")):
        steps = [("add", within(branch, literal, literal.subschema.kids["if"], met, "if"), literal)]
        subschema = literal.subschema.kids.get(keyword)
        if subschema is not None:
            steps.append(("add", within(branch, literal, subschema, positive), literal))
        elif not positive:
            continue
        ways.append(tuple(steps))
    return ways
