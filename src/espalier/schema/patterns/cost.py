"""Bounds the backtracking of Python's `re`: whether a search is sure to end soon. `re` cannot be interrupted.

    is_quick("^[a-z]+$", 1000)      True
    is_quick("^(a+)+$", 1000)       False

The bound on the ways to match comes from the text of the pattern alone; nothing is matched or compiled.
"""

from __future__ import annotations

import re

from espalier.owners import owned_cache

WAYS = 2_000_000
"""Ways to match that are tried in a few hundredths of a second."""

_TOKEN = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?(?:[ai]?:|[=!]|<[=!]|P?<\w+>|P=\w+|\(\w+\))|\(\?|(?:[*+?]|\{[0-9]*,?[0-9]*\})[?+]?|.",
    re.DOTALL,
)
_SHORTEST = 64
"""Lengths are rounded up to powers of two, from this one on, so that answers can be cached."""


def is_quick(pattern: str, length: int) -> bool:
    """Whether `re.search` in a text of so many characters is sure to end soon. False where that cannot be shown."""
    return _is_quick(pattern, max(_SHORTEST, 1 << (length - 1).bit_length()))


@owned_cache(4096)
def _is_quick(pattern: str, length: int) -> bool:
    """Every choice multiplies the ways: the options of a group, and the number of repetitions. A repeated group with a
    choice in it makes that choice in every round: this is exponential."""
    ways = [1 if pattern.startswith("^") else length + 1]  # of each open group, outermost first
    options = [1]
    before: int | None = None  # the ways of what a repetition would repeat
    for token in _TOKEN.findall(pattern):
        if token == "(?":  # flags, comments, conditions: they change how the rest is read
            return False
        if token.startswith("("):
            ways.append(1)
            options.append(1)
            before = None
        elif token == ")":
            if len(ways) == 1:
                return False
            before = ways.pop() * options.pop()
            ways[-1] *= before
        elif token == "|":
            options[-1] += 1
            before = None
        elif before is not None and token[0] in "*+?{" and (token[0] != "{" or len(token) > 1):
            if before > 1 and token[0] != "?":
                return False
            ways[-1] *= 2 if token[0] == "?" else 1 if token[1:2].isdigit() and "," not in token else length + 1
            before = None
        else:
            before = 1
        if ways[-1] > WAYS:
            return False
    total = length + 1 if pattern.startswith("^") and options[0] > 1 else 1
    for count, other in zip(ways, options, strict=True):
        total *= count * other
    return total <= WAYS
