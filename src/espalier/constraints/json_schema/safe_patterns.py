"""Rewrites a regex so that it matches the same in every dialect: `\\d` is [0-9] in ECMA-262, and more in Python.

The result matches no more than any of the dialects does. It knows no schema.
"""

from __future__ import annotations

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
