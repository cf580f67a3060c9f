"""What each operation says of a value of one type when it holds, and the ways in which it fails.

Tables by the name of the operation. A way to fail is a list of steps for a branch. What cannot be said in the normal
form has no way to fail: the negation around it is then left out, which lets more fit, and is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from espalier.schema.normal.branch import Alternative, Branch, Step
from espalier.schema.normal.facts import ArrayFacts, Contradiction, NumberFacts, ObjectFacts, Some, StringFacts
from espalier.schema.normal.literals import ArrayGroup, Literal, ObjectGroup
from espalier.schema.read.documents import Place
from espalier.schema.read.values import ANY_TYPE, ARRAY, NUMBER, OBJECT, STRING, key, type_of

Holds: TypeAlias = Callable[[Branch, Literal, Any], None]
Fails: TypeAlias = Callable[[Branch, Literal, Any], "list[Alternative] | None"]

MAX_SUBSETS = 5
"""Options of an `anyOf` of which all sets are told apart, where it matters what was evaluated."""


class Inexpressible(Exception):
    """The normal form has no way to say that this keyword fails."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


def kids(literal: Literal, keyword: str) -> dict[Any, Place]:
    found: dict[Any, Place] = literal.place.kids.get(keyword) or {}
    return found


def within(branch: Branch, literal: Literal, place: Place, positive: bool, keyword: str = "") -> Literal:
    """The literal of a place inside. keyword: the one that denies the place, where this literal holds itself."""
    return branch.whole.literal(place, literal, positive, literal.place.at(keyword) if literal.positive else literal)


# Any type


def type_holds(branch: Branch, literal: Literal, value: Any) -> None:
    mask, whole = value
    if not mask & branch.kind:
        raise Contradiction(literal.place.at("type"))
    if whole and isinstance(branch.facts, NumberFacts):
        branch.facts.whole(literal.place.at("type"))


def type_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    mask, whole = value
    if not mask & branch.kind:
        return None
    return [(("not_multiple", Fraction(1), literal.origin),)] if whole and branch.kind == NUMBER else []


def values_hold(branch: Branch, literal: Literal, value: Any) -> None:
    values, keyword = value
    branch.restrict(values, literal.place.at(keyword))


def values_fail(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    mine = {k: v for k, v in value[0].items() if type_of(v) == branch.kind}
    if not mine:
        return None
    if branch.kind not in (ARRAY, OBJECT):
        return [(("exclude", mine, literal.origin),)]
    return [tuple(("choose", literal.origin, differing(branch, literal, member)) for member in mine.values())]


def differing(branch: Branch, literal: Literal, value: Any) -> list[Alternative]:
    """The ways in which an array or object is not this value."""
    at = literal.origin
    if isinstance(value, list):
        ways: list[Alternative] = [(("longer", len(value) + 1, at),)]
        if value:
            ways.append((("shorter", len(value) - 1, at),))
        for i, item in enumerate(value):
            ways.append((("longer", i + 1, at), ("item", i, constant(branch, literal, item))))
        return ways
    ways = [(("longer", len(value) + 1, at),)]
    for name, inner in value.items():
        ways.append((("forbid", name, at),))
        ways.append((("require", name, at), ("child", name, constant(branch, literal, inner))))
    return ways


def constant(branch: Branch, literal: Literal, value: Any) -> Literal:
    """Not this value: a place that the document does not have."""
    place = literal.place
    made = place.made.get(("const", key(value)))
    if made is None:
        made = Place({"enum": [value]}, place.pointer, place.resource, place.order, place.depth)
        place.made[("const", key(value))] = made
    return branch.whole.literal(made, literal, False, literal)


def ref_holds(branch: Branch, literal: Literal, value: Any) -> None:
    branch.add(within(branch, literal, branch.whole.target(literal, value), True), literal)


def ref_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, branch.whole.target(literal, value), False), literal),)]


def all_hold(branch: Branch, literal: Literal, value: Any) -> None:
    for place in kids(literal, "allOf").values():
        branch.add(within(branch, literal, place, True), literal)


def all_fail(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, p, False), literal),) for p in kids(literal, "allOf").values()]


