"""Writes JSON values as expressions: one spelling each, in the layout and notation of the document around them.

It does not know schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeAlias

from espalier.grammar.ast import EMPTY, Literal, Node
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import join, join_all
from espalier.schema.lowering.notation import JSON, Constants
from espalier.schema.lowering.rulebook import quoted
from espalier.time_limit import check as check_time

MAX_WHOLE = 10**21
"""Whole floats below this are written without an exponent, as JavaScript does."""


Members: TypeAlias = Callable[[list[Node], int], Node]
"""The expression of an object with these members at a depth, in every order."""


def literals(
    values: Iterable[Any], layout: Layout, depth: int, constants: Constants = JSON, members: Members | None = None
) -> tuple[list[str], list[Node]]:
    """The values as options: the texts of scalars, and the expressions of arrays and objects. members: as in
    `literal`."""
    texts: dict[str, None] = {}
    others: list[Node] = []
    for value in values:
        if isinstance(value, dict | list):
            others.append(literal(value, layout, depth, constants, members))
        else:
            texts[scalar(value, constants)] = None
    return list(texts), others


def literal(
    value: Any, layout: Layout, depth: int, constants: Constants = JSON, members: Members | None = None
) -> Node:
    """The expression for one value. Iterative, as values may be nested deeply. members: makes the objects whose names
    come in every order; without it they come as in the value."""
    if members is not None:
        return _in_any_order(value, layout, depth, constants, members)
    if not isinstance(value, dict | list):
        return Literal(scalar(value, constants))
    pieces: list[Node] = []
    todo: list[tuple[Any, int] | Node] = [(value, depth)]
    while todo:
        check_time()
        item = todo.pop()
        if not isinstance(item, tuple):
            pieces.append(item)
            continue
        value, depth = item
        if isinstance(value, dict | list) and value:
            opening, closing = "{}" if isinstance(value, dict) else "[]"
            inside = layout.deeper(depth)
            parts: list[tuple[Any, int] | Node] = [Literal(opening), layout.first(depth)]
            for i, name in enumerate(value):
                parts += [layout.between(depth)] if i else []
                if isinstance(value, dict):
                    parts += [Literal(quoted(name)), layout.colon, (value[name], inside)]
                else:
                    parts.append((name, inside))
            todo += reversed([*parts, layout.last(depth), Literal(closing)])
        elif isinstance(value, dict | list):
            todo += [Literal("}" if isinstance(value, dict) else "]"), layout.blank]
            pieces.append(Literal("{" if isinstance(value, dict) else "["))
        else:
            pieces.append(Literal(scalar(value, constants)))
    return join_all(pieces)


def _in_any_order(value: Any, layout: Layout, depth: int, constants: Constants, members: Members) -> Node:
    held = [(value, depth)]
    first: list[int] = []  # of each value: where the values in it begin
    for inner, at in held:  # grows as values are met
        first.append(len(held))
        parts = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        held += [(part, layout.deeper(at)) for part in parts]
    nodes: list[Node] = [EMPTY] * len(held)
    for number in reversed(range(len(held))):
        check_time()
        inner, at = held[number]
        if not isinstance(inner, dict | list) or not inner:
            nodes[number] = literal(inner, layout, at, constants)
            continue
        parts = nodes[first[number] : first[number] + len(inner)]
        if isinstance(inner, dict):
            named = zip(inner, parts, strict=True)
            nodes[number] = members([join(Literal(quoted(name)), join(layout.colon, part)) for name, part in named], at)
            continue
        between = [node for part in parts[1:] for node in (layout.between(at), part)]
        nodes[number] = join_all([Literal("["), layout.first(at), parts[0], *between, layout.last(at), Literal("]")])
    return nodes[0]


def scalar(value: Any, constants: Constants = JSON) -> str:
    """The text of null, a boolean, a number or a string."""
    if value is None:
        return constants.null
    if isinstance(value, bool):
        return constants.true if value else constants.false
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float | Decimal):
        if -MAX_WHOLE < value < MAX_WHOLE and value == int(value):
            return str(int(value))
        return str(value).replace("E", "e")
    return json.dumps(value)
