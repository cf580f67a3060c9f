"""The sets that regular expressions name, over every code point: as in `re`, and for properties as in `regex`."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
import regex as second

from espalier.grammar.ast import CharClass, Literal, Node
from espalier.grammar.ranges import contains
from espalier.grammar.regex.classes import CATEGORIES, category, shorthand
from espalier.grammar.regex.parse import parse_regex

EVERY = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]
ANY_TEXT = "".join(EVERY)


def members(node: Node) -> set[str]:
    """The code points of a tree that matches single ones, as a class or as a literal."""
    if isinstance(node, Literal):
        return {node.text}
    assert isinstance(node, CharClass)
    return {chr(point) for low, high in node.scalars() for point in range(low, high + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", "dswDSW")
@pytest.mark.parametrize("mode", ["", "(?a)"])
def test_shorthands_are_those_of_re(kind: str, mode: str) -> None:
    assert members(parse_regex(rf"{mode}\{kind}")) == set(re.findall(rf"{mode}\{kind}", ANY_TEXT))


@pytest.mark.slow
def test_shorthands_are_those_of_str() -> None:
    digits, spaces, words = (shorthand(kind, ascii_only=False) for kind in "dsw")
    for char in EVERY:
        assert contains(digits, ord(char)) == char.isdecimal()
        assert contains(spaces, ord(char)) == char.isspace()
        assert contains(words, ord(char)) == (char.isalnum() or char == "_")


CASED = [char for char in EVERY if char.lower() != char or char.upper() != char]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["(?i)", "(?ai)"])
def test_ignoring_case_is_that_of_re_for_every_pair(mode: str) -> None:
    text = "".join(CASED)
    for char in CASED:
        assert members(parse_regex(mode + char)) == set(re.findall(mode + char, text)), char
    rest = f"{mode}[^{re.escape(text)}]"
    assert members(parse_regex(rest)) == set(re.findall(rest, ANY_TEXT)) == set(EVERY) - set(CASED)


@pytest.mark.slow
def test_ignoring_case_in_classes_is_that_of_re() -> None:
    text = "".join(CASED)
    for char in CASED:
        if char <= "\uffff":
            assert members(parse_regex(f"(?i)[{char}0]")) == {"0", *re.findall(f"(?i)[{char}0]", text)}, char
    assert set(EVERY) - members(parse_regex("(?i)[^k\u0130]")) == set("kK\u212aiI\u0130\u0131")
    for pair in [
        "a-z",
        "A-Z",
        "Z-a",
        "à-ý",
        "α-ω",
        "А-Я",
        "\U00010400-\U00010410",
        "\ufb00-\U00010430",
        "\u0130-\u0131",
    ]:
        assert members(parse_regex(f"(?i)[{pair}]")) == set(re.findall(f"(?i)[{pair}]", ANY_TEXT))


def test_where_re_forgets_a_letter_in_a_class_we_do_not() -> None:
    assert members(parse_regex("(?i)[q\U00010400]")) == {"q", "Q", "\U00010400", "\U00010428"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CATEGORIES)
def test_categories_are_those_of_unicode(name: str) -> None:
    kinds = {"Lu", "Ll", "Lt"} if name == "LC" else {name}
    ranges = category(name)
    assert ranges is not None
    assert ranges == category(CATEGORIES[name])
    assert ranges == category(CATEGORIES[name].upper().replace("_", " "))
    ours = {char for low, high in ranges for char in map(chr, range(low, high + 1))}
    assert ours == {char for char in EVERY if unicodedata.category(char).startswith(tuple(kinds))}


@pytest.mark.slow
def test_categories_are_those_of_regex_but_for_the_version_of_unicode() -> None:
    known = [char for char in EVERY if unicodedata.category(char) != "Cn"]
    text = "".join(known)
    moved: set[str] = set()
    for name in CATEGORIES:
        ours = {chr(point) for low, high in category(name) or () for point in range(low, high + 1)}
        moved |= (ours & set(known)) ^ set(second.findall(rf"\p{{{name}}}", text))
    assert len(moved) < 30  # of 280,000: Unicode has changed its mind about so few between the two versions
