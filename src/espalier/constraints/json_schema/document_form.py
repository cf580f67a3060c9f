"""The form of the documents of a schema, which no keyword states: the order of properties, the whitespace, and that
objects are closed.

    order "any"          order enforced: every order of the names that are declared, others anywhere between
    order "schema"       order narrowed: as in the schema, others after the declared ones
    whitespace "compact" whitespace narrowed: none

    closed                closed enforced: objects take no names but the declared ones

It lists them for the contract. A form that matters for no document of a schema has no entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from espalier.constraints.spec import JsonSchema
from espalier.grammar.json_mode import FLEXIBLE_RUN
from espalier.schema.contract import Contract, ContractEntry, KeywordVerdict
from espalier.schema.form import Array, Object, Values
from espalier.schema.normal.cases import led_to
from espalier.schema.normal.closing import NOTE
from espalier.schema.normal.expand import Expansion
from espalier.schema.order import Order
from espalier.schema.pointers import DanglingPointer, follow
from espalier.time_limit import check as check_time

IN_ORDER = "in this order"
OTHERS = "others after the declared ones"
ORDERS = {
    "any": "every order of the declared names, others anywhere between",
    "schema": f"as in the schema, {OTHERS}",
    "required-first": f"required names first, each group as in the schema, {OTHERS}",
}
WHITESPACE = {
    "natural": "at most one space after `,` and `:`",
    "compact": "none",
    "flexible": f"runs of at most {FLEXIBLE_RUN} around brackets, `,` and `:`",
}


def form_entries(spec: JsonSchema, shapes: Expansion, exceptions: Iterable[str] = ()) -> list[ContractEntry]:
    """The entries of order, whitespace and closed objects, each only where a document of the schema shows it.

    exceptions: notes on objects of another order than was asked for."""
    has_order, has_space = _shapes_seen(shapes)
    entries: list[ContractEntry] = []
    if has_order:
        notes = [_order(spec.used_order), *exceptions]
        verdict: KeywordVerdict = "enforced" if spec.used_order == "any" and len(notes) == 1 else "narrowed"
        entries.append(ContractEntry(pointer="", keyword="order", verdict=verdict, note="; ".join(notes)))
    if has_space:
        entries.append(ContractEntry(pointer="", keyword="whitespace", verdict="narrowed", note=_whitespace(spec)))
    return [*entries, *closed_entries(shapes)]


def closed_entries(shapes: Expansion) -> list[ContractEntry]:
    """The entry of closed objects; none where nothing is closed."""
    if not shapes.closes:
        return []
    return [ContractEntry(pointer="", keyword="closed", verdict="enforced", note=NOTE)]


def ordered_keywords(spec: JsonSchema, contract: Contract) -> Iterator[tuple[str, KeywordVerdict, str]]:
    """Changes to a contract: keywords that a fixed order narrows."""
    if spec.used_order == "any":
        return
    schema = spec.schema
    for entry in contract.entries:
        if entry.verdict not in ("enforced", "checked"):
            continue
        if entry.keyword == "properties" or (entry.keyword in ("const", "enum") and _names_two(schema, entry.pointer)):
            yield entry.pointer, "narrowed", IN_ORDER


def _order(order: Order) -> str:
    if isinstance(order, str):
        return ORDERS[order]
    return f"first {', '.join(json.dumps(name, ensure_ascii=False) for name in order)}, then {ORDERS['schema']}"


def _whitespace(spec: JsonSchema) -> str:
    if spec.separators is not None:
        return f"{spec.separators[0]!r} between items, {spec.separators[1]!r} after names"
    return WHITESPACE.get(spec.whitespace, f"line ends and {spec.indent} spaces a level")


def _names_two(schema: Any, pointer: str) -> bool:
    """Whether a constant in the user's schema holds an object with several names."""
    try:
        todo = [follow(schema, pointer)]
    except DanglingPointer:  # in another document
        return True
    while todo:
        check_time()
        value = todo.pop()
        if isinstance(value, dict) and len(value) > 1:
            return True
        todo += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return False


def _shapes_seen(shapes: Expansion) -> tuple[bool, bool]:
    """Whether some object has several names, and whether there is any object or array."""
    has_order = has_space = False
    todo, seen = [shapes.root], {shapes.root}
    while todo and not (has_order and has_space):
        check_time()
        for case in shapes.cases(todo.pop()):
            if isinstance(case, Values):
                held = [value for value in case.values if isinstance(value, dict | list)]
                has_space = has_space or any(held)
                has_order = has_order or any(_names_two(value, "") for value in held)
                continue
            if isinstance(case, Object):
                has_order = has_order or (len(case.properties) + bool(case.rest) > 1 and bool(case.properties))
            has_space = has_space or isinstance(case, Array | Object)
            new = [node for node in led_to(case) if node not in seen]
            seen.update(new)
            todo += new
    return has_order, has_space
