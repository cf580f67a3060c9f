"""Strings: lengths, patterns and formats, against `re` and the standard library."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import uuid
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.automata.languages.algebra import language
from espalier.errors import UnsupportedError
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.form import String
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.strings import is_finite
from espalier.schema.patterns.ecma import found
from espalier.schema.patterns.languages import read, searched
from tests.examples import examples
from tests.unit.schema.hand_shapes import Accepts, Hand, accepts, dumps, fits_string, one

NONE = Hand({})
SHORT = ["".join(letters) for n in range(5) for letters in product('ab1-"\n', repeat=n)]
ODD = [
    "",
    "é",
    "日本",
    "😀",
    "\u2028",
    "\ufeff",
    "\x00",
    "\x1f",
    "\x7f",
    "\\",
    "/",
    "\t \r\n",
    "٣",
    "ª",
    "_",
    "Z9",
    "\x85",
    "\x1c",
]


def check(case: String, texts: list[str]) -> int:
    """How many are accepted; none that should not be."""
    test = accepts(one(case))
    count = 0
    for text in texts:
        got, wanted = test(dumps(text)), fits_string(NONE, case, text)
        assert wanted or not got, (case, text)
        count += got
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high"), [(0, None), (1, None), (0, 0), (2, 4), (3, 3), (0, 1500), (1200, 2600), (999, None)]
)
def test_lengths_count_code_points(low: int, high: int | None) -> None:
    test = accepts(one(String(min_length=low, max_length=high)))
    sizes = {
        0,
        1,
        2,
        3,
        4,
        5,
        low - 1,
        low,
        low + 1,
        *([high - 1, high, high + 1] if high is not None else []),
        998,
        1700,
    }
    for size in sorted(n for n in sizes if n >= 0):
        for char in ("a", "😀", '"', "\x1f"):
            assert test(dumps(char * size)) == (low <= size and (high is None or size <= high)), (size, char)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_string_has_a_spelling_and_it_is_the_one_of_json_dumps(text: str) -> None:
    assert ANY(dumps(text))


ANY = accepts(one(String()))


@pytest.mark.parametrize(
    "text", ['"\\u0061"', '"\\/"', '"\n"', '"\x00"', '"\\u000a"', '"\\u001F"', '"\\ud83d\\ude00"', '"', "a", '""x']
)
def test_other_spellings_are_none(text: str) -> None:
    assert not ANY(text)


PATTERNS = [
    "^a",
    "b$",
    "^[ab]+$",
    "a|b",
    "^(ab)*$",
    "1-?1",
    "^.{2}$",
    r"\d",
    r"^\d+$",
    r"\w\W",
    r"^\S+$",
    r"\s",
    r"[^\d]",
    r"^[\w-]*$",
    r"^[^\s-]+$",
    "^$",
    "",
    r"\.",
    r"^a|b$",
    "a{2,3}",
    "(?:a)(b)?",
    r"\u0061",
    r"^[\s\S]*$",
    r"^\D*$",
    "^(?!a)",
    "^(?=.*1)[a-b1]*$",
    "^(?!.*--).*$",
    r"^\x61\t?",
    "^(?!(a|b)$)[ab1]+$",
    "(?i)A",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_ecma_262(pattern: str) -> None:
    test = accepts(one(String(patterns=(pattern,))))
    for text in SHORT + ODD:
        assert test(dumps(text)) == found(pattern, text), text


@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if pattern not in ("", r"^[\s\S]*$")])
def test_a_pattern_that_must_not_match(pattern: str) -> None:
    test = accepts(one(String(not_patterns=(pattern,))))
    for text in SHORT + ODD:
        assert test(dumps(text)) != found(pattern, text), text


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_demands_together(data: st.DataObject) -> None:
    some = st.sampled_from([p for p in PATTERNS if "(?!" not in p])
    case = String(
        min_length=data.draw(st.integers(0, 2)),
        max_length=data.draw(st.none() | st.integers(2, 4)),
        patterns=tuple(data.draw(st.lists(some, max_size=2))),
        not_patterns=tuple(data.draw(st.lists(some, max_size=1))),
        excluded=tuple(data.draw(st.lists(st.sampled_from(SHORT[:60]), max_size=4))),
    )
    texts = SHORT[:400] + ODD
    possible = [text for text in SHORT if text.isprintable() and fits_string(NONE, case, text)]
    if not possible:
        return
    assert check(case, texts + possible[:50]) >= len(set(texts) & set(possible))
    test = accepts(one(case))
    assert all(test(dumps(text)) for text in possible)


def test_digits_are_ascii_in_both_directions() -> None:
    """ECMA-262 is the reading, also where `re`, which takes the digits of all scripts, would judge otherwise."""
    assert not accepts(one(String(patterns=(r"^\d$",))))('"٣"')
    assert accepts(one(String(not_patterns=(r"\d",))))('"٣"')
    assert accepts(one(String(patterns=(r"^\D$",))))('"٣"')
    assert accepts(one(String(patterns=(r"^[^\d]$",))))('"٣"')


def test_a_dollar_is_the_end_and_not_before_a_last_line_end() -> None:
    assert not accepts(one(String(patterns=("a$",))))('"a\\n"')
    assert accepts(one(String(not_patterns=("a$",))))('"a\\n"')


@pytest.mark.parametrize(("pattern", "offset"), [(r"ab(?>c)", 2), (r"ab(?(1)c)", 2), ("(?m)^a", 0), ("a[]", 1)])
def test_what_cannot_be_had_is_a_gap_with_pattern_and_offset(pattern: str, offset: int) -> None:
    found = convert(one(String(patterns=(pattern,), max_length=3)))
    ((pointer, keyword, text),) = found.gaps
    assert (pointer, keyword) == ("", "pattern")
    assert f"offset {offset}" in text
    assert f"pattern {pattern!r}" in text
    test = Accepts(found)
    assert test('"abc"')
    assert not test('"abcd"')


def test_an_unsupported_pattern_raises_with_its_offset_where_it_is_asked_for() -> None:
    with pytest.raises(UnsupportedError, match="offset 1"):
        searched("a(?=b)")


@pytest.mark.slow
def test_a_pattern_that_needs_too_many_states_is_a_gap() -> None:
    found = convert(one(String(patterns=("a.{30}b",), max_length=100)))
    assert [gap.keyword for gap in found.gaps] == ["pattern"]


def test_look_ahead_is_taken_apart_only_where_it_is_at_the_start() -> None:
    assert read("^(?=a)(?!b)c").parts == (("^(?:a)", True), ("^(?:b)", False), ("^c", True))
    assert read("^(?=a)b|c").parts == (("^(?=a)b|c", True),)
    assert read("(?=a)b").parts == (("(?=a)b", True),)
    assert read("^(?=[)])(\\))").parts[0] == ("^(?:[)])", True)


# Formats


def spelled(name: str) -> Accepts:
    return accepts(one(String(formats=(name,))))


def test_dates_are_those_of_the_calendar() -> None:
    test = spelled("date")
    random = Random(3)
    days = [(y, m, d) for y in (1, 4, 1900, 1999, 2000, 2023, 2024, 2100, 9999) for m in range(14) for d in range(33)]
    days += [(random.randint(0, 9999), random.randint(0, 13), random.randint(0, 32)) for _ in range(2000)]
    for year, month, day in days:
        text = f"{year:04}-{month:02}-{day:02}"
        try:
            dt.date.fromisoformat(text)
            wanted = True
        except ValueError:
            wanted = False
        assert test(f'"{text}"') == wanted, text


GOOD = {
    "time": ["12:00:00Z", "23:59:59.123+05:30"],
    "date-time": ["2024-02-29T12:00:00Z", "1985-04-12T23:20:50.52-08:00"],
    "duration": ["P1Y2M3DT4H5M6S", "PT1H", "P2W", "P1M", "PT36H", "P1DT12H"],
    "email": ["a@b.com", "joe.bloggs+x@example.com"],
    "hostname": ["example.com", "a-b.c1", "localhost"],
    "ipv4": ["127.0.0.1", "255.255.255.255", "0.0.0.0"],
    "ipv6": [
        "::1",
        "::",
        "1::",
        "1:2:3:4:5:6:7:8",
        "::ffff:1.2.3.4",
        "fe80::a:b",
        "1::8",
        "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8",
    ],
    "uuid": ["2EB8AA08-aa98-11ea-b4aa-73b441d16380"],
    "uri": ["http://example.com/a?b#c", "mailto:a@b.c", "urn:isbn:1", "https://u:p@h:80/%20"],
    "uri-reference": ["/a/b", "", "a/b?c", "#x", "//h/p", "http://x"],
    "json-pointer": ["", "/a~1b/~0", "/"],
    "relative-json-pointer": ["0", "1/a", "2#"],
}
BAD = {
    "time": ["12:00:00", "24:00:00Z", "12:60:00Z", "12:00Z"],
    "date-time": ["2023-02-29T12:00:00Z", "2024-01-01 12:00:00Z", "2024-01-01T12:00:00"],
    "duration": ["P", "PT", "P1", "1Y", "P1YT", "P1Y2W", "P1S", "P1D2H", "P1Y1D"],
    "email": ["a", "@b", "a@", "a..b@c", ".a@b", "a@b..c", "a b@c"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", ".a", "a."],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"],
    "ipv6": [
        ":::",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "::1::",
        "12345::",
        "1:2:3:4:5:6:7:8::",
        "::1.2.3",
        "1::2:3:4:5:6:7:8",
    ],
    "uuid": [
        "2eb8aa08aa9811eab4aa73b441d16380",
        "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
        "g" * 8 + "-aa98-11ea-b4aa-73b441d16380",
    ],
    "uri": ["//a", "a b:c", "http://a b", "1:x", ":x", "http://[", "%zz:"],
    "uri-reference": ["a b", "\\", "%zz", "http://a:b:c"],
    "json-pointer": ["a", "/~", "/~2"],
    "relative-json-pointer": ["", "/a", "01", "-1"],
}


@pytest.mark.parametrize("name", GOOD)
def test_samples_of_formats(name: str) -> None:
    test = spelled(name)
    assert [text for text in GOOD[name] if not test(dumps(text))] == []
    assert [text for text in BAD[name] if test(dumps(text))] == []


@settings(max_examples=examples(200))
@given(st.ip_addresses(v=6), st.ip_addresses(v=4), st.uuids())
def test_addresses_of_the_standard_library(
    six: ipaddress.IPv6Address, four: ipaddress.IPv4Address, name: uuid.UUID
) -> None:
    assert SIX(f'"{six}"')
    assert SIX(f'"{six.exploded}"')
    assert FOUR(f'"{four}"')
    assert UUIDS(f'"{name}"')


SIX, FOUR, UUIDS = spelled("ipv6"), spelled("ipv4"), spelled("uuid")


def test_an_ipv6_address_is_one_for_the_standard_library() -> None:
    random = Random(9)
    for _ in range(5000):
        text = "".join(
            random.choice(["1", "ab", ":", ":", "::", "1.2.3.4", "0:"]) for _ in range(random.randint(1, 12))
        )
        if SIX(f'"{text}"'):
            ipaddress.IPv6Address(text)


def test_an_unknown_format_is_a_gap() -> None:
    assert [gap.keyword for gap in convert(one(String(formats=("colour",)))).gaps] == ["format"]


def test_a_format_with_a_length() -> None:
    test = accepts(one(String(formats=("email",), max_length=6)))
    assert test('"a@b.co"')
    assert not test('"a@b.com"')


@pytest.mark.slow
def test_a_length_that_is_too_much_next_to_a_pattern_is_narrowed() -> None:
    found = convert(one(String(formats=("uri",), max_length=2048)))
    assert not found.gaps
    assert "maxLength" in [note.keyword for note in found.notes]
    test = Accepts(found)
    assert test('"http://example.com/"')
    assert not test(dumps("http://example.com/" + "a" * 2030))


def test_is_finite() -> None:
    for pattern, wanted in (("a{0,9}", True), ("a*", False), ("(ab|c)?d", True), ("(a|b+)c", False), ("", True)):
        dfa = language(parse_regex(pattern))
        assert dfa is not None
        assert is_finite(dfa) == wanted


def test_excluded_strings() -> None:
    words = (*tuple(f"name{i}é" for i in range(300)), "", '"')
    test = accepts(one(String(excluded=words)))
    assert not any(test(dumps(word)) for word in words)
    assert all(test(dumps(word + "x")) and json.loads(dumps(word)) == word for word in words)
