"""The one reading of a pattern is that of ECMA-262 with the flag u: the search in `re` and the automaton, both against
an engine of JavaScript, and against a table of what ECMA-262 says of each class."""

from __future__ import annotations

import json
import shutil
import subprocess
from random import Random

import pytest

from espalier.errors import EspalierError, RegexError
from espalier.schema.patterns.ecma import compiled, found, is_pattern
from espalier.schema.patterns.languages import read
from espalier.schema.patterns.translate import signs_read_otherwise
from tests.examples import examples
from tests.fuzz.schema.schemas import AssertedPatterns

CHARS = [
    "a",
    "é",
    "\n",
    "\r",
    "\u2028",
    "ſ",
    "\u212a",
    "٣",
    "\xa0",
    "\ufeff",
    "\x1c",
    "\x85",
    "😀",
    "7",
    "_",
    " ",
    "\x00",
    "\x08",
    "\x01",
    "\x0b",
    "-",
    "/",
]
TEXTS = ["", *CHARS, *("a" + char for char in CHARS), *(char + "a" for char in CHARS), "\na", "éaé", "7٣", "aa\n"]
ATOMS = [
    r"\w",
    r"\W",
    r"\d",
    r"\D",
    r"\s",
    r"\S",
    ".",
    r"[\w]",
    r"[^\w]",
    r"[^\s]",
    r"[\s\S]",
    r"[\W\d]",
    r"[^\W]",
    r"[\w\u00e9]",
    r"[a-\u{10ffff}]",
    r"\u{1f600}",
    r"\ud83d\ude00",
    "[^]",
    r"\b",
    r"\B",
    "$",
    "^",
    r"\p{L}",
    r"\P{L}",
    r"[\p{L}]",
    r"[\b]",
    r"\ca",
    r"\0",
    r"\v",
    r"\/",
    r"(?=\w)",
    r"(?!\w)",
    r"(?<=\w)",
    r"(?<!\d)",
    "(?!$)",
    r"[\d-]",
    r"[-\d]",
    "[a.$]",
]
FORMS = ["{}", "^{}$", "^{}", "{}$", "^{}+$", "^a?{}", "a{}", "{}a$", "^(?:{}|b)$", "^(?={})", "^(?!{})", r"(a|{})\1"]
GROUPS = [r"^(?:(a)|b)\1$", r"^(a)?\1-$", r"^(?<q>a|b)\k<q>$", r"^(?:(?<q>a)|-)\k<q>$"]

NODE = """const [patterns, texts] = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(patterns.map(pattern => {
  try { const search = new RegExp(pattern, "u"); return texts.map(text => search.test(text)); } catch { return null; }
})))"""

MATCHED = {
    # By class: those of CHARS that it matches, as ECMA-262 says.
    r"\d": "7",
    r"\w": "a7_",
    r"\s": "\n\r\u2028\xa0\ufeff \x0b",
}


