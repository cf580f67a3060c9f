"""What the judge of safety filters finds: each match once, where it is, whatever overlaps it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.constraints.safety.decoded import nested_strings, strings_of
from espalier.constraints.safety.judge import MAX_SHOWN, find, first_found, judge_safety
from espalier.constraints.safety.spec import Custom, Safety
from espalier.lexicon.files import WordFiles


def custom(*texts: str, is_regex: bool = False) -> Safety:
    return Safety(patterns=tuple(Custom(text, is_regex=is_regex) for text in texts))


def spans(spec: Safety, text: str) -> list[tuple[int, int]]:
    return [(match.start, match.end) for match in find(spec, text)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("aa", "aaaa", [(0, 2), (2, 4)]),
        ("aa", "aaaaa", [(0, 2), (2, 4)]),
        ("abab", "ababab", [(0, 4)]),
        ("aba", "abaaba", [(0, 3), (3, 6)]),
        ("aaa", "aaaaaa", [(0, 3), (3, 6)]),  # the second begins within a match that overlaps the first
        ("a", "aaa", [(0, 1), (1, 2), (2, 3)]),
        ("a", "", []),
        ("ab", "xab", [(1, 3)]),
    ],
)
def test_matches_of_one_pattern_do_not_overlap(pattern: str, text: str, expected: list[tuple[int, int]]) -> None:
    assert spans(custom(pattern), text) == expected
    assert spans(custom(pattern, is_regex=True), text) == expected


@given(st.text("ab", min_size=1, max_size=4), st.text("ab", max_size=14))
def test_they_are_those_that_a_plain_search_finds(pattern: str, text: str) -> None:
    expected = [match.span() for match in re.finditer(re.escape(pattern), text)]
    assert spans(custom(pattern), text) == expected


def test_matches_of_two_patterns_may_overlap_and_come_in_their_order() -> None:
    matches = find(custom("bc", "abc", "ab"), "xabcx")
    assert [(match.pattern, match.start, match.end) for match in matches] == [("ab", 1, 3), ("abc", 1, 4), ("bc", 2, 4)]


def test_places_are_in_characters_and_in_bytes() -> None:
    (match,) = find(custom("bad"), "é€bad")
    assert (match.start, match.end, match.start_byte, match.end_byte) == (2, 5, 5, 8)
    (match,) = find(custom("bad"), "xxbad")
    assert (match.start_byte, match.end_byte) == (2, 5)


@pytest.mark.parametrize(("from_byte", "first"), [(0, 2), (2, 2), (3, 8), (8, 8), (9, None)])
def test_the_first_one_from_a_byte_on(from_byte: int, first: int | None) -> None:
    assert first_found(custom("bad"), "é" + "bad" + "é" + "x" + "bad", from_byte=from_byte) == first


def test_what_may_never_end_is_not_searched_and_the_verdict_is_not_known() -> None:
    slow, text = custom("(a*)*b", is_regex=True), "a" * 40
    assert first_found(slow, text) is None
    verdict = judge_safety(slow, text, WordFiles([]))
    assert verdict.valid is None
    assert "may not finish" in verdict.errors[0]


def test_a_verdict_names_the_first_matches() -> None:
    verdict = judge_safety(custom("a"), "a" * (MAX_SHOWN + 3), WordFiles([]))
    assert verdict.valid is False
    assert verdict.errors == tuple(f"custom/a at character {number}" for number in range(MAX_SHOWN))
    assert judge_safety(custom("a"), "b", WordFiles([])).valid is True


def test_a_phrase_has_borders_where_it_begins_and_ends_with_letters() -> None:
    phrases = Safety(categories=["violence"], lists={"violence": ["cat", "cat food", "c++"]})
    assert spans(phrases, "cat") == [(0, 3)]
    assert spans(phrases, "concat cats cat_") == []
    assert spans(phrases, "cat food") == [(0, 8)], "the longest one counts"
    assert spans(phrases, "xc++") == []
    assert spans(phrases, "c++x") == [(0, 3)]


def test_a_match_in_a_decoded_string_says_so_and_stands_where_its_first_character_is_written() -> None:
    written = '{"a": "\\u0062ad"}'
    (match,) = find(custom("bad"), written)
    assert match.decoded
    assert match.text == "bad"
    assert written[match.start : match.end] == "\\u0062ad"
    assert not find(custom("bad"), '{"a": "bad"}')[0].decoded, "as it is written counts first"
    assert len(find(custom("bad"), '{"a": "bad"}')) == 1


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ('"a"', ["a", ""]),
        ('"a" b "c"', ["a", " b ", "c", ""]),
        ('"a\\"b"', ['a"b', ""]),
        ('"open', ["open"]),
        ("no quotes", []),
        ("'a'", ["a", ""]),
    ],
)
def test_a_string_goes_from_a_quotation_mark_to_the_next(text: str, strings: list[str]) -> None:
    nested = [string.text for string in nested_strings(text)]
    assert [string.text for string in strings_of(text)] == [*strings, *nested]


@given(st.text("a\\\"'ué", max_size=12))
def test_the_places_of_a_string_are_in_order_and_end_with_it(text: str) -> None:
    for string in strings_of(text):
        places = list(string.places)
        assert len(places) == len(string.text) + 1
        assert places == sorted(set(places))
        assert places[-1] <= len(text)
