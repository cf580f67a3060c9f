"""Rewrites a regex so that it matches the same in every dialect: `\\d` is [0-9] in ECMA-262, and more in Python.

The result matches no more than any of the dialects does. It knows no schema.
"""

from __future__ import annotations

from espalier.errors import EspalierError
from espalier.grammar.ast import AnyChar, CharClass, Literal, postorder
from espalier.grammar.ranges import Ranges, subtract
from espalier.grammar.regex.parse import parse_regex

SPELLED = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\r\\f\\v"}
"""The part of a class escape that all dialects match, as written between brackets."""
UNLIKE = set("DWSbBAZzGKhHRXaeckQE<>")
"""Escapes that are negations, anchors, or differ between dialects."""


def narrow(pattern: str) -> str | None:
    """The pattern with its class escapes spelled out; None if that could match more than some dialect does."""
    found: list[str] = []
    in_class = negated = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            letter = pattern[at + 1]
            if letter in UNLIKE or (letter in SPELLED and negated) or pattern[at + 1 : at + 3] in ("u{", "x{"):
                return None
            spelled = SPELLED.get(letter)
            found.append(char + letter if spelled is None else spelled if in_class else f"[{spelled}]")
            at += 2
            continue
        if char == "[" and not in_class:
            in_class = True
            negated = pattern[at + 1 : at + 2] == "^"
            if pattern[at + 1 + negated : at + 2 + negated] == "]":
                return None  # `[]` and `[^]` differ between dialects
        elif in_class and (char == "[" or pattern[at : at + 2] in ("&&", "--", "~~")):
            return None  # set operations in some dialects
        elif char == "]" and in_class:
            in_class = negated = False
        elif char == "(" and not in_class and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] != ":":
            return None  # flags and look-around
        found.append(char)
        at += 1
    return "".join(found)


ESCAPED: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F))
"""Code points that llguidance spells as escapes in a JSON string."""


def needs_no_escape(pattern: str) -> bool:
    """Whether no part of the pattern matches a character of ESCAPED, such as a quotation mark.

    llguidance 1.9.1 accepts `\\"` and `\\\\` for classes that contain some of these characters and not the one that is
    written: `^[^"]*$` accepts `"a\\"b"`. What an unanchored pattern leaves open before and after it is not concerned.
    """
    try:
        nodes = list(postorder(parse_regex(pattern)))
    except EspalierError:
        return False
    for node in nodes:
        if isinstance(node, Literal):
            ranges: Ranges = tuple((ord(char), ord(char)) for char in node.text)
        elif isinstance(node, CharClass | AnyChar):
            ranges = node.scalars()
        else:
            continue
        if any(subtract((one,), ESCAPED) != (one,) for one in ranges):
            return False
    return True