def searched_by_node(patterns: list[str], texts: list[str]) -> list[list[bool] | None]:
    """By pattern: in which of the texts it matches; None for a pattern that is none with the flag u."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here")
    asked = json.dumps([patterns, texts])
    done = subprocess.run([node, "-e", NODE], input=asked, capture_output=True, text=True, check=True)
    rows: list[list[bool] | None] = json.loads(done.stdout)
    return rows


@pytest.mark.slow
def test_every_sign_in_every_form_as_javascript_reads_it() -> None:
    patterns = [form.format(atom) for form in FORMS for atom in ATOMS] + GROUPS
    compared = automata = 0
    for pattern, row in zip(patterns, searched_by_node(patterns, TEXTS), strict=True):
        if row is None:  # `u` forbids to repeat an assertion
            continue
        try:
            language = read(pattern).dfa()
            is_regular = True
        except EspalierError:  # a reference to a group with too many texts, or inside of one
            assert "\\1" in pattern or "\\k" in pattern
            is_regular = False
        for text, wanted in zip(TEXTS, row, strict=True):
            compared += 1
            assert found(pattern, text) == wanted, (pattern, text)
            if is_regular:
                automata += 1
                assert (language is not None and language.accepts(text.encode())) == wanted, (pattern, text)
    assert compared > 25_000
    assert automata > 24_000


@pytest.mark.slow
def test_random_patterns_as_javascript_reads_them() -> None:
    random = Random(7)
    draws = AssertedPatterns(random, depth=1)
    patterns = [draws.pattern() for _ in range(examples(240))]
    alphabet = [*CHARS, "b", "z", "Z", '"', "\\", ".", "ab", "\ud7ff"]
    texts = ["".join(random.choice(alphabet) for _ in range(random.randint(0, 4))) for _ in range(60)]
    compared = 0
    for pattern, row in zip(patterns, searched_by_node(patterns, texts), strict=True):
        if row is None:
            continue
        try:
            language = read(pattern).dfa()
        except EspalierError:
            continue
        for text, wanted in zip(texts, row, strict=True):
            compared += 1
            assert found(pattern, text) == wanted, (pattern, text)
            assert (language is not None and language.accepts(text.encode())) == wanted, (pattern, text)
    assert compared > 20 * examples(240)


@pytest.mark.parametrize("sign", MATCHED)
def test_a_class_has_the_characters_of_ecma_262(sign: str) -> None:
    for char in CHARS:
        is_member = char in MATCHED[sign]
        for pattern, wanted in (
            (f"^{sign}$", is_member),
            (f"^{sign.upper()}$", not is_member),
            (f"^[{sign}]$", is_member),
            (f"^[^{sign}]$", not is_member),
            (f"^[^{sign.upper()}]$", is_member),
        ):
            language = read(pattern).dfa()
            assert found(pattern, char) == wanted, (pattern, char)
            assert (language is not None and language.accepts(char.encode())) == wanted, (pattern, char)


@pytest.mark.parametrize("char", CHARS)
def test_a_dot_matches_all_but_the_four_line_ends(char: str) -> None:
    assert found("^.$", char) == (char not in "\n\r\u2028\u2029")
    assert not found("a$", "a\n")


WRITTEN = [
    "a",
    "",
    "(a",
    "a)",
    "[a-z]+?",
    "a++",
    "a{2}",
    "a{2,}?",
    "a{,3}",
    "a{",
    "}",
    "]",
    r"\-",
    r"[\-]",
    r"\a",
    r"\Z",
    r"\e",
    "(?P<n>a)",
    "(?<n>a)",
    "(?#a)",
    "(?i)a",
    "(?:a)",
    "(?=a)",
    "(?<!a)",
    "(?>a)",
    r"\p{L}",
    r"\p{Foo}",
    r"\u{41}",
    r"\u12",
    r"\x4",
    r"\cA",
    r"\k<n>",
    r"(?<n>a)\k<n>",
    r"\1",
    r"(a)\1",
    "[z-a]",
    "[^]",
    "[]",
    "*",
    "a**",
    "a|b",
    r"\d-\w",
    "é",
    r"[\]]",
    "[[]",
    "\\",
    "a.b",
    "a b",
    r"[\d-z]",
]


def test_the_format_regex_is_that_of_javascript() -> None:
    rows = searched_by_node(WRITTEN, [""])
    # An empty class matches nothing and is refused; a set at the end of a range is read as its three parts.
    assert [text for text, row in zip(WRITTEN, rows, strict=True) if is_pattern(text) != (row is not None)] == [
        "[]",
        r"[\d-z]",
    ]


@pytest.mark.parametrize("pattern", ["(?m)a", "a[]", r"\p{Nothing}", "(a"])
def test_a_pattern_without_a_translation_says_so(pattern: str) -> None:
    with pytest.raises(RegexError) as caught:
        compiled(pattern)
    assert caught.value.pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "ends", "signs"),
    [
        (r"^\d+\w$", False, [r"\d", r"\w"]),
        (r"^[a-z]+$", False, []),
        (r"^[a-z]+$", True, ["$"]),
        (r"^[^\s.$]\.\$", True, [r"\s"]),
        (r"^(?!a$).", False, ["$", "."]),
        (r"\b[\b]", False, [r"\b"]),
        (r"[\\w]", True, []),
    ],
)
def test_the_signs_that_re_reads_otherwise(pattern: str, ends: bool, signs: list[str]) -> None:
    assert signs_read_otherwise(pattern, ends=ends) == signs