def any_holds(branch: Branch, literal: Literal, value: Any) -> None:
    options = [within(branch, literal, place, True) for place in kids(literal, "anyOf").values()]
    if not branch.whole.unevaluated:
        branch.choose(literal.place.at("anyOf"), [(("add", option, literal),) for option in options])
        return
    if len(options) > MAX_SUBSETS:
        branch.leave(literal.place.at("anyOf"), "too many options for what they evaluate together")
        return
    ways: list[Alternative] = [
        tuple(("add", option, literal) for i, option in enumerate(options) if chosen >> i & 1)
        for chosen in range(1, 1 << len(options))
    ]
    branch.choose(literal.place.at("anyOf"), ways)


def any_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return [tuple(("add", within(branch, literal, p, False), literal) for p in kids(literal, "anyOf").values())]


def one_holds(branch: Branch, literal: Literal, value: Any) -> None:
    places = list(kids(literal, "oneOf").values())
    options = [within(branch, literal, place, True) for place in places]
    denied = [within(branch, literal, place, False, "oneOf") for place in places]
    ways: list[Alternative] = [
        (("add", option, literal), ("only", literal, i, options, denied)) for i, option in enumerate(options)
    ]
    branch.choose(literal.place.at("oneOf"), ways)


def one_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    places = list(kids(literal, "oneOf").values())
    held = [within(branch, literal, place, True) for place in places]
    ways: list[Alternative] = [tuple(("add", within(branch, literal, p, False), literal) for p in places)]
    ways += [(("add", one, literal), ("add", two, literal)) for i, one in enumerate(held) for two in held[:i]]
    return ways


def not_holds(branch: Branch, literal: Literal, value: Any) -> None:
    branch.add(within(branch, literal, literal.place.kids["not"], False, "not"), literal)


def not_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return [(("add", within(branch, literal, literal.place.kids["not"], True), literal),)]


def if_holds(branch: Branch, literal: Literal, value: Any) -> None:
    branch.choose(literal.place.at("if"), _conditions(branch, literal, True))


def if_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return _conditions(branch, literal, False)


def _conditions(branch: Branch, literal: Literal, positive: bool) -> list[Alternative]:
    ways: list[Alternative] = []
    for met, keyword in ((True, "then"), (False, "else")):
        steps = [("add", within(branch, literal, literal.place.kids["if"], met, "if"), literal)]
        place = literal.place.kids.get(keyword)
        if place is not None:
            steps.append(("add", within(branch, literal, place, positive), literal))
        elif not positive:
            continue
        ways.append(tuple(steps))
    return ways


# Numbers and strings


def low_holds(branch: Branch, literal: Literal, value: Any) -> None:
    bound, strict, keyword = value
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.above(bound, strict, literal.place.at(keyword))


def high_holds(branch: Branch, literal: Literal, value: Any) -> None:
    bound, strict, keyword = value
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.below(bound, strict, literal.place.at(keyword))


def multiple_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, NumberFacts)
    branch.facts.multiple(value, literal.place.at("multipleOf"))


def pattern_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, StringFacts)
    branch.facts.pattern(value, literal.place.at("pattern"))


def format_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, StringFacts)
    branch.facts.format(value, literal.place.at("format"))


def least(keyword: str) -> tuple[Holds, Fails]:
    """A keyword that says how long a value is at least."""

    def holds(branch: Branch, literal: Literal, value: Any) -> None:
        branch.run((("longer", value, literal.place.at(keyword)),))

    def fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative]:
        return [(("shorter", value - 1, literal.origin),)] if value else []

    return holds, fails


def most(keyword: str) -> tuple[Holds, Fails]:
    def holds(branch: Branch, literal: Literal, value: Any) -> None:
        branch.run((("shorter", value, literal.place.at(keyword)),))

    def fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative]:
        return [(("longer", value + 1, literal.origin),)]

    return holds, fails


def inexpressible(keyword: str) -> Fails:
    def fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative]:
        raise Inexpressible(keyword)

    return fails


# Objects


