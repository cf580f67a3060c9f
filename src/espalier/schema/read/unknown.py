"""Finds the keywords of a schema that nobody knows, and the known one that was probably meant.

    {"maxLenght": 3}                                "/maxLenght", meant maxLength
    {"type": "object", "nom": {"type": "string"}}   "/nom", a property outside of `properties`

A validator ignores an unknown keyword, so a typo loosens a schema without a word. What resembles no keyword is taken
for a remark of somebody's own (`propertyOrder`, `javaType`) and is not told, and neither is what begins with `x-`, `_`
or `@`. Names of properties and values (`enum`, `const`, `default`, `examples`) are no keywords: `walk.py` says where
schemas are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.json_record import JsonRecord
from espalier.schema.pointers import below, local_pointer
from espalier.schema.read.drafts import DRAFTS, TYPES, misshapen
from espalier.schema.read.walk import Node, subschemas
from espalier.time_limit import check as check_time

ANNOTATIONS = frozenset(
    (
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment"),
        *("$defs", "definitions", "title", "description", "default", "examples", "deprecated", "readOnly"),
        *("writeOnly", "contentEncoding", "contentMediaType", "contentSchema"),
    )
)
"""Keywords that never assert anything."""
ASSERTIONS = frozenset[str]().union(*(draft.keywords for draft in DRAFTS.values()))
KEYWORDS = ASSERTIONS | ANNOTATIONS
FOREIGN = frozenset(
    ("nullable", "discriminator", "xml", "externalDocs", "example", "comment", "links", "note", "notes")
)
"""OpenAPI's keywords, and remarks that are common: known, and silent."""
OTHER_WORDS: Mapping[str, tuple[str, ...]] = {
    "min": ("minimum", "minLength"),
    "max": ("maximum", "maxLength"),
    "minValue": ("minimum",),
    "maxValue": ("maximum",),
    "length": ("minLength", "maxLength"),
    "size": ("minItems", "maxItems"),
    "regex": ("pattern",),
    "regexp": ("pattern",),
    "choices": ("enum",),
    "values": ("enum",),
    "allowedValues": ("enum",),
    "optional": ("required",),
    "mandatory": ("required",),
    "fields": ("properties",),
    "props": ("properties",),
    "unique": ("uniqueItems",),
    "divisibleBy": ("multipleOf",),
    "disallow": ("not",),
    "extends": ("allOf",),
    "requires": ("dependentRequired",),
}
"""What other languages and older drafts call a keyword."""
TYPE_WORDS: Mapping[str, str] = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "none": "null",
    "nil": "null",
}
SHORT = 4
"""Keywords of so many letters resemble plain words: their value must have the keyword's shape too."""
FAR = 6
"""Keywords from so many letters on are recognised with FARTHEST wrong letters."""
FARTHEST = 2
"""The most wrong letters with which a keyword is recognised."""
_TEXTS = ("title", "description", "$comment", "$id", "$schema", "$anchor", "$dynamicAnchor", "contentEncoding")
_FLAGS = ("deprecated", "readOnly", "writeOnly")


@dataclass(frozen=True, slots=True)
class Unknown(JsonRecord):
    """pointer: to the keyword. meant: the known ones nearest to it; none for a property outside of `properties`."""

    pointer: str
    keyword: str
    meant: tuple[str, ...]

    @property
    def hint(self) -> str:
        if not self.meant:
            return "a property belongs in `properties`"
        return f"did you mean {' or '.join(f'`{word}`' for word in self.meant)}?"

    def __str__(self) -> str:
        return f"{self.pointer} is no keyword of JSON Schema and asserts nothing: {self.hint}"


def unknown_keywords(schema: Node) -> tuple[Unknown, ...]:
    """The unknown keywords that were probably meant to assert or describe something, in the order of the text."""
    unknown: list[Unknown] = []
    nodes = list(subschemas(schema))
    for pointer, node in nodes:
        if not isinstance(node, Mapping):
            continue
        for keyword in node:
            if keyword in KEYWORDS or not isinstance(keyword, str):
                continue
            check_time()
            meant = meant_by(keyword, node[keyword])
            if meant or (_is_misplaced(node, keyword) and not _is_referred_to(nodes, below(pointer, keyword))):
                unknown.append(Unknown(below(pointer, keyword), keyword, meant))
    return tuple(unknown)


