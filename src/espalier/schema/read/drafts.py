"""The drafts of JSON Schema as tables: the keywords of each, the shape of their values, and which values are schemas.

    misshapen(DRAFT7, "minLength", -1)      "is not a whole number from 0 on"

It does not know what keywords mean: `normal/operations.py` and `normal/keywords/` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from espalier.schema.read.values import is_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDraft:
    """One draft. keywords: those that assert or apply something. formats: those that it defines. validator: the class
    of `jsonschema` for it."""

    name: str
    uri: str
    keywords: frozenset[str]
    formats: frozenset[str]
    validator: str
    id_keyword: str = "$id"
    ref_alone: bool = False
    """Siblings of `$ref` are ignored."""
    boolean_exclusive: bool = False
    """`exclusiveMinimum` is a boolean beside `minimum`."""
    item_lists: bool = True
    """`items` may be a list, and `additionalItems` says what follows."""
    contains_evaluates: bool = False
    """Items that `contains` matched count as evaluated for `unevaluatedItems`."""


_FOUR = frozenset(
    [
        "$ref",
        "type",
        "enum",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "items",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
        "dependencies",
    ]
)
_SIX = _FOUR | {"const", "contains", "propertyNames"}
_SEVEN = _SIX | {"if", "then", "else"}
_NINE = (_SEVEN - {"dependencies"}) | frozenset(
    [
        "$recursiveRef",
        "dependentRequired",
        "dependentSchemas",
        "minContains",
        "maxContains",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_TWENTY = (_NINE - {"$recursiveRef", "additionalItems"}) | {"$dynamicRef", "prefixItems"}

_FOUR_FORMATS = frozenset(["date-time", "email", "hostname", "ipv4", "ipv6", "uri"])
_SIX_FORMATS = _FOUR_FORMATS | {"uri-reference", "uri-template", "json-pointer"}
_SEVEN_FORMATS = _SIX_FORMATS | frozenset(
    ["date", "time", "regex", "relative-json-pointer", "iri", "iri-reference", "idn-email", "idn-hostname"]
)
_NINE_FORMATS = _SEVEN_FORMATS | {"duration", "uuid"}

DRAFT4 = SchemaDraft(
    name="draft 4",
    uri="http://json-schema.org/draft-04/schema",
    keywords=_FOUR,
    formats=_FOUR_FORMATS,
    validator="Draft4Validator",
    id_keyword="id",
    ref_alone=True,
    boolean_exclusive=True,
)
DRAFT6 = SchemaDraft(
    name="draft 6",
    uri="http://json-schema.org/draft-06/schema",
    keywords=_SIX,
    formats=_SIX_FORMATS,
    validator="Draft6Validator",
    ref_alone=True,
)
DRAFT7 = SchemaDraft(
    name="draft 7",
    uri="http://json-schema.org/draft-07/schema",
    keywords=_SEVEN,
    formats=_SEVEN_FORMATS,
    validator="Draft7Validator",
    ref_alone=True,
)
DRAFT2019 = SchemaDraft(
    name="draft 2019-09",
    uri="https://json-schema.org/draft/2019-09/schema",
    keywords=_NINE,
    formats=_NINE_FORMATS,
    validator="Draft201909Validator",
)
DRAFT2020 = SchemaDraft(
    name="draft 2020-12",
    uri="https://json-schema.org/draft/2020-12/schema",
    keywords=_TWENTY,
    formats=_NINE_FORMATS,
    validator="Draft202012Validator",
    item_lists=False,
    contains_evaluates=True,
)
DRAFTS = {draft.uri: draft for draft in (DRAFT4, DRAFT6, DRAFT7, DRAFT2019, DRAFT2020)}
"""Drafts by the address in `$schema`, without its `#`."""

ONE = frozenset(
    [
        "additionalProperties",
        "additionalItems",
        "items",
        "contains",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
"""Keywords whose value is a schema; `items` may also be a list of schemas."""
LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
"""Keywords whose value is a list of schemas."""
MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"])
"""Keywords whose value is an object of schemas; in `dependencies`, lists of names too."""

TYPES = ("null", "boolean", "number", "string", "array", "object", "integer")


def _count(value: Any) -> str | None:
    whole = type(value) is int or (isinstance(value, float | Decimal) and is_number(value) and value == int(value))
    return None if whole and value >= 0 else "is not a whole number from 0 on"


def _number(value: Any) -> str | None:
    return None if is_number(value) else "is not a number"


def _positive(value: Any) -> str | None:
    return None if is_number(value) and value > 0 else "is not a number above 0"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "is not a string"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "is not true or false"


def _schema(value: Any) -> str | None:
    return None if isinstance(value, dict | bool) else "is not a schema (an object, true or false)"


def _schemas(value: Any) -> str | None:
    return None if isinstance(value, list) and value else "is not a list of schemas, at least one"


def _mapping(value: Any) -> str | None:
    return None if isinstance(value, dict) else "is not an object"


def _list(value: Any) -> str | None:
    return None if isinstance(value, list) else "is not a list"


def _names(value: Any) -> str | None:
    whole = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return None if whole else "is not a list of names"


def _names_by_name(value: Any) -> str | None:
    whole = isinstance(value, dict) and all(_names(names) is None for names in value.values())
    return None if whole else "is not an object of lists of names"


def _dependencies(value: Any) -> str | None:
    whole = isinstance(value, dict) and all(
        (_names if isinstance(needed, list) else _schema)(needed) is None for needed in value.values()
    )
    return None if whole else "is not an object of lists of names and of schemas"


def _type(value: Any) -> str | None:
    if isinstance(value, str) and value in TYPES:
        return None
    names = value if isinstance(value, list) else [value]
    whole = bool(names) and all(isinstance(name, str) and name in TYPES for name in names)
    return None if whole else f"is not one of, or a list of: {', '.join(TYPES)}"


def _items(value: Any) -> str | None:
    return None if isinstance(value, dict | bool | list) else "is not a schema or a list of schemas"


_CHECKS: dict[Callable[[Any], str | None], str] = {
    _count: "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    _number: "minimum maximum exclusiveMinimum exclusiveMaximum",
    _positive: "multipleOf",
    _text: "$ref $dynamicRef $recursiveRef pattern format",
    _flag: "uniqueItems",
    _schema: " ".join(sorted(ONE - {"items"})),
    _schemas: " ".join(sorted(LISTS)),
    _mapping: " ".join(sorted(MAPS - {"dependencies"})),
    _dependencies: "dependencies",
    _list: "enum",
    _names: "required",
    _names_by_name: "dependentRequired",
    _type: "type",
    _items: "items",
}
_BY_KEYWORD = {keyword: check for check, keywords in _CHECKS.items() for keyword in keywords.split()}


def misshapen(draft: SchemaDraft, keyword: str, value: Any) -> str | None:
    """The fault in the shape of a keyword's value; None if there is none, or if the draft has no such keyword."""
    if keyword not in draft.keywords and keyword not in ("$defs", "definitions"):
        return None
    if draft.boolean_exclusive and keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        return _flag(value)
    if keyword == "items" and not draft.item_lists:
        return _schema(value)
    return _BY_KEYWORD[keyword](value) if keyword in _BY_KEYWORD else None
