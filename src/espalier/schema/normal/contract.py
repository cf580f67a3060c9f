"""Writes the contract of an expansion: every keyword of the document, from the subschemas reached and what was left
out.

It lowers nothing for a backend; the backends do that themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.schema.contract import Contract, ContractEntry, KeywordVerdict
from espalier.schema.patterns.formats import FORMATS
from espalier.schema.patterns.translate import signs_read_otherwise
from espalier.schema.pointers import split
from espalier.schema.read.documents import SCHEMAS_IN, SchemaStore, Subschema
from espalier.schema.read.drafts import SchemaDraft
from espalier.schema.read.unknown import ANNOTATIONS, unknown_keywords

NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
"""Keywords that assert nothing without another one."""

IN_PLACE = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"))
"""Keywords whose schemas apply to the same value."""

NEGATING = frozenset(("not", "oneOf", "if", "contains"))
"""Keywords below which a text that does not match a pattern may pass, or one that matches be refused."""


def contract_of(
    store: SchemaStore, reached: set[Subschema], judged: set[Subschema], left: Mapping[str, str], *, formats: bool
) -> Contract:
    """One entry for each keyword of the main document; for other documents, only what was left out.

    reached: subschemas whose operations were read. judged: those whose listed values were judged one by one. left: what
    was left out and why, by pointer.
    """
    whole = set(judged)
    stack = list(judged)
    while stack:
        for subschema in inside(stack.pop()):
            if subschema not in whole:
                whole.add(subschema)
                stack.append(subschema)
    entries: dict[str, ContractEntry] = {}
    hints = {keyword.pointer: keyword.hint for keyword in unknown_keywords(store.main.contents)}

    def enter(pointer: str, keyword: str, verdict: KeywordVerdict, note: str = "") -> None:
        if pointer not in entries:
            entries[pointer] = ContractEntry(pointer=pointer, keyword=keyword, verdict=verdict, note=note)

    unreached = denied = "\0"
    for pointer, subschema in sorted(store.main.subschemas.items(), key=lambda pair: pair[1].order):
        if pointer.startswith(unreached):
            continue
        if subschema not in reached and subschema not in whole:
            unreached = f"{pointer}/"
            enter(pointer, keyword_of(pointer), "annotation", "not reached")
            continue
        for keyword in subschema.value if isinstance(subschema.value, dict) else ():
            at = subschema.at(keyword)
            why = silent(subschema.resource.draft, subschema.value, keyword, formats=formats)
            if at in left:
                enter(at, keyword, "checked", left[at])
                denied = f"{at}/" if keyword == "not" else denied
            elif why is not None:
                enter(at, keyword, "annotation", f"{why}: {hints[at]}" if at in hints else why)
            elif at.startswith(denied):
                enter(at, keyword, "checked", f"see {denied[:-1]}")
            else:
                enter(at, keyword, "enforced", reading(keyword, subschema.value[keyword], at))
    for pointer, note in left.items():
        enter(pointer, keyword_of(pointer), "checked", note)
    return Contract(tuple(entries.values()))


def silent(draft: SchemaDraft, schema: Mapping[str, Any], keyword: str, *, formats: bool) -> str | None:
    """Why a keyword asserts nothing ("" where that is its nature), None if it asserts something."""
    if draft.ref_alone and "$ref" in schema and keyword != "$ref":
        return "" if keyword in ANNOTATIONS else f"ignored beside $ref in {draft.name}"
    if keyword in ANNOTATIONS:
        return ""
    if keyword not in draft.keywords:
        return f"not a keyword of {draft.name}"
    if keyword == "format" and not formats:
        return "not asserted"
    if keyword == "format" and schema["format"] not in draft.formats:
        return f"not a format of {draft.name}" if schema["format"] in FORMATS else "not a known format"
    if keyword in NEEDS and NEEDS[keyword] not in schema:
        return f"means nothing without {NEEDS[keyword]}"
    if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
        return "means nothing unless items is a list"
    if keyword == "if" and "then" not in schema and "else" not in schema:
        return "means nothing without then or else"
    return None


def reading(keyword: str, value: Any, at: str) -> str:
    """What to say of a pattern that Python's validators read otherwise; "" for one that they read alike, and for other
    keywords. Where a text passes that does not match, they differ on `.` and `$` too: below `not`, and for names."""
    if keyword not in ("pattern", "patternProperties"):
        return ""
    patterns = [value] if keyword == "pattern" else list(value)
    ends = keyword == "patternProperties" or not NEGATING.isdisjoint(split(at))
    signs = list(dict.fromkeys(sign for pattern in patterns for sign in signs_read_otherwise(pattern, ends=ends)))
    return f"as ECMA-262 reads it; Python's re, and so jsonschema, reads {' '.join(signs)} otherwise" if signs else ""


def keyword_of(pointer: str) -> str:
    """The last keyword of a pointer that holds schemas; else the last step."""
    steps = split(pointer)
    return next((step for step in reversed(steps) if step in SCHEMAS_IN), steps[-1] if steps else "")


def places_of(store: SchemaStore, reached: set[Subschema], contract: Contract, pointer: str, keyword: str) -> list[str]:
    """Where in the user's schema a keyword stands that holds for the values of the schema at `pointer`: there, or in
    the schemas that apply to the same values. Where none of these has it, wherever it stands: a node of the normal form
    has one pointer, and may come from several schemas."""
    asserted = [
        entry.pointer for entry in contract.entries if entry.keyword == keyword and entry.verdict != "annotation"
    ]
    known = set(asserted)
    start = store.main.subschemas.get(pointer)
    queue = [] if start is None else [start]
    seen = set(queue)
    places: list[str] = []
    for subschema in queue:  # grows as schemas are met
        if (at := subschema.at(keyword)) in known:
            places.append(at)
        applied: list[Subschema] = []
        for name, kid in subschema.kids.items():
            if name in IN_PLACE:
                applied += kid.values() if isinstance(kid, dict) else [kid]
        if subschema in reached and isinstance(subschema.value, dict) and "$ref" in subschema.value:
            applied.append(store.resolve(subschema, subschema.value["$ref"], "$ref")[0])
        for other in applied:
            if other not in seen and other in reached:
                seen.add(other)
                queue.append(other)
    return places or asserted or [f"{pointer}/{keyword}" if keyword else pointer]


def inside(subschema: Subschema) -> list[Subschema]:
    """The subschemas directly inside one."""
    subschemas: list[Subschema] = []
    for kid in subschema.kids.values():
        subschemas += kid.values() if isinstance(kid, dict) else [kid]
    return subschemas
