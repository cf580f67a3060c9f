"""Whether a value fits a node of the normal form: the plain reading of `espalier.schema.form`, for tests."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from espalier.schema.form import (
    Array,
    Boolean,
    Case,
    Contains,
    NodeId,
    NormalForm,
    Null,
    NumberForm,
    Object,
    Rest,
    String,
    Values,
)
from espalier.schema.patterns.ecma import found


def fits(shapes: NormalForm, node: NodeId, value: Any) -> bool:
    """The value fits one of the node's cases."""
    return any(READERS[type(case)](shapes, case, value) for case in shapes.cases(node))


def same(one: Any, two: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(two, bool) or one is None or two is None:
        return one is two
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    if is_number(one) and is_number(two):
        return exact(one) == exact(two)
    return type(one) is type(two) and bool(one == two)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def exact(value: Any) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def fits_values(shapes: NormalForm, case: Values, value: Any) -> bool:
    return any(same(value, member) for member in case.values)


def fits_null(shapes: NormalForm, case: Null, value: Any) -> bool:
    return value is None


def fits_boolean(shapes: NormalForm, case: Boolean, value: Any) -> bool:
    return isinstance(value, bool)


def fits_number(shapes: NormalForm, case: NumberForm, value: Any) -> bool:
    if not is_number(value):
        return False
    number = exact(value)
    low, high = case.minimum, case.maximum
    return (
        not (case.integer and number.denominator != 1)
        and (low is None or (number > low if case.exclusive_minimum else number >= low))
        and (high is None or (number < high if case.exclusive_maximum else number <= high))
        and not any(number % factor for factor in case.multiples)
        and all(number % factor for factor in case.not_multiples)
        and number not in case.excluded
    )


def fits_string(shapes: NormalForm, case: String, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    assert not case.formats, "formats are not judged here"
    return (
        case.min_length <= len(value)
        and (case.max_length is None or len(value) <= case.max_length)
        and all(found(pattern, value) for pattern in case.patterns)
        and not any(found(pattern, value) for pattern in case.not_patterns)
        and value not in case.excluded
    )


def fits_array(shapes: NormalForm, case: Array, value: Any) -> bool:
    if not isinstance(value, list) or len(value) < case.min_items:
        return False
    if case.max_items is not None and len(value) > case.max_items:
        return False
    for i, item in enumerate(value):
        if not fits(shapes, case.prefix[i] if i < len(case.prefix) else case.items, item):
            return False
    if case.unique and any(same(one, two) for i, one in enumerate(value) for two in value[:i]):
        return False
    return all(counted(shapes, contains, value) for contains in case.contains)


def counted(shapes: NormalForm, contains: Contains, value: list[Any]) -> bool:
    counting = value[contains.first :]
    matching = [fits(shapes, contains.match, item) for item in counting]
    if contains.other is not None:
        assert all(
            matches or fits(shapes, contains.other, item) for matches, item in zip(matching, counting, strict=True)
        )
    return contains.least <= sum(matching) and (contains.most is None or sum(matching) <= contains.most)


def fits_object(shapes: NormalForm, case: Object, value: Any) -> bool:
    if not isinstance(value, dict) or len(value) < case.min_properties:
        return False
    if case.max_properties is not None and len(value) > case.max_properties:
        return False
    declared = {prop.name: prop for prop in case.properties}
    assert len(declared) == len(case.properties), "a name is declared twice"
    for name, prop in declared.items():
        assert not (prop.required and prop.node == shapes.false)
        if prop.required and name not in value:
            return False
    met = 0
    for name, inner in value.items():
        if name in declared:
            if not fits(shapes, declared[name].node, inner):
                return False
            continue
        groups = [rest for rest in case.rest if matches(rest, name)]
        patterns = {(rest.patterns, rest.not_patterns) for rest in groups}
        assert len(patterns) <= 1, f"the groups of other names overlap at {name!r}"
        fitting = [covers(shapes, rest, name, inner) for rest in groups]
        assert not any(fitting) or fitting[0], f"the first group of {name!r} does not include the others"
        for rest, is_covered in zip(groups, fitting, strict=True):
            met |= rest.meets if is_covered else 0
        if not any(fitting):
            return False
    return met == (1 << len(case.demands)) - 1


def covers(shapes: NormalForm, rest: Rest, name: str, value: Any) -> bool:
    """Whether a member whose name matches the patterns of a group belongs to it."""
    return (rest.names is None or fits(shapes, rest.names, name)) and fits(shapes, rest.node, value)


def matches(rest: Rest, name: str) -> bool:
    return all(found(p, name) for p in rest.patterns) and not any(found(p, name) for p in rest.not_patterns)


READERS: dict[type[Case], Callable[[NormalForm, Any, Any], bool]] = {
    Values: fits_values,
    Null: fits_null,
    Boolean: fits_boolean,
    NumberForm: fits_number,
    String: fits_string,
    Array: fits_array,
    Object: fits_object,
}
