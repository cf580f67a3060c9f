"""How a document is written: as JSON, or as the arguments of a call in Python. Three words and the top differ.

It knows which names Python takes for an argument, and nothing of schemas and of layout.
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
    """The words for what is no number, string or container."""

    null: str
    true: str
    false: str


JSON = Constants(null="null", true="true", false="false")
PYTHON = Constants(null="None", true="True", false="False")
CONSTANTS: dict[DocumentStyle, Constants] = {"json": JSON, "python": PYTHON}

RESERVED = frozenset((*kwlist, "__debug__"))
"""Identifiers that name no argument."""


def is_argument(name: str) -> bool:
    """Can it stand before `=` in a call, and arrive as it is written? Python brings identifiers into the form NFKC."""
    return name.isidentifier() and name not in RESERVED and is_normalized("NFKC", name)


@cache
def argument_names() -> Dfa:
    """The ASCII names for which `is_argument` holds. Of other letters, what follows decides whether they stay."""
    found = without(language(parse_regex("[A-Za-z_][A-Za-z0-9_]*")), Dfa.of_words(sorted(RESERVED)))
    assert found is not None
    return found
