"""Writes the grammar of JSON mode: any JSON value of the given kinds, with bounded whitespace and depth.

Strings follow RFC 8259: every escape, and `\\u` surrogates only in pairs, so that every string is valid Unicode. It
does not know JSON Schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from espalier.errors import SpecError
from espalier.grammar.ast import Grammar
from espalier.grammar.parser import parse

JsonKind = Literal["object", "array", "string", "number", "boolean", "null"]
KINDS: tuple[JsonKind, ...] = get_args(JsonKind)
JsonWhitespace = Literal["natural", "compact", "indented", "flexible"]
WHITESPACE: tuple[JsonWhitespace, ...] = get_args(JsonWhitespace)

FLEXIBLE_RUN = 40
"""The longest run of whitespace in `flexible`: enough for an indented document, and always finite."""
INDENTED_DEPTH = 12
"""Indentation takes a rule for each level, so `indented` has this depth limit where none is given."""
MAX_DEPTH = 1000
MAX_INDENT = 16

SCALARS = r"""
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" unit)
unit ::= [0-9a-ce-fA-CE-F] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2}
hex ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
boolean ::= "true" | "false"
null ::= "null"
"""


def json_grammar(
    *,
    kinds: Sequence[JsonKind] = KINDS,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    max_depth: int | None = None,
) -> Grammar:
    """The grammar of JSON documents.

    kinds: what the document itself may be; values inside it may have any kind. whitespace: `natural`: at most one space
    after `,` and `:`; `compact`: none; `indented`: exactly as `json.dumps(indent=...)`; `flexible`: runs of up to 40
    anywhere. max_depth: levels of nested objects and arrays, at least 1 (a scalar has depth 0); None for no limit.

    Raises SpecError naming the field.
    """
    check_json_options(kinds, whitespace, indent, max_depth)
    if whitespace == "indented":
        max_depth = INDENTED_DEPTH if max_depth is None else max_depth
    names = [kind + _suffix(kind, 1, max_depth) for kind in dict.fromkeys(kinds)]
    rules = [f"root ::= {' | '.join(names)}", SCALARS.strip()]
    if max_depth is None:
        rules += _level(None, None, whitespace, indent)
    else:
        for depth in range(1, max_depth + 1):
            rules += _level(depth, max_depth, whitespace, indent)
    return parse("\n".join(rules) + "\n")


def check_json_options(kinds: Sequence[str], whitespace: str, indent: int, max_depth: int | None) -> None:
    """Raises SpecError naming the first field that is out of range."""
    if not kinds or any(kind not in KINDS for kind in kinds):
        raise SpecError(f"kinds: {list(kinds)}", hint=f"some of: {', '.join(KINDS)}", field="kinds")
    if whitespace not in WHITESPACE:
        raise SpecError(
            f"unknown whitespace {whitespace!r}", hint=f"one of: {', '.join(WHITESPACE)}", field="whitespace"
        )
    if max_depth is not None and not _between(max_depth, 1, MAX_DEPTH):
        raise SpecError(f"max_depth: {max_depth} must be at least 1 and at most {MAX_DEPTH}", field="max_depth")
    if not _between(indent, 0, MAX_INDENT):
        raise SpecError(f"indent: {indent} must be at least 0 and at most {MAX_INDENT}", field="indent")


def _between(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _suffix(kind: str, depth: int, max_depth: int | None) -> str:
    return f"-{depth}" if max_depth is not None and kind in ("object", "array") else ""


def _level(depth: int | None, max_depth: int | None, whitespace: JsonWhitespace, indent: int) -> list[str]:
    """The rules of objects and arrays at one depth; depth: None where there is no limit."""
    here = "" if depth is None else f"-{depth}"
    if depth is None or max_depth is None:
        value = "value"
        inner = "object | array | string | number | boolean | null"
    else:
        value = f"value-{depth}"
        nested = f"object-{depth + 1} | array-{depth + 1} | " if depth < max_depth else ""
        inner = nested + "string | number | boolean | null"
    first, between, last, colon = _spaces(whitespace, indent, depth or 1)
    pair = f"string {colon} {value}"
    many = "({item} ({between} {item})*)"
    pairs = many.format(item=f"({pair})", between=between)
    items = many.format(item=value, between=between)
    return [
        f"{value} ::= {inner}",
        f'object{here} ::= "{{" ({first} {pairs} {last})? {_empty(whitespace)} "}}"',
        f'array{here} ::= "[" ({first} {items} {last})? {_empty(whitespace)} "]"',
    ]


def _spaces(whitespace: JsonWhitespace, indent: int, depth: int) -> tuple[str, str, str, str]:
    """GBNF for the text before the first item, between two items, after the last, and at a colon."""
    if whitespace == "compact":
        return "", '","', "", '":"'
    if whitespace == "natural":
        return "", '"," " "?', "", '":" " "?'
    if whitespace == "indented":
        line = '"\\n' + " " * (indent * depth) + '"'
        close = '"\\n' + " " * (indent * (depth - 1)) + '"'
        return line, f'"," {line}', close, '": "'
    run = f"[ \\t\\n\\r]{{0,{FLEXIBLE_RUN}}}"
    return run, f'{run} "," {run}', "", f'{run} ":" {run}'


def _empty(whitespace: JsonWhitespace) -> str:
    """GBNF for whitespace before the closing bracket, also of an empty container."""
    return f"[ \\t\\n\\r]{{0,{FLEXIBLE_RUN}}}" if whitespace == "flexible" else ""