def object_group(branch: Branch, literal: Literal) -> ObjectGroup:
    """What the three keywords of a schema say together."""
    if literal.group is None:
        properties = {n: within(branch, literal, p, True) for n, p in kids(literal, "properties").items()}
        patterns = tuple((n, within(branch, literal, p, True)) for n, p in kids(literal, "patternProperties").items())
        rest = literal.place.kids.get("additionalProperties")
        literal.group = ObjectGroup(
            properties,
            patterns,
            None if rest is None else within(branch, literal, rest, True),
            literal.place.at("patternProperties"),
        )
    group: ObjectGroup = literal.group
    return group


def object_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, ObjectFacts)
    branch.facts.group(object_group(branch, literal))


def object_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    at = literal.origin
    ways: list[Alternative] = []
    for name, place in kids(literal, "properties").items():
        ways.append((("require", name, at), ("child", name, within(branch, literal, place, False))))
    for pattern, place in kids(literal, "patternProperties").items():
        ways.append((("exists", Some(within(branch, literal, place, False), at, pattern=pattern)),))
    rest = literal.place.kids.get("additionalProperties")
    if rest is not None:
        some = Some(within(branch, literal, rest, False), at, group=object_group(branch, literal))
        ways.append((("exists", some),))
    return [way for way in ways if not _never(way)]


def _never(way: Alternative) -> bool:
    """It asks for a value of a schema that everything fits not to fit."""
    step = way[-1]
    literal = step[1].literal if step[0] == "exists" else step[-1] if step[0] in ("child", "item", "every") else None
    return literal is not None and literal.constant < 0


def required_holds(branch: Branch, literal: Literal, value: Any) -> None:
    at = literal.place.at("required")
    for name in value:
        branch.run((("require", name, at),))


def required_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    return [(("forbid", name, literal.origin),) for name in dict.fromkeys(value)]


def names_hold(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, ObjectFacts)
    branch.facts.name(within(branch, literal, literal.place.kids["propertyNames"], True))


def names_fail(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    denied = within(branch, literal, literal.place.kids["propertyNames"], False)
    return [] if denied.constant < 0 else [(("exists", Some(denied, literal.origin)),)]


def dependent_required_holds(branch: Branch, literal: Literal, value: Any) -> None:
    names, keyword = value
    at = literal.place.at(keyword)
    for name, wanted in names.items():
        if wanted:
            present: Alternative = (("require", name, at), *(("require", other, at) for other in wanted))
            branch.choose(literal.place.at(keyword), [(("forbid", name, at),), present])


def dependent_required_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    at = literal.origin
    return [(("require", n, at), ("forbid", other, at)) for n, wanted in value[0].items() for other in wanted]


def dependent_schemas_hold(branch: Branch, literal: Literal, value: Any) -> None:
    at = literal.place.at(value)
    for name, place in kids(literal, value).items():
        inner = within(branch, literal, place, True)
        if inner.constant <= 0:
            branch.choose(at, [(("forbid", name, at),), (("require", name, at), ("add", inner, literal))])


def dependent_schemas_fail(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    at = literal.origin
    return [
        (("require", name, at), ("add", within(branch, literal, place, False), literal))
        for name, place in kids(literal, value).items()
    ]


# Arrays


def array_places(literal: Literal) -> tuple[list[Place], Place | None]:
    """The schemas of the first items, and of those that follow."""
    here = literal.place.kids
    if isinstance(literal.place.schema.get("items"), list):
        return list((here.get("items") or {}).values()), here.get("additionalItems")
    return list((here.get("prefixItems") or {}).values()), here.get("items")


def array_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, ArrayFacts)
    prefix, rest = array_places(literal)
    first = tuple(within(branch, literal, place, True) for place in prefix)
    branch.facts.group(ArrayGroup(first, None if rest is None else within(branch, literal, rest, True)))


def array_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    at = literal.origin
    prefix, rest = array_places(literal)
    ways: list[Alternative] = [
        (("longer", i + 1, at), ("item", i, within(branch, literal, place, False))) for i, place in enumerate(prefix)
    ]
    if rest is not None:
        denied, held = within(branch, literal, rest, False), within(branch, literal, rest, True)
        if denied.constant > 0 or (denied.constant == 0 and not prefix):
            # Some item after the first ones is there, or none of the first ones is told apart.
            more: Step = ("contain", denied, held, 1, None, at)
            ways.append((("longer", len(prefix) + 1, at),) if denied.constant else (more,))
        elif denied.constant == 0:
            raise Inexpressible("items")
    return [way for way in ways if not _never(way)]


def contains_holds(branch: Branch, literal: Literal, value: Any) -> None:
    lowest, highest = value
    place = literal.place.kids["contains"]
    match = within(branch, literal, place, True)
    other = within(branch, literal, place, False, "contains")
    branch.run((_contain(match, other, lowest, highest, literal.place.at("contains")),))


def _contain(match: Literal, other: Literal, lowest: int, highest: int | None, at: str) -> Step:
    if match.constant < 0 and lowest:
        raise Contradiction(match.place.at())
    if highest == 0:
        if lowest:
            raise Contradiction(at)
        return ("every", other)
    return ("contain", match, other, lowest, highest, at)


def contains_fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative] | None:
    lowest, highest = value
    at = literal.origin
    place = literal.place.kids["contains"]
    match, other = within(branch, literal, place, True), within(branch, literal, place, False)
    ways: list[Alternative] = []
    if lowest:
        ways.append((_contain(match, other, 0, lowest - 1, at),))
    if highest is not None and match.constant >= 0:
        ways.append((("contain", match, other, highest + 1, None, at),))
    return ways


