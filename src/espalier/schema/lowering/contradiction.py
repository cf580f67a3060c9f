"""The error for a schema whose text no rule can write: it names the part and the keywords that contradict each other.

    {"properties": {"p": {"pattern": "^abc$", "maxLength": 2}}, "required": ["p"]}
    no document can satisfy this schema: maxLength 2 contradicts pattern "^abc$" at /properties/p

What the normal form itself finds empty is refused before (`normal/unsatisfiable.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from espalier.errors import SchemaError
from espalier.schema.form import Array, NodeId, NormalForm, String, needed
from espalier.schema.lowering.rulebook import RuleBook
from espalier.schema.lowering.strings import StringRules

EMPTY = "no document can satisfy this schema"


def contradiction(form: NormalForm, book: RuleBook) -> SchemaError:
    """The error for a form without a document, of whose nodes none is empty. book: where strings are tried; it is of no
    use afterwards."""
    strings = StringRules(book)
    deepest, unique = form.pointer(form.root), None
    for node, pointer in _nodes_in_need(form):
        cases = form.cases(node)
        deepest = pointer
        if cases and all(isinstance(case, String) and not _has_text(strings, case) for case in cases):
            string = next(case for case in cases if isinstance(case, String))
            return SchemaError(f"{EMPTY}: {_clash(strings, string)}", pointer=pointer)
        for case in cases:
            if isinstance(case, Array) and case.unique and case.min_items > 1:
                unique = unique or (pointer, case.min_items)
    if unique is not None:
        pointer, count = unique
        return SchemaError(f"{EMPTY}: minItems {count} contradicts uniqueItems", pointer=pointer)
    return SchemaError(f"{EMPTY}, because of the part", pointer=deepest)


def _nodes_in_need(form: NormalForm) -> Iterator[tuple[NodeId, str]]:
    """The nodes without which there may be no document, the root first, with their pointers. The names of an object
    have no pointer of their own: theirs is the object's."""
    queue, seen = [(form.root, form.pointer(form.root))], {form.root, form.false}
    for node, pointer in queue:
        yield node, pointer
        for case in form.cases(node):
            for child in needed(case):
                if child not in seen:
                    seen.add(child)
                    queue.append((child, form.pointer(child) or pointer))


def _has_text(strings: StringRules, case: String) -> bool:
    return strings.content(case, "", "pattern") is not None


def _clash(strings: StringRules, case: String) -> str:
    """The fewest demands of a string without text that leave none, as a clause."""
    demands = _demands(case)
    for demand in list(demands):
        fewer = {text: part for text, part in demands.items() if text != demand}
        if not _has_text(strings, _joined(fewer.values())):
            demands = fewer
    *others, last = demands
    return f"{' and '.join(others)} contradicts {last}" if others else f"no string has {last}"


def _demands(case: String) -> dict[str, String]:
    """Each demand of a string, as it is shown, alone."""
    shown: dict[str, String] = {}
    if case.min_length:
        shown[f"minLength {case.min_length}"] = String(min_length=case.min_length)
    if case.max_length is not None:
        shown[f"maxLength {case.max_length}"] = String(max_length=case.max_length)
    shown |= {f"format {name}": String(formats=(name,)) for name in case.formats}
    shown |= {f"pattern {_quoted(pattern)}": String(patterns=(pattern,)) for pattern in case.patterns}
    shown |= {f"not pattern {_quoted(pattern)}": String(not_patterns=(pattern,)) for pattern in case.not_patterns}
    shown |= {f"not const {_quoted(text)}": String(excluded=(text,)) for text in case.excluded}
    return shown


def _joined(parts: Iterable[String]) -> String:
    """A string with all these demands."""
    joined = String()
    for part in parts:
        joined = String(
            min_length=part.min_length or joined.min_length,
            max_length=joined.max_length if part.max_length is None else part.max_length,
            patterns=joined.patterns + part.patterns,
            not_patterns=joined.not_patterns + part.not_patterns,
            formats=joined.formats + part.formats,
            excluded=joined.excluded + part.excluded,
        )
    return joined


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