def meant_by(keyword: str, value: Any) -> tuple[str, ...]:
    """The known keywords that an unknown one with this value was probably meant to be, in the order of the alphabet."""
    if keyword in KEYWORDS or keyword in FOREIGN or keyword[:1] in ("_", "@", "") or keyword.lower().startswith("x-"):
        return ()
    if keyword in OTHER_WORDS:
        words = OTHER_WORDS[keyword]
        return words if any(_fits(word, value) for word in words) or keyword in ("optional", "mandatory") else ()
    plain = _plain(keyword)
    if same := sorted(known for known, spelt in _PLAIN.items() if spelt == plain and known != "id"):
        # Such as `$default`, which is not `default`.
        is_marked = keyword[0] == "$" != same[0][0] and same[0] in ANNOTATIONS
        return () if is_marked else tuple(known for known in same if _may_be(known, value))
    letters = frozenset(keyword)
    alike = [known for known, others in _LETTERS.items() if len(letters ^ others) <= 2 * FARTHEST]
    near = sorted((away, known) for known in alike if (away := _away(keyword, known)) <= _reach(known))
    typos = [(away, known) for away, known in near if _is_typo(known, value, away)]
    return tuple(known for away, known in typos if away == typos[0][0])


def type_meant(name: Any) -> str | None:
    """The type that a text which names none was probably meant to be; None if it resembles none."""
    if not isinstance(name, str) or name in TYPES:
        return None
    if (small := name.lower()) in (*TYPES, *TYPE_WORDS):
        return TYPE_WORDS.get(small, small)
    near = sorted((away, known) for known in TYPES if (away := distance(small, known, 2)) <= 2)
    return near[0][1] if near else None


def hint_for(keyword: str, value: Any) -> str | None:
    """What to write instead of a value of the wrong shape, as far as that can be guessed."""
    names = value if isinstance(value, list) else [value]
    meant = [meant_type for meant_type in map(type_meant, names) if meant_type] if keyword == "type" else []
    return f"did you mean {' and '.join(map(repr, meant))}?".replace("'", '"') if meant else None


def _reach(keyword: str) -> int:
    """How many letters of a keyword may be wrong; none of `id`, which resembles too much."""
    return -1 if keyword == "id" else FARTHEST if len(keyword) >= FAR else 1


def _away(keyword: str, known: str) -> int:
    """The distance to a known keyword; far for words without its `$`, and for two letters if the first differs."""
    far = _reach(known) + 1
    if known[0] == "$" and keyword[:1] != "$":
        return far
    if keyword[:1] == "$" and known[0] != "$":
        return far
    steps = distance(keyword, known, FARTHEST)
    return far if steps == FARTHEST and keyword[:1] != known[:1] else steps


def _is_typo(known: str, value: Any, away: int) -> bool:
    return _fits(known, value) if away > 1 or len(known) <= SHORT else _may_be(known, value)


def _may_be(known: str, value: Any) -> bool:
    """Whether the value may be meant for the keyword: an object where it takes none is a container of its own."""
    return not isinstance(value, Mapping) or _fits(known, value)


def _fits(known: str, value: Any) -> bool:
    """Whether the value has the shape that some draft asks of the keyword."""
    if known in ASSERTIONS:
        return any(known in draft.keywords and misshapen(draft, known, value) is None for draft in DRAFTS.values())
    if known in ("$defs", "definitions", "contentSchema", "$vocabulary"):
        return isinstance(value, Mapping)
    if known in _TEXTS:
        return isinstance(value, str)
    return isinstance(value, bool) if known in _FLAGS else known != "examples" or isinstance(value, list)


def _is_misplaced(node: Mapping[str, Any], keyword: str) -> bool:
    """Whether an unknown keyword is a property that stands beside `properties` instead of in it."""
    value = node[keyword]
    if keyword[:1] in ("_", "@", "$") or keyword.lower().startswith("x-") or keyword in FOREIGN:
        return False
    if not isinstance(value, Mapping) or not (node.get("type") == "object" or "properties" in node):
        return False
    kind = value.get("type")
    return (isinstance(kind, str) and kind in TYPES) or isinstance(value.get("$ref"), str)


def _is_referred_to(nodes: list[tuple[str, Node]], pointer: str) -> bool:
    """Whether a reference of the document leads to a pointer, or below it."""
    references = (node["$ref"] for _, node in nodes if isinstance(node, Mapping) and isinstance(node.get("$ref"), str))
    targets = (local_pointer(reference) for reference in references)
    return any(target is not None and f"{target}/".startswith(f"{pointer}/") for target in targets)


def _plain(keyword: str) -> str:
    """A keyword without its case, its `$`, and the marks between its words."""
    return re.sub(r"[_\-\s$]", "", keyword).lower()


_PLAIN: Mapping[str, str] = {known: _plain(known) for known in KEYWORDS}
_LETTERS: Mapping[str, frozenset[str]] = {known: frozenset(known) for known in KEYWORDS}
"""Each wrong letter puts two sets of letters apart by two at most, which is told at once."""


def distance(a: str, b: str, most: int) -> int:
    """How many letters to insert, leave out, replace or exchange with their neighbour; `most` + 1 if it is more."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        last, row, older = row, [i], before
        for j, other in enumerate(b, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, older[j - 2] + 1)
            row.append(best)
        before = last
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)
