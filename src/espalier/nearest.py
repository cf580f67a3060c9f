"""The known names that are most like an unknown one, for hints. It knows no table of names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

MOST_NAMES = 3
LONGEST_NAME = 60
"""Characters of an unknown name that are compared; more would take time and say nothing."""
SIMILAR = 0.6
MISSPELT = 0.8
"""The least share of characters in common: of a name that may be meant, and of one with a typing error."""


def nearest(name: str, known: Iterable[str], most: int = MOST_NAMES, *, share: float = SIMILAR) -> list[str]:
    """At most `most` known names, the most similar first; none if nothing is similar. share: the least share of
    characters in common."""
    asked = name[:LONGEST_NAME].lower()
    spelt = {name_known.lower(): name_known for name_known in sorted(known, reverse=True)}
    return [spelt[name] for name in difflib.get_close_matches(asked, list(spelt), n=most, cutoff=share)]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The question `did you mean 'a', 'b' or 'c'?`, None if nothing is similar."""
    names = [repr(name_near) for name_near in nearest(name, known)]
    if not names:
        return None
    *most, last = names
    return f"did you mean {', '.join(most)} or {last}?" if most else f"did you mean {last}?"


def nearest_or_all(name: str, known: Iterable[str], *, before: str = "known: ") -> str:
    """The question of `did_you_mean` or, if nothing is similar, all known names in their order."""
    every = list(known)
    return did_you_mean(name, every) or before + ", ".join(every)


def as_others_call_it(name: str, table: Mapping[str, tuple[str, str]]) -> str | None:
    """What a name of another library is called here. table: their name -> whose it is ("others" for several), ours."""
    known = table.get(name)
    if known is None:
        return None
    whose, ours = known
    return f"{name}, as {whose} call{'' if whose == 'others' else 's'} it, is {ours} here"
