"""Sets of code points that regular expressions name: `\\d \\s \\w`, Unicode categories, both cases of a letter.

They are computed with the running Python, so they match its `re` and its `unicodedata`, whatever their version.
Scripts, blocks and other properties are missing, as Python's Unicode data lack them. Each table is computed when first
needed, in tens of milliseconds, and kept. It does not know the syntax of classes.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import groupby

from espalier.grammar.ranges import MAX_CODE_POINT, SURROGATES, Ranges, complement, merge, subtract

CATEGORIES = {
    "L": "Letter",
    "Lu": "Uppercase_Letter",
    "Ll": "Lowercase_Letter",
    "Lt": "Titlecase_Letter",
    "LC": "Cased_Letter",
    "Lm": "Modifier_Letter",
    "Lo": "Other_Letter",
    "M": "Mark",
    "Mn": "Nonspacing_Mark",
    "Mc": "Spacing_Mark",
    "Me": "Enclosing_Mark",
    "N": "Number",
    "Nd": "Decimal_Number",
    "Nl": "Letter_Number",
    "No": "Other_Number",
    "P": "Punctuation",
    "Pc": "Connector_Punctuation",
    "Pd": "Dash_Punctuation",
    "Ps": "Open_Punctuation",
    "Pe": "Close_Punctuation",
    "Pi": "Initial_Punctuation",
    "Pf": "Final_Punctuation",
    "Po": "Other_Punctuation",
    "S": "Symbol",
    "Sm": "Math_Symbol",
    "Sc": "Currency_Symbol",
    "Sk": "Modifier_Symbol",
    "So": "Other_Symbol",
    "Z": "Separator",
    "Zs": "Space_Separator",
    "Zl": "Line_Separator",
    "Zp": "Paragraph_Separator",
    "C": "Other",
    "Cc": "Control",
    "Cf": "Format",
    "Cs": "Surrogate",
    "Co": "Private_Use",
    "Cn": "Unassigned",
}
"""General categories of Unicode: long name by short name."""
_CHUNK = 256


def warm() -> None:
    """Compute the tables of Unicode, which takes up to a second, before somebody waits for them."""
    for letter in "dsw":
        shorthand(letter, ascii_only=False)
    category("L")
    _cases(False)


def scalars(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges merged, without surrogates, which are never part of a text."""
    return subtract(merge(ranges), (SURROGATES,))


@cache
def shorthand(letter: str, *, ascii_only: bool) -> Ranges:
    r"""The code points that `\d`, `\s`, `\w`, `\D`, `\S` or `\W` matches in Python's re, for text."""
    if letter.isupper():
        return scalars(complement(shorthand(letter.lower(), ascii_only=ascii_only)))
    runs = re.finditer(rf"\{letter}+", _every_code_point(), re.ASCII if ascii_only else 0)
    return scalars((run.start(), run.end() - 1) for run in runs)


@cache
def category(name: str) -> Ranges | None:
    """The code points of a general category, or of Any, ASCII, Assigned; None if there is no such name.

    Case, spaces, `_` and `-` in the name are ignored, as Unicode recommends.
    """
    short = _short_names().get(_loose(name))
    match short:
        case None:
            return None
        case "Any":
            return scalars([(0, MAX_CODE_POINT)])
        case "ASCII":
            return ((0, 0x7F),)
        case "Assigned":
            return scalars(complement(merge(_by_category()["Cn"])))
        case "LC":
            wanted = ["Lu", "Ll", "Lt"]
        case _:
            wanted = [known for known in _by_category() if known.startswith(short)]
    return scalars(pair for known in wanted for pair in _by_category()[known])


@lru_cache(maxsize=64)
def both_cases(ranges: Ranges, *, ascii_only: bool) -> Ranges:
    """The ranges with the other cases of their letters, as re's IGNORECASE matches them, one code point each."""
    cases, points = _cases(ascii_only)
    more: list[tuple[int, int]] = []
    for low, high in ranges:
        for place in range(bisect_left(points, low), len(points)):
            if points[place] > high:
                break
            more += [(other, other) for other in cases[points[place]]]
    return merge((*ranges, *more))


def has_cases(char: str, *, ascii_only: bool) -> bool:
    """Whether IGNORECASE matches more than this character."""
    return ord(char) in _cases(ascii_only)[0]


@cache
def _cases(ascii_only: bool) -> tuple[dict[int, tuple[int, ...]], list[int]]:
    """The code points that match each other when case is ignored, by code point; and the sorted code points that have
    such partners.

    re lowers both sides with Unicode's simple mapping (the first code point of the full one), and treats two lower case
    letters with one upper case as equal (s and long s).
    """
    alike: dict[str, list[int]] = {}
    for char in _every_code_point()[:128] if ascii_only else _with_case():
        key = char.lower()[0].upper()
        alike.setdefault(key, []).append(ord(char))
    cases = {point: tuple(group) for group in alike.values() if len(group) > 1 for point in group}
    return cases, sorted(cases)


def _with_case() -> Iterable[str]:
    text = _every_code_point()
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK]
        if chunk.lower() != chunk or chunk.upper() != chunk:
            yield from chunk


@cache
def _by_category() -> dict[str, list[tuple[int, int]]]:
    by_name: dict[str, list[tuple[int, int]]] = {}
    start = 0
    name: Callable[[str], str] = unicodedata.category
    for kind, run in groupby(map(name, _every_code_point())):
        end = start + sum(1 for _ in run)
        by_name.setdefault(kind, []).append((start, end - 1))
        start = end
    return by_name


@cache
def _short_names() -> dict[str, str]:
    pairs = [(name, short) for short, long in CATEGORIES.items() for name in (short, long)]
    return {_loose(name): short for name, short in [*pairs, *((name, name) for name in ("Any", "ASCII", "Assigned"))]}


def _loose(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _every_code_point() -> str:
    """A text in which every code point is at its own index."""
    return "".join(map(chr, range(MAX_CODE_POINT + 1)))
