"""Builds the cases of numbers and strings from facts, and trims cases that lead to empty nodes.

    trimmed(Array(items=5, max_items=9), where node 5 is empty)      Array(items=FALSE, max_items=0)

It decides nothing about nodes: which ones are empty is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from espalier.schema.form import (
    Array,
    Boolean,
    Case,
    Contains,
    NodeId,
    Null,
    NumberForm,
    Object,
    String,
    fewest,
    nodes_of_rest,
)
from espalier.schema.normal.facts import Contradiction, NumberFacts, StringFacts
from espalier.schema.read.values import exact

Empty = Callable[[NodeId], bool]
"""Whether a node is known to be empty."""


def number(facts: NumberFacts, excluded: list[Any]) -> NumberForm:
    """The case of a number. Raises Contradiction where it is plain to see that no number is left."""
    multiples = list(facts.multiples)
    if multiples:
        multiples = [_common(multiples)]
    low, high = facts.low, facts.high
    strict_low, strict_high = facts.strict_low, facts.strict_high
    step = _common([*multiples, Fraction(1)]) if facts.integer else multiples[0] if multiples else None
    whys = [at for at in (facts.low_at, facts.high_at, *facts.multiples.values(), *facts.not_multiples.values()) if at]
    for factor in facts.not_multiples:
        if step is not None and not step % factor:
            raise Contradiction(*whys)
    outside = [exact(value) for value in excluded]
    inside = tuple(v for v in outside if _inside(v, low, strict_low, high, strict_high) and not (step and v % step))
    if step is not None and low is not None and high is not None:
        first = math.ceil(low / step) + (strict_low and not low % step)
        last = math.floor(high / step) - (strict_high and not high % step)
        held = {v / step for v in inside}
        if last - first + 1 <= len(held):
            raise Contradiction(*whys)
    elif low is not None and low == high and low in inside:
        raise Contradiction(*whys)
    if facts.integer and multiples and multiples[0].denominator == 1:
        multiples = [m for m in multiples if m != 1]
    return NumberForm(
        integer=facts.integer,
        minimum=low,
        exclusive_minimum=strict_low,
        maximum=high,
        exclusive_maximum=strict_high,
        multiples=tuple(multiples),
        not_multiples=tuple(facts.not_multiples),
        excluded=inside,
    )


def _inside(value: Fraction, low: Fraction | None, sl: bool, high: Fraction | None, sh: bool) -> bool:
    return (low is None or value > low or (value == low and not sl)) and (
        high is None or value < high or (value == high and not sh)
    )


def _common(factors: list[Fraction]) -> Fraction:
    """The least common multiple of the factors."""
    common = factors[0]
    for factor in factors[1:]:
        common = Fraction(
            math.lcm(common.numerator * factor.denominator, factor.numerator * common.denominator),
            common.denominator * factor.denominator,
        )
    return common


def string(facts: StringFacts, excluded: list[Any]) -> String:
    """The case of a string. Raises Contradiction where only the empty string would be left and is excluded."""
    low, high = facts.length.least, facts.length.most
    fitting = tuple(v for v in excluded if len(v) >= low and (high is None or len(v) <= high))
    if high == 0 and fitting:
        raise Contradiction(facts.length.most_at)
    return String(
        min_length=low,
        max_length=high,
        patterns=tuple(facts.patterns),
        not_patterns=tuple(facts.not_patterns),
        formats=tuple(facts.formats),
        excluded=fitting,
    )


def has_value(case: Case, empty: Empty, false: NodeId) -> bool:
    """Whether `trimmed` leaves a value; where that is plain to see, nothing is built."""
    if isinstance(case, Object):
        if case.max_properties is None and not case.min_properties and not case.demands:
            return not any(prop.required and empty(prop.node) for prop in case.properties)
    elif not isinstance(case, Array) or (case.min_items == 0 and not case.contains):
        return True
    return trimmed(case, empty, false) is not None


def trimmed(case: Case, empty: Empty, false: NodeId) -> Case | None:
    """The case without the parts that lead to empty nodes; None where no value is left."""
    if isinstance(case, Object):
        return _object(case, empty, false)
    if isinstance(case, Array):
        return _array(case, empty, false)
    return case


def _object(case: Object, empty: Empty, false: NodeId) -> Object | None:
    rest = tuple(
        group for group in case.rest if not empty(group.node) and (group.names is None or not empty(group.names))
    )
    properties = case.properties
    least, most = case.min_properties, case.max_properties
    required = 0
    changed = rest != case.rest
    possible = 0
    for prop in properties:
        if prop.required:
            if empty(prop.node):
                return None
            required += 1
        if not empty(prop.node):
            possible += 1
        elif prop.node != false or not rest:
            changed = True
    others = fewest([group.meets for group in rest], (1 << len(case.demands)) - 1)
    if others is None or (most is not None and required + others > most):
        return None
    if changed:
        properties = tuple(
            type(prop)(name=prop.name, node=false) if empty(prop.node) else prop
            for prop in properties
            if rest or not empty(prop.node)
        )
    if not rest:
        if possible < least:
            return None
        if least > required and possible == least:  # all of them are needed
            properties = tuple(type(prop)(name=prop.name, node=prop.node, required=True) for prop in properties)
            required = least
        if most is not None and possible <= most:
            most = None
    if most is not None and most == required:  # no further one may occur
        properties = tuple(prop for prop in properties if prop.required)
        rest, most = (), None
    if least <= required + min(others, 1):  # two members that meet demands may have one name
        least = 0
    return Object(properties=properties, rest=rest, demands=case.demands, min_properties=least, max_properties=most)


def _array(case: Array, empty: Empty, false: NodeId) -> Array | None:
    prefix, items, most, unique = case.prefix, case.items, case.max_items, case.unique
    kinds = tuple(tuple(kind for kind in row if not empty(kind.node)) for row in case.kinds)
    for i, node in enumerate(prefix):
        if empty(node):
            most = i if most is None else min(most, i)
            break
    if most is not None and most <= len(prefix):
        prefix, items = prefix[:most], false
        kinds = (*kinds[:most], ()) if kinds else ()
    if empty(items):
        items = false
        most = len(prefix) if most is None else min(most, len(prefix))
    if most is not None and most < case.min_items:
        return None
    contains: list[Contains] = []
    for counted in case.contains:
        if empty(counted.match):
            if counted.least:
                return None
            contains.append(Contains(match=false, other=None, least=0))
            continue
        if most is not None and counted.least and counted.first + counted.least > most:
            return None
        other = counted.other if counted.other is None or not empty(counted.other) else false
        contains.append(
            Contains(match=counted.match, other=other, least=counted.least, most=counted.most, first=counted.first)
        )
    if most is not None and most <= 1:
        unique = False
    if not any(matching.least or matching.most is not None for matching in contains):
        contains, kinds = [], ()
    return Array(
        prefix=prefix,
        items=items,
        min_items=case.min_items,
        max_items=most,
        contains=tuple(contains),
        kinds=kinds,
        unique=unique,
    )


def led_to(case: Case) -> Sequence[NodeId]:
    """Every node that a case refers to."""
    if isinstance(case, Object):
        return [*[prop.node for prop in case.properties], *nodes_of_rest(case)]
    if not isinstance(case, Array):
        return ()
    nodes = [*case.prefix, case.items]
    for counted in case.contains:
        nodes.append(counted.match)
        if counted.other is not None:
            nodes.append(counted.other)
    return [*nodes, *(kind.node for row in case.kinds for kind in row)]


NULL_CASE, BOOLEAN_CASE = Null(), Boolean()
