"""Compares a generated answer with the known ones. Pure functions of texts.

Exact match and F1 are those of SQuAD (Rajpurkar et al. 2016, section 6.1): case, punctuation, articles and spaces do
not count.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
REFUSALS = re.compile(
    r"\b(?:"
    r"i(?: a|')?m not (?:sure|able|certain|aware|familiar)"
    r"|i (?:do not|don't|didn't|did not) (?:know|have|possess|recall|find)"
    r"|i (?:cannot|can't|can not|could not|couldn't|am unable to|was unable to)"
    r"|i have no (?:information|knowledge|record|idea|data)"
    r"|i'm (?:sorry|unable|afraid)|i apologi[sz]e|as an ai|as a language model"
    r"|(?:there is|there's) (?:no|not enough) (?:information|record|evidence|data)"
    r"|(?:no|not enough|insufficient) information (?:is |was )?(?:available|provided|given|about|on)"
    r"|(?:cannot|can't|could not|unable to) (?:be determined|determine|answer|verify|confirm|find|provide)"
    r"|(?:is|are) (?:not known|unknown) to me"
    r")\b"
)
"""What a refusal says, in English. A judge model knows more."""


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and repeated spaces; compatibility forms are folded (NFKC)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(" " if unicodedata.category(c)[0] in "PS" else c for c in folded)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(generation: str, answers: Sequence[str]) -> float:
    """1.0 if the generation is one of the answers, else 0.0."""
    return float(any(normalized(generation) == normalized(answer) for answer in answers))


def contains(generation: str, answers: Sequence[str]) -> float:
    """1.0 if the words of an answer stand in the generation in their order, side by side, else 0.0. An answer without
    words is contained nowhere."""
    within = f" {normalized(generation)} "
    return float(any(words and f" {words} " in within for words in map(normalized, answers)))


def f1(generation: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words, against the answer that it is highest for; 0.0 to 1.0."""
    return max((_f1(normalized(generation).split(), normalized(answer).split()) for answer in answers), default=0.0)


def _f1(words: list[str], known: list[str]) -> float:
    if not words or not known:
        return float(words == known)
    shared = (Counter(words) & Counter(known)).total()
    return 2 * shared / (len(words) + len(known))


def is_refusal(generation: str) -> bool:
    """Whether the generation is empty or says that it gives no answer."""
    text = unicodedata.normalize("NFKC", generation).replace("’", "'").casefold()
    return not text.strip() or REFUSALS.search(" ".join(text.split())) is not None