def unique_holds(branch: Branch, literal: Literal, value: Any) -> None:
    assert isinstance(branch.facts, ArrayFacts)
    branch.facts.distinct()


def unevaluated_holds(name: str) -> Holds:
    def holds(branch: Branch, literal: Literal, value: Any) -> None:
        branch.unevaluated.append((literal, name))

    return holds


def _single(step: str, reading: Callable[[Any], tuple[Any, ...]]) -> Fails:
    def fails(branch: Branch, literal: Literal, value: Any) -> list[Alternative]:
        return [((step, *reading(value), literal.origin),)]

    return fails


OPERATIONS: dict[str, tuple[int, Holds, Fails]] = {
    "type": (ANY_TYPE, type_holds, type_fails),
    "values": (ANY_TYPE, values_hold, values_fail),
    "ref": (ANY_TYPE, ref_holds, ref_fails),
    "all": (ANY_TYPE, all_hold, all_fail),
    "any": (ANY_TYPE, any_holds, any_fails),
    "one": (ANY_TYPE, one_holds, one_fails),
    "not": (ANY_TYPE, not_holds, not_fails),
    "if": (ANY_TYPE, if_holds, if_fails),
    "low": (NUMBER, low_holds, _single("below", lambda value: (value[0], not value[1]))),
    "high": (NUMBER, high_holds, _single("above", lambda value: (value[0], not value[1]))),
    "multiple": (NUMBER, multiple_holds, _single("not_multiple", lambda value: (value,))),
    "min_length": (STRING, *least("minLength")),
    "max_length": (STRING, *most("maxLength")),
    "pattern": (STRING, pattern_holds, _single("not_pattern", lambda value: (value,))),
    "format": (STRING, format_holds, inexpressible("format")),
    "object": (OBJECT, object_holds, object_fails),
    "required": (OBJECT, required_holds, required_fails),
    "min_properties": (OBJECT, *least("minProperties")),
    "max_properties": (OBJECT, *most("maxProperties")),
    "names": (OBJECT, names_hold, names_fail),
    "dependent_required": (OBJECT, dependent_required_holds, dependent_required_fails),
    "dependent_schemas": (OBJECT, dependent_schemas_hold, dependent_schemas_fail),
    "unevaluated_properties": (
        OBJECT,
        unevaluated_holds("unevaluatedProperties"),
        inexpressible("unevaluatedProperties"),
    ),
    "array": (ARRAY, array_holds, array_fails),
    "min_items": (ARRAY, *least("minItems")),
    "max_items": (ARRAY, *most("maxItems")),
    "contains": (ARRAY, contains_holds, contains_fails),
    "unique": (ARRAY, unique_holds, inexpressible("uniqueItems")),
    "unevaluated_items": (ARRAY, unevaluated_holds("unevaluatedItems"), inexpressible("unevaluatedItems")),
}
"""By operation: the types that it says something about, what it says, the ways in which it fails."""
