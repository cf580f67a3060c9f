"""Refused patterns and their offsets, the cost of large patterns, and the conversion to GBNF text."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.errors import RegexError, UnsupportedError
from espalier.grammar.ast import NEVER, CharClass, Grammar, Literal, Repeat, Rule, postorder
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.regex import anchors as regex_anchors
from espalier.grammar.regex.parse import MAX_COUNT, MAX_PLACED, parse_regex
from espalier.grammar.rewrite import portable
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser

OURS = re.compile("surrogate|too large|repeats up to|unknown flag")
"""Faults that re does not see: limits, what no text holds, a flag that it once had."""
FAULTS = [
    ("a(b", 1, "never closed"),
    ("ab)", 2, "unexpected `)`"),
    ("x[ab", 1, "class is never closed"),
    ("x[", 1, "class is never closed"),
    ("x[]", 1, "class is never closed"),
    ("x[a-", 1, "class is never closed"),
    ("[b-a]", 1, "no range"),
    (r"[\d-z]", 1, "no range"),
    (r"[a-\w]", 1, "no range"),
    ("a(?#b", 1, "comment is never closed"),
    ("*a", 0, "nothing that `*`"),
    ("a|+", 2, "nothing that `+`"),
    ("(?)", 0, "no known group"),
    ("(?:?)", 3, "nothing that `?`"),
    ("{2}", 0, "nothing that `{2}`"),
    ("^*", 1, "nothing that"),
    ("a**", 2, "after a repetition"),
    ("a{2}{3}", 4, "after a repetition"),
    ("a*??", 3, "after a repetition"),
    ("a{3,2}", 1, "reversed"),
    ("a{1000001}", 1, "too large"),
    (f"a{{{'9' * 5000}}}", 1, "too large"),
    ("(?:a{2000}){501}", 11, "repeats up to 1,002,000 times"),
    ("a\\", 1, "lone"),
    ("(?x)a#\\", 6, "lone"),
    (r"a\q", 1, r"unknown escape `\q`"),
    (r"[\q]", 1, "unknown escape"),
    (r"\x4", 0, "2 hexadecimal digits"),
    (r"\u12", 0, "4 hexadecimal digits"),
    (r"\U1234567", 0, "8 hexadecimal digits"),
    (r"\U00110000", 0, "last code point"),
    (r"\N{NO SUCH}", 0, "character name"),
    (r"\N", 0, "character name"),
    (r"\777", 0, r"past \377"),
    (r"[\400]", 1, r"past \377"),
    (r"a\1", 1, "no group 1"),
    (r"[\8]", 1, "unknown escape"),
    (r"a\ud83d\ude00", 1, "surrogate"),
    (r"[a\ud83d]", 2, "surrogate"),
    ("a\ud83d", 1, "surrogate"),
    (r"\p", 0, "property has a name"),
    (r"\p{Lu", 0, "property has a name"),
    ("a(?P<1>b)", 5, "group name"),
    ("a(?P<b", 5, "group name"),
    ("(?P<a>b)(?P<a>c)", 12, "two groups"),
    ("(?Pa)", 0, "no known group"),
    ("(?|a)", 0, "no known group"),
    ("(?", 0, "no known group"),
    ("(?iq)", 3, "unknown flag"),
    ("(?t)", 2, "unknown flag"),
    ("a(?i)b", 1, "at its start"),
    ("(?:(?i)b)", 3, "at its start"),
    ("(?i", 3, "flags end with"),
    ("(?-i)", 4, "flags end with"),
    ("(?i-)", 2, "cannot be"),
    ("(?i-i:a)", 2, "cannot be"),
    ("(?au)", 2, "cannot be"),
    ("(?-a:b)", 2, "cannot be"),
    ("(?a)(?u)b", 4, "a and u together"),
]
REFUSED = [
    (r"(a)\1", 3, "back-reference"),
    (r"(?P<n>a)(?P=n)", 8, "back-reference"),
    (r"\k<n>", 0, "back-reference"),
    ("a(?=b)", 1, "look-ahead"),
    ("a(?!b)", 1, "negative look-ahead"),
    ("(?<=a)b", 0, "look-behind"),
    ("(?<!a)b", 0, "negative look-behind"),
    (r"a\b", 1, "word boundary"),
    (r"a\B", 1, "word boundary"),
    ("(?>a)", 0, "atomic group"),
    ("a*+", 1, "possessive `*+`"),
    ("a{2}+", 1, "possessive"),
    ("(a)(?(1)b)", 3, "conditional"),
    ("(?R)", 0, "recursion"),
    ("(?1)", 0, "recursion"),
    ("(?-1)", 0, "recursion"),
    ("(?&a)", 0, "recursion"),
    ("(?P>a)", 0, "recursion"),
    ("[x[:alpha:]]", 2, "POSIX class [:alpha:]"),
    ("[[=a=]]", 1, "POSIX class"),
    (r"\p{Greek}", 0, "property {Greek}"),
    (r"[\p{Script=Latin}]", 1, "property"),
    ("(?L)a", 2, "flag L"),
    ("a|(?m:(?:^c|$)b){101}", 16, "anchors in this many places"),
]


@pytest.mark.parametrize(("pattern", "offset", "message"), FAULTS)
def test_each_fault_is_named_with_its_offset_and_a_hint(pattern: str, offset: int, message: str) -> None:
    with pytest.raises(RegexError) as caught:
        parse_regex(pattern)
    assert message in caught.value.message
    assert caught.value.offset == offset
    assert caught.value.pattern == pattern
    assert caught.value.hint
    if not OURS.search(message):
        with pytest.raises((re.error, ValueError)):
            re.compile(pattern)


@pytest.mark.parametrize(("pattern", "offset", "message"), REFUSED)
def test_each_thing_that_cannot_be_had_exactly_is_refused(pattern: str, offset: int, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_regex(pattern)
    assert message in caught.value.message
    assert caught.value.hint
    assert caught.value.field == "regex"
    assert f"at offset {offset}: " in caught.value.message


@pytest.mark.parametrize("flags", ["q", "L", "au"])
def test_flags_that_cannot_be_are_refused(flags: str) -> None:
    with pytest.raises(RegexError, match="cannot be") as caught:
        parse_regex("a", flags=flags)
    assert caught.value.hint


def test_two_flags_that_exclude_each_other_are_refused_across_pattern_and_argument() -> None:
    with pytest.raises(RegexError, match="a and u together"):
        parse_regex("(?u)a", flags="a")


# Size

DEEP = 10_000


def size(pattern: str) -> int:
    return sum(1 for _ in postorder(parse_regex(pattern)))


@pytest.mark.slow
def test_ten_thousand_groups_inside_one_another_work() -> None:
    assert parse_regex("(" * DEEP + "a" + ")" * DEEP) == Literal("a")
    assert size("(?:" * DEEP + "a" + ")*" * DEEP) == DEEP + 1
    assert size("(a|" * DEEP + ")" * DEEP) == 2 * DEEP + 1
    assert size("(" * DEEP + "^a" + "b)" * DEEP) == 2 * DEEP - 1
    assert size("(?m)" + "(" * DEEP + "^a$" + r"\n)" * DEEP) <= 2 * DEEP + 2
    with pytest.raises(RegexError, match="never closed") as caught:
        parse_regex("(" * DEEP + "a")
    assert caught.value.offset == DEEP - 1


@pytest.mark.slow
def test_long_patterns_make_trees_of_their_size() -> None:
    assert size("a" * 1_000_000) == 1
    assert size("ab*" * 10_000) == 30_001
    assert size("|".join(f"no{i}" for i in range(10_000))) == 10_001
    assert size("(?m)" + "^.*$\n" * 1_000) < 6_000
    assert size("(?:^)?" * 5_000) == 1


@pytest.mark.parametrize("pattern", ["^" * 1000, "a" + "$" * 1000, r"(?m:\A^$\Z)" * 200])
def test_anchors_in_a_row_are_combined_once(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them took a tenth of a second, since each was combined with the rest of the pattern anew."""
    combined = []
    combine = regex_anchors.Contexts._combined
    monkeypatch.setattr(
        regex_anchors.Contexts,
        "_combined",
        lambda contexts, *pieces: (combined.append(pieces), combine(contexts, *pieces))[1],
    )
    assert parse_regex(pattern) == parse_regex(pattern[: len(pattern) // 2])
    assert 0 < len(combined) < 50


def test_copies_for_anchors_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for pattern in ("(?:" * 300 + "^a" + "b)*" * 300, "(?m)" + r"\n?" * 3_000 + "^", "(?:^a|b|c$)?" * 500):
        with pytest.raises(UnsupportedError, match="anchors in this many places") as caught:
            parse_regex(pattern)
        assert caught.value.hint
    monkeypatch.setattr(regex_anchors, "MAX_UNROLLED", 3)
    pattern = "(?m)(?:^a$|\\n){%d}"
    assert parse_regex(pattern % 3) is not NEVER
    with pytest.raises(UnsupportedError):
        parse_regex(pattern % 4)


def test_counts_go_up_to_the_limit() -> None:
    assert parse_regex(f"a{{{MAX_COUNT}}}") == Repeat(Literal("a"), MAX_COUNT, MAX_COUNT)
    assert parse_regex("(?:a{1000}){1000}") == Repeat(Repeat(Literal("a"), 1000, 1000), 1000, 1000)
    assert parse_regex("(?:^a|b){1000}") is not NEVER


def test_many_large_classes_share_their_node() -> None:
    nodes = [node for node in postorder(parse_regex(r"\w" * (MAX_PLACED + 50))) if isinstance(node, CharClass)]
    assert len(nodes) == MAX_PLACED + 50
    assert sum(node.position is not None for node in nodes) == MAX_PLACED
    assert len({id(node) for node in nodes}) == MAX_PLACED + 1
    assert len(set(nodes)) == 1


# GBNF


def as_gbnf(pattern: str) -> str:
    return print_grammar(portable(Grammar.of([Rule("root", parse_regex(pattern))])))


@pytest.mark.parametrize(
    "pattern",
    [
        "a|b*",
        "(a?)*b",
        "(|a)+",
        r"^[\]\-^a]+$",
        r"(?i)k\n\t\"\\\0",
        "(?s).{2,3}",
        "[^a]",
        "",
        "(?m)(^a$\n?)*",
        "((a{2}){2}b{,3})?",
        "😀|é+",
    ],
)
def test_the_grammar_matches_what_the_pattern_does(pattern: str) -> None:
    grammar = parse(as_gbnf(pattern))
    ours, theirs = Recogniser(grammar), re.compile(pattern)
    for text in (
        "",
        "a",
        "b",
        "ab",
        "aab",
        "bb",
        "aa",
        "aaaab",
        "a\n",
        "a\na",
        'k\n\t"\\\0',
        'K\n\t"\\\0',
        "]-^",
        "😀",
        "éé",
    ):
        assert ours.accepts(text) == bool(theirs.fullmatch(text)), text


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(["a", "[^b]", "(?:", ")", ")*", ")?", "|", "b+", r"\n", ".", "^", "$", "(?i:k)"]), max_size=8
    )
)
def test_the_grammar_of_any_pattern_reads_back_as_the_same_language(parts: list[str]) -> None:
    pattern = "".join(parts)
    try:
        node = parse_regex(pattern)
    except RegexError:
        return
    if node is NEVER:
        return
    back, ours = Recogniser(parse(as_gbnf(pattern))), Recogniser(Grammar.of([Rule("root", node)]))
    for text in ("", "a", "b", "k", "\u212a", "ab", "ba", "aa", "bb", "abk", "a\n", "\n", "\na", "aab"):
        assert back.accepts(text) == ours.accepts(text), text
