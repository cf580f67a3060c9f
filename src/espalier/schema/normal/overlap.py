"""Whether two patterns can match one text: decides which groups of property names are disjoint.

"They may" is always a correct answer; it is the one for patterns that are large or not regular.
"""

from __future__ import annotations

import re

from espalier.automata.languages.algebra import both
from espalier.automata.languages.dfa import Dfa
from espalier.errors import GrammarError, LimitExceeded, RegexError, UnsupportedError
from espalier.owners import owned_cache
from espalier.schema.patterns.languages import read

MAX_LENGTH = 200
"""Characters of a pattern that is examined."""
MAX_COUNT = 64
"""The largest count in such a pattern."""
MAX_STATES = 2_000
"""States of an automaton that is examined."""
_COUNT = re.compile(r"\{[0-9,]*[0-9]+")


@owned_cache(4096)
def may_overlap(pattern: str, two: str) -> bool:
    """False only where no text matches both patterns."""
    if pattern == two:
        return True
    first, second = _language(pattern), _language(two)
    if first is None or second is None:
        return True
    try:
        return both(first, second, max_states=MAX_STATES**2) is not None
    except LimitExceeded:
        return True


@owned_cache(1024)
def _language(pattern: str) -> Dfa | None:
    """All texts with a match; None where that is expensive to find, or empty."""
    counts = [int(number) for count in _COUNT.findall(pattern) for number in re.findall("[0-9]+", count)]
    if len(pattern) > MAX_LENGTH or max(counts, default=0) > MAX_COUNT or len(counts) > 8:
        return None
    try:
        texts = read(pattern).dfa()
    except (RegexError, UnsupportedError, GrammarError, LimitExceeded):
        return None
    return None if texts is None or len(texts) > MAX_STATES else texts
