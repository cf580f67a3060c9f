"""Notations of a document: JSON, or the arguments of a Python call. They differ in three words and at the top.

It knows which names Python accepts as arguments; it does not know schemas or layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from keyword import kwlist
from typing import Literal, get_args
from unicodedata import is_normalized

from espalier.automata.languages.algebra import language, without
from espalier.automata.languages.dfa import Dfa
from espalier.grammar.regex.parse import parse_regex

DocumentStyle = Literal["json", "python"]
STYLES: tuple[DocumentStyle, ...] = get_args(DocumentStyle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The words for null, true and false."""

    null: str
    true: str
    false: str


JSON = Constants(null="null", true="true", false="false")
PYTHON = Constants(null="None", true="True", false="False")
CONSTANTS: dict[DocumentStyle, Constants] = {"json": JSON, "python": PYTHON}

RESERVED = frozenset((*kwlist, "__debug__"))
"""Identifiers that cannot name an argument."""


def is_argument(name: str) -> bool:
    """Whether a name can be a keyword argument and arrive unchanged: Python normalises identifiers to NFKC."""
    return name.isidentifier() and name not in RESERVED and is_normalized("NFKC", name)


@cache
def argument_names() -> Dfa:
    """The ASCII names for which `is_argument` holds. Names beyond ASCII depend on NFKC, which an automaton cannot
    do."""
    names = without(language(parse_regex("[A-Za-z_][A-Za-z0-9_]*")), Dfa.of_words(sorted(RESERVED)))
    assert names is not None
    return names
