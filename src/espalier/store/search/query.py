"""Reads a search query: words, "phrases", beginnings*, -exclusions and OR. Any text is a query; none is an error of
syntax, and nothing of it reaches a database but words. It knows no database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from espalier.errors import InputError
from espalier.store.search.words import words_in

MOST_CHARACTERS = 1_000
_PART = re.compile(r'(?P<no>-?)(?:"(?P<phrase>[^"]*)"?(?P<star>\*?)|(?P<bare>[^\s"]+))')


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Words that stand one after the other. is_beginning: the last one may go on. is_excluded: rows that have it are
    not found."""

    words: tuple[str, ...]
    is_beginning: bool = False
    is_excluded: bool = False


Query: TypeAlias = tuple[tuple[Term, ...], ...]
"""Alternatives; a row is found if all terms of one of them hold."""


def read_query(text: str) -> Query:
    """`a b` both, `a OR b` either (weaker than "both"), `"a b"` in this order, `a*` a beginning, `-a` not. A word with
    marks inside is the phrase of its parts. Raises InputError for a text without words, or one too long."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"a search has at most {MOST_CHARACTERS:,} characters, not {len(text):,}", field="query")
    groups: list[list[Term]] = [[]]
    for part in _PART.finditer(text):
        if part["bare"] == "OR" and not part["no"]:
            groups.append([])
            continue
        body = part["bare"] if part["phrase"] is None else part["phrase"]
        words = tuple(words_in(body))
        if not words:
            continue
        is_beginning = bool(part["star"]) or (part["phrase"] is None and body.endswith("*"))
        groups[-1].append(Term(words=words, is_beginning=is_beginning, is_excluded=bool(part["no"])))
    query = tuple(tuple(group) for group in groups if group)
    if not query:
        raise InputError(f"there is no word in the search {text!r:.80}", hint="letters or digits", field="query")
    return query
