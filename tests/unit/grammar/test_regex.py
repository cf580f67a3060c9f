"""Regular expressions to trees: judged by Python's `re`, for properties by the `regex` package.

`accepts` asks an independent recogniser what the tree matches, so nothing here looks at the shape of a tree.
"""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.errors import RegexError, UnsupportedError
from espalier.grammar.ast import NEVER, Grammar, Literal, Node, Position, Rule, postorder
from espalier.grammar.regex.parse import parse_regex
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser

KELVIN, LONG_S, CAPITAL_SHARP_S = "\u212a", "\u017f", "\u1e9e"
LINES = ["".join(letters) for length in range(6) for letters in itertools.product("a\n", repeat=length)]
"""All texts of up to five of `a` and line end."""


def recogniser(node: Node) -> Recogniser:
    return Recogniser(Grammar.of([Rule("root", node)]))


def agree(pattern: str, texts: list[str], flags: int = 0) -> None:
    judge, ours = re.compile(pattern, flags), recogniser(parse_regex(pattern))
    for text in texts:
        assert ours.accepts(text) == bool(judge.fullmatch(text)), (pattern, text)


# By name

CASES = [
    # pattern, texts that match, texts that do not
    ("", [""], ["a"]),
    ("a|", ["a", ""], ["aa"]),
    ("(|a|)b", ["b", "ab"], ["a"]),
    ("()", [""], ["a"]),
    ("ab*", ["a", "abb"], ["abab"]),
    ("(?:ab)+?", ["ab", "abab"], ["", "aba"]),
    ("a{2}b{,2}c{1,}d{0}", ["aac", "aabbccc"], ["ac", "aabbbc", "aacd"]),
    ("a{}b{x}c{,}", ["a{}b{x}", "a{}b{x}cc"], ["ab"]),
    ("{a", ["{a"], ["a"]),
    ("a]}", ["a]}"], ["a"]),
    (r"\(\.\-\/\ \é\_", ["(.-/ é_"], [""]),
    (r"\n\t\r\f\v\a", ["\n\t\r\f\v\a"], ["n"]),
    (r"\0\07\012\101\x41\u00e9\U0001F600\N{EM DASH}", ["\0\7\nAAé😀—"], [""]),
    (r"\0011", ["\x011"], ["\x01"]),
    (".", ["a", "é", "😀", "\r"], ["\n", ""]),
    ("(?s:.).", ["\na"], ["\n\n"]),
    ("[abc-e]", ["a", "d"], ["-", "f"]),
    ("[^a-c]", ["d", "\n", "😀"], ["b", ""]),
    ("[]a][^]a][a-][-a]", ["]b--"], ["]]--"]),
    (r"[\d\-\]\\\b\x41\101\u00e9x]+", ["1-]\\\bAAéx"], ["b"]),
    ("[[a&&b||~~-]", ["[", "&", "-", "~"], ["c"]),
    ("[a-z-9]", ["b", "-", "9"], ["5"]),
    (r"[\w-]", ["-", "é"], [" "]),
    (r"\d\D\s\S\w\W", ["٣a\u2003aé-"], ["1a a--"]),
    (r"(?a)\d\w\s", ["1a "], ["٣a ", "1é ", "1a\u2003"]),
    (r"(?a:\w)(?u:\w)\w", ["aéé"], ["ééé"]),
    (r"(?a)(?u:\w)", ["é"], []),
    ("(?i)k", ["k", "K", KELVIN], ["x"]),
    ("(?i)straße", ["STRAßE", f"{LONG_S}traẞe"], ["STRASSE"]),
    ("(?ai)k", ["k", "K"], [KELVIN]),
    ("(?i)[^k]", ["x"], ["k", "K", KELVIN]),
    ("(?i:a)b", ["Ab"], ["AB"]),
    ("(?i)a(?-i:b)c", ["AbC"], ["ABC"]),
    ("(?is-m:a.)", ["A\n"], ["A"]),
    ("(?i)(?s)a.", ["A\n"], []),
    ("(?x) a b # c\n [ ] \\ (?-x: )", ["ab   "], ["a b"]),
    ("(?x)a # one \\\n still\n+", ["aa"], []),
    ("(?x: a )b ", ["ab "], ["ab"]),
    ("a(?#comment \\) on)*", ["", "aa"], ["b"]),
    ("(?P<one>a)(?<two>b)(c)", ["abc"], []),
    (r"\p{L}\p{Lu}\pN\P{L}\p{^Lu}", ["éÉ5-a"], ["5É5-a", "éÉ5aa"]),
    (r"\p{Letter}\p{uppercase letter}\p{gc=Nd}\p{General_Category=LC}", ["éÉ5a"], [""]),
    (r"[\p{Lu}\d]\p{Any}\p{ASCII}\p{Assigned}[^\P{L}]", ["É\nazé"], ["éaaaa"]),
    (r"(?i)\p{Lu}(?-i:\p{Lu})", ["aA"], ["Aa"]),
    ("^abc$", ["abc"], ["abc\n", "\nabc"]),
    (r"\Aabc\Z|\Ab\z", ["abc", "b"], ["abc\n"]),
    ("^^a$$", ["a"], []),
    ("(^a|b)*$", ["abb", "bb", ""], ["ba"]),
    (r"a$\n", ["a\n"], ["a", "a\n\n"]),
    (r"a\Z\n?", ["a"], ["a\n"]),
    (r"a$\n$", ["a\n"], ["a"]),
    (r"x*\Ay", ["y"], ["xy"]),
    (r"(?m)^a$\n^b$", ["a\nb"], ["ab"]),
    (r"(?m)(?:^\w+$\n?)+", ["a\nb", "a\n", "ab"], ["", "\na", "a\n\nb"]),
    ("(?m)a^b|c$d", [], ["ab", "cd"]),
    (r"[\ud800-\udfffa]", ["a"], ["b"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), CASES)
def test_named_cases(pattern: str, good: list[str], bad: list[str]) -> None:
    ours = recogniser(parse_regex(pattern))
    assert [text for text in good if not ours.accepts(text)] == []
    assert [text for text in bad if ours.accepts(text)] == []
    if not re.search(r"\\[pPz]|\(\?<", pattern):  # the table itself, where re can read it
        with pytest.warns(FutureWarning) if "[[" in pattern else nullcontext():
            judge = re.compile(pattern)
        assert [text for text in good if not judge.fullmatch(text)] == []
        assert [text for text in bad if judge.fullmatch(text)] == []


FLAGS = {"i": re.IGNORECASE, "ms": re.MULTILINE | re.DOTALL, "x": re.VERBOSE, "ai": re.ASCII | re.IGNORECASE, "u": 0}


@pytest.mark.parametrize(("flags", "value"), FLAGS.items())
def test_flags_are_those_of_re(flags: str, value: int) -> None:
    pattern = r"^k .$ \n ^ \w"
    judge, ours = re.compile(pattern, value), recogniser(parse_regex(pattern, flags=flags))
    texts = [
        f"{k}{gap}{any_}{gap}\n{gap}{w}" for k in f"kK{KELVIN}" for gap in ("", " ") for any_ in "b\n" for w in "aé"
    ]
    assert [ours.accepts(text) for text in texts] == [bool(judge.fullmatch(text)) for text in texts]


@pytest.mark.parametrize(
    "pattern", ["a^b", r"a\Ab", r"a\Zb", "(?:a^)+", "[^\\s\\S]", r"[\ud800-\udbff]", "a$b", r"\p{Cs}"]
)
def test_what_can_never_match_is_never(pattern: str) -> None:
    assert parse_regex(pattern) is NEVER
    assert parse_regex(f"x|{pattern}") == Literal("x")


def test_places_are_those_of_the_pattern() -> None:
    places = {repr(node): node.position for node in postorder(parse_regex("(?x)ab\n [cd] | e+"))}
    assert places["Literal('ab')"] == Position(4, 1, 5)
    assert places["CharClass(((99, 100),), False)"] == Position(8, 2, 2)
    assert places["Repeat(1, None, Literal('e'))"] == Position(15, 2, 9)


# By re, at random

ATOMS = [
    *["a", "b", "k", "S", "\n", "é", KELVIN, "ß", "1", " ", "_", "{", "}", "]", "a{", r"\n", r"\-", r"\x6b", r"\141"],
    *[r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "[a-k]", "[^k]", r"[^\s\d]", r"[\wß]", "[]a]", "[^]a]", "[a-]"],
    *[
        "(?i:k)",
        "(?i:ß)",
        "(?i:[^k])",
        "(?i:[a-k])",
        r"(?a:\w)",
        "(?ia:[k-t])",
        "(?s:.)",
        "(?i-s:k.)",
        "(?x: a b #c\n)",
    ],
    *["^", "$", r"\A", r"\Z", "(?#x)", "()", ""],
]
ANCHORED = ["a", r"\n", ".", "(?s:.)", "[^a]", "^", "$", r"\A", r"\Z", "(?m:^)", "(?m:$)", ""]
COUNTS = ["*", "+", "?", "*?", "??", "{2}", "{2,}", "{1,3}", "{,2}", "{0}", "{3}"]
TEXTS = st.text(st.sampled_from(f"abkKsS\n{KELVIN}{LONG_S}éÉß{CAPITAL_SHARP_S}1 _-{{}}],"), max_size=6)


def patterns(atoms: list[str], size: int) -> st.SearchStrategy[str]:
    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda options: f"({'|'.join(options)})"),
            st.builds(lambda item, count: f"(?:{item}){count}", inner, st.sampled_from(COUNTS)),
            inner.map(lambda item: f"(?m:{item})"),
        )

    return st.recursive(st.sampled_from(atoms), grow, max_leaves=size)


def compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns(ATOMS, 6), st.lists(TEXTS, min_size=20, max_size=20))
def test_any_pattern_matches_what_re_matches(pattern: str, texts: list[str]) -> None:
    if compiled(pattern) is None:
        with pytest.raises(RegexError):
            parse_regex(pattern)
    else:
        agree(pattern, [text[:length] for text in texts for length in (1, 6)])


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns(ANCHORED, 5))
def test_anchors_anywhere_match_what_re_matches(pattern: str) -> None:
    try:
        node = parse_regex(pattern)
    except UnsupportedError:  # too many copies: a limit that test_regex_faults knows
        return
    if sum(1 for _ in postorder(node)) < 600:
        agree(pattern, LINES)


@pytest.mark.parametrize(
    "first",
    [
        item + count
        for item in ("(?:^)", "(?:$)", r"(?:\n|(?m:^))", "(?:a|(?m:$))", "(?:^a|a$)")
        for count in ("", *COUNTS)
    ],
)
def test_two_anchored_parts_in_a_row_match_what_re_matches(first: str) -> None:
    for last in (
        "^a",
        r"$\n",
        r"\Z\n?",
        r"(?m:^)\n?",
        r"(?m:$)\n*",
        r"(?m:^a$\n?){2}",
        r"a*\n?",
        r"(?:$|\n){2,3}",
        r"(?:\n\Z|a$){1,2}",
    ):
        agree(first + last, LINES)
        agree(f"(?:{first}{last})*", LINES)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(st.sampled_from("ab^$.|()[]{}*+?\\,-12:#= \nPpdwsDWS<>ixmu!"), max_size=12))
def test_any_text_is_a_pattern_of_re_or_refused(pattern: str) -> None:
    try:
        node = parse_regex(pattern)
    except (RegexError, UnsupportedError):
        return
    beyond = re.search(r"\\[pPz]|\(\?<", pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **more: None)
        judge = compiled(pattern)
    assert judge or beyond
    if judge and not re.search(r"[*+}][^|]*[*+}]", pattern):  # re may take for ever on two loops
        ours = recogniser(node)
        for text in ("", "a", "b", "ab", "aab", "-", "1", "\n", "a\n", " ", "p", "{", "^"):
            assert ours.accepts(text) == bool(judge.fullmatch(text)), text
