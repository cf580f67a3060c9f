"""What llama-server's own `json_schema` holds of a schema, keyword by keyword, and the words for it.

Its converter reads some keywords, drops others in silence, and reads some wrongly. `engine_contract` knows what it
drops; here stands what it reads in another way, as seen in llama.cpp 0.5.0-dev and 0.6.0-dev. It asks no server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.errors import CapabilityError, UnsupportedError
from espalier.schema.contract import Contract, KeywordVerdict
from espalier.schema.lint.engine_contract import engine_contract
from espalier.schema.lint.hazards import SILENT, hazards, type_of, types
from espalier.schema.read.walk import subschemas

ENGINE = "llama-server"
Change = tuple[str, KeywordVerdict, str]
Schema = Mapping[str, Any]
BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
DATES = ("date", "date-time")
OWN_LAYOUT = "llama-server writes white space and the order of properties in its own way"
ORDERS = (None, "any", "required-first")
"""Orders that the server keeps: it writes required properties first, and both kinds in the order of the schema."""

_CHARACTER = r"[ !#%&',\-/0-9:;<=>@A-Z_`a-z~]"
_IN_CLASS = r'[^\x00-\x1f\x7f"\\\[\]^-]'
_CLASS = rf"\[(?:{_IN_CLASS}(?:-{_IN_CLASS})?)+\]"
_COUNT = r"(?:[*+?]|\{\d+(?:,\d*)?\})?(?![*+?{])"
READ_RIGHT = re.compile(
    rf"\^(?:(?:{_CHARACTER}|{_CLASS}|\)){_COUNT}|\((?:\?:)?|\||\\[.^$|?*+()\[\]{{}}](?![*+?{{]))*\$", re.ASCII
)
"""Patterns that the server reads as ECMA-262 does. Its `.` and negated classes match quotes; it counts a whole literal
after an escape, and reads `a+?` as `(a+)?`."""


def native_contract(spec: JsonSchema) -> Contract:
    """What the server itself holds of each keyword. Raises SchemaError, UnsupportedError for an unknown draft, and
    LimitExceeded."""
    spec = spec.explicit()
    base = LoweredSchema(spec).expansion.contract
    contract = engine_contract(base, hazards(spec.schema), ENGINE)
    asserted = {entry.pointer for entry in base.entries if entry.verdict != "annotation"}
    changes = (
        change
        for pointer, node in subschemas(spec.schema)
        if isinstance(node, Mapping)
        for look in READINGS
        for change in look(pointer, node)
    )
    return contract.with_changes(change for change in changes if change[0] in asserted).with_changes(
        [("", "narrowed", OWN_LAYOUT)]
    )


def check_native(spec: JsonSchema) -> Contract:
    """The contract of a schema that the server may be given. Raises UnsupportedError naming the keywords that it does
    not hold and the spec does not allow to be only checked, CapabilityError for a layout that it does not write."""
    layout = {
        "whitespace": spec.whitespace not in ("natural", "flexible"),
        "separators": spec.separators is not None,
        "order": spec.order not in ORDERS and not (spec.order == "schema" and _keeps_order(spec.schema)),
        "documents": bool(spec.documents),
    }
    for name, is_asked in layout.items():
        if is_asked:
            raise CapabilityError(
                f"llama-server's own json_schema knows no {name}",
                hint="schema_as=gbnf, or leave it out",
                field="constraint",
            )
    contract = native_contract(spec)
    try:
        contract.check("checked" if spec.allow == "checked" else ())
    except UnsupportedError as error:
        hint = f"schema_as=gbnf sends our grammar, which may hold it; or {error.hint}"
        raise UnsupportedError(f"llama-server's own json_schema: {error.message}", hint=hint, field="schema") from error
    return contract


def _keeps_order(schema: Any) -> bool:
    """Whether no optional property stands before a required one, so that the server's order is the schema's."""
    for _, node in subschemas(schema):
        named = node.get("properties") if isinstance(node, Mapping) else None
        needed = [name in (node.get("required") or ()) for name in named or ()] if isinstance(node, Mapping) else []
        if needed != sorted(needed, reverse=True):
            return False
    return True


def _beside(node: Schema, *besides: str) -> list[str]:
    return [key for key in node if key not in SILENT and key not in besides]


def _union(pointer: str, node: Schema) -> Iterator[Change]:
    """`oneOf` is read as `anyOf`, and nothing beside either."""
    name = "oneOf" if "oneOf" in node else "anyOf" if "anyOf" in node else None
    if name is None or "$ref" in node:
        return
    for key in _beside(node, name):
        yield f"{pointer}/{key}", "checked", f"silently dropped: it stands beside {name}"
    options = node[name]
    if name == "oneOf" and not all(_are_apart(*pair) for pair in combinations(options, 2)):
        yield f"{pointer}/oneOf", "checked", "read as anyOf: more than one may hold"


def _are_apart(first: Any, other: Any) -> bool:
    """Whether no value is of both schemas, as their types and listed values show."""
    if not (isinstance(first, Mapping) and isinstance(other, Mapping)) or "$ref" in first or "$ref" in other:
        return False
    if not types(first) & types(other):
        return True
    mine, theirs = _list_values(first), _list_values(other)
    return bool(mine and theirs) and not any(value in theirs for value in mine)


def _list_values(node: Schema) -> list[Any]:
    return [node["const"]] if "const" in node else list(node.get("enum") or ())


def _all_of(pointer: str, node: Schema) -> Iterator[Change]:
    if "allOf" in node:
        yield f"{pointer}/allOf", "checked", "only the properties and listed values of its parts are read"


def _values(pointer: str, node: Schema) -> Iterator[Change]:
    """Beside `const` and `enum` nothing is read."""
    name = "const" if "const" in node else "enum" if "enum" in node else None
    if name is None:
        return
    for key in _beside(node, name):
        if key == "type" and all(_is_of(value, _list_types(node)) for value in _list_values(node)):
            continue
        yield f"{pointer}/{key}", "checked", f"silently dropped: it stands beside {name}"


def _is_of(value: Any, stated: tuple[str, ...]) -> bool:
    return type_of(value) in stated or (type(value) is int and "integer" in stated)


def _objects(pointer: str, node: Schema) -> Iterator[Change]:
    more = node.get("additionalProperties")
    if node.get("properties") and (more is True or isinstance(more, Mapping)):
        at = f"{pointer}/additionalProperties"
        yield at, "checked", "the further names that are written may be no JSON, or one of the properties"
    declared = node.get("properties") or {}
    if any(name not in declared for name in node.get("required") or ()):
        yield f"{pointer}/required", "checked", "required names that are not declared are not enforced"
    if "type" not in node and "properties" in node:
        yield f"{pointer}/properties", "narrowed", "only objects, as no type is stated"


def _arrays(pointer: str, node: Schema) -> Iterator[Change]:
    items, fixed = node.get("items"), node.get("prefixItems")
    if "items" in node and "prefixItems" in node:
        yield f"{pointer}/prefixItems", "checked", "silently dropped: it stands beside items"
    listed = items if isinstance(items, list) else None if "items" in node else fixed
    least, most = node.get("minItems", 0), node.get("maxItems")
    if "items" not in node and "prefixItems" not in node:
        for key in ("minItems", "maxItems"):
            yield f"{pointer}/{key}", "checked", "silently dropped: no items are stated"
    elif isinstance(listed, list):
        where = "items" if isinstance(items, list) else "prefixItems"
        yield f"{pointer}/{where}", "narrowed", f"exactly {len(listed)} items"
        if least > len(listed):
            yield f"{pointer}/minItems", "checked", "silently dropped beside a list of items"
        if most is not None and most < len(listed):
            yield f"{pointer}/maxItems", "checked", "silently dropped beside a list of items"


def _lengths(pointer: str, node: Schema) -> Iterator[Change]:
    if "string" not in _list_types(node):
        for key in ("minLength", "maxLength"):
            yield f"{pointer}/{key}", "checked", "silently dropped: the type string is not stated"


def _list_types(node: Schema) -> tuple[str, ...]:
    kind = node.get("type")
    return (kind,) if isinstance(kind, str) else tuple(kind) if isinstance(kind, list) else ()


def _bounds(pointer: str, node: Schema) -> Iterator[Change]:
    for inclusive, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if inclusive in node and exclusive in node:
            yield f"{pointer}/{exclusive}", "checked", f"silently dropped: it stands beside {inclusive}"
    for key in BOUNDS:
        if key in node and type(node[key]) is not int:
            yield f"{pointer}/{key}", "checked", "its fraction is dropped"
    lowest = _whole(node, "minimum", "exclusiveMinimum", 1)
    highest = _whole(node, "maximum", "exclusiveMaximum", -1)
    if highest is None and lowest is not None and _is_misread(lowest):
        key = "minimum" if "minimum" in node else "exclusiveMinimum"
        yield f"{pointer}/{key}", "checked", "read wrongly: smaller numbers are allowed (no maximum is stated)"
    if lowest is None and highest is not None and _is_misread(-highest):
        key = "maximum" if "maximum" in node else "exclusiveMaximum"
        yield f"{pointer}/{key}", "checked", "read wrongly: larger numbers are allowed (no minimum is stated)"


def _whole(node: Schema, inclusive: str, exclusive: str, step: int) -> int | None:
    value = node.get(inclusive, node.get(exclusive))
    if type(value) is not int:
        return None
    return value if inclusive in node else value + step


def _is_misread(bound: int) -> bool:
    """Digit by digit, with what follows read as a number: a zero after the first digit is lost."""
    digits = str(bound)
    return bound > 9 and any(digits[at] == "0" for at in range(1, len(digits) - 1))


def _pattern(pointer: str, node: Schema) -> Iterator[Change]:
    pattern = node.get("pattern")
    if isinstance(pattern, str) and not _reads_right(pattern):
        yield f"{pointer}/pattern", "checked", "a pattern that is read in another way, or not at all"
    if "pattern" in node and "format" in node:
        yield f"{pointer}/format", "checked", "silently dropped: it stands beside a pattern"


def _reads_right(pattern: str) -> bool:
    if not READ_RIGHT.fullmatch(pattern):
        return False
    ranges = [pair for group in re.findall(r"\[([^\]]*)\]", pattern) for pair in re.findall("(.)-(.)", group)]
    return not any(low <= char <= high for low, high in ranges for char in ('"', "\\"))


def _format(pointer: str, node: Schema) -> Iterator[Change]:
    if node.get("format") in DATES:
        yield f"{pointer}/format", "checked", "days that a month does not have are allowed"


def _references(pointer: str, node: Schema) -> Iterator[Change]:
    if pointer and "$id" in node:
        yield f"{pointer}/$id", "checked", "silently dropped: references are read from the whole schema"
    if "$recursiveRef" in node:
        yield f"{pointer}/$recursiveRef", "checked", "silently dropped"


READINGS = (_union, _all_of, _values, _objects, _arrays, _lengths, _bounds, _pattern, _format, _references)
