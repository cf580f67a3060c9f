"""Operations on regular languages, against sets of short texts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.automata.languages.algebra import both, completed, either, every_text, language, of_length, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import GrammarError, LimitExceeded
from espalier.grammar.ast import NEVER, RuleRef
from espalier.grammar.regex.parse import parse_regex

TEXTS = ["".join(letters) for n in range(5) for letters in product("abé", repeat=n)] + ["😀", "a😀b", "日本"]
EXPRESSIONS = ["a*", "(ab)*", "a|b", "", ".*", "é?b", "[^a]*", "a{2,3}", "(a|é)*b", ".{2}", "日.", "b+", "[^é]"]
some = st.sampled_from(EXPRESSIONS)


def texts_of(dfa: Dfa | None) -> set[str]:
    return {text for text in TEXTS if dfa is not None and dfa.accepts(text.encode())}


@given(some, some)
def test_operations_are_those_on_sets(one: str, other: str) -> None:
    a, b = language(parse_regex(one)), language(parse_regex(other))
    assert texts_of(both(a, b)) == texts_of(a) & texts_of(b)
    assert texts_of(either(a, b)) == texts_of(a) | texts_of(b)
    assert texts_of(without(a, b)) == texts_of(a) - texts_of(b)
    assert texts_of(without(every_text(), a)) == set(TEXTS) - texts_of(a)


@given(some)
def test_the_empty_language_is_none(expression: str) -> None:
    found = language(parse_regex(expression))
    assert language(NEVER) is None
    assert both(found, None) is None
    assert without(found, found) is None
    assert without(None, found) is None
    assert either(None, found) is found
    assert without(found, None) is found


@pytest.mark.parametrize("low", range(4))
@pytest.mark.parametrize("high", [None, 0, 1, 2, 3, 4])
def test_lengths_count_code_points(low: int, high: int | None) -> None:
    if high is not None and high < low:
        return
    found = of_length(low, high)
    assert texts_of(found) == {text for text in TEXTS if low <= len(text) and (high is None or len(text) <= high)}
    assert not found.accepts(b"\xc3")
    assert not found.accepts(b"\xff")
    assert not found.accepts("😀".encode()[:3])


def test_a_complement_is_of_texts_only_once_it_is_intersected() -> None:
    rest = completed(every_text())
    assert rest.accepts(b"\xff")
    assert both(every_text(), rest) is None


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="states"):
        language(parse_regex(".*a.{12}"), max_states=1000)
    with pytest.raises(LimitExceeded):
        both(of_length(0, 1000), of_length(0, 2000), max_states=100)
    with pytest.raises(GrammarError):
        language(RuleRef("x"))
