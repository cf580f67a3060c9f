"""Lark grammars as ours: the same texts, held to Lark's own Earley parser where it is installed; what is refused."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import product
from random import Random
from typing import Any

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf
from espalier.errors import GrammarError, UnsupportedError
from espalier.grammar.lark.read import read_lark
from espalier.grammar.printer import print_grammar
from espalier.grammar.sample import sample
from espalier.tokens.vocab import Vocab
from tests.examples import examples

SUM = """// sums
start: expr
expr: term (("+" | "-") term)*
?term: NUMBER -> number
     | "(" expr ")"
%import common.NUMBER
%import common.WS
%ignore WS
"""
PAIRS = r"""start: pair+ [tail]
pair: KEY "=" value
!value: STRING | /[0-9]+/ | "on"i
  | "a".."c"
KEY: LETTER (LETTER | DIGIT)~0..3
STRING: "\"" /[^"\\]/* "\""
tail: ";"~2..3 "\n"
%import common (LETTER, DIGIT)
"""
LEFT = 'start: start "a" | "b"\n'
BYTES = Compiler(Vocab.bytes())
GRAMMARS = {"sums": SUM, "pairs": PAIRS, "left recursion": LEFT}


@pytest.mark.parametrize("name", GRAMMARS)
def test_lark_and_we_accept_the_same_texts(name: str) -> None:
    lark = pytest.importorskip("lark", reason="Lark itself is not installed")
    theirs = lark.Lark(GRAMMARS[name], parser="earley", lexer="dynamic_complete")
    ours, random = read_lark(GRAMMARS[name]).grammar, Random(1)
    for _ in range(examples(100)):
        text = sample(ours, random, max_size=30)
        theirs.parse(text)
        place = random.randrange(len(text) + 1)
        changed = text[:place] + random.choice("a1=+(\n;") + text[place + random.randrange(2) :]
        assert accepts(GRAMMARS[name], changed) == parses(theirs, changed), changed


PREFERRED = [
    "a+|ab",
    "a|ab",
    "ab|a",
    "a+?",
    "a+?b",
    "a.*?b",
    "a?(?:ab)?b",
    "ab*?",
    "(?:a|ab)b",
    "(?:a|ab){2}",
    "a{1,2}?",
    "[ab]*?a",
    "(?:ab|a)(?:b|ba)",
    "(?:a*b)*a",
    "(?:a|b|ab)+",
]
SMALL = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]


@pytest.mark.parametrize("pattern", PREFERRED)
def test_a_terminal_is_what_re_prefers(pattern: str) -> None:
    for text in SMALL:
        match = re.match(pattern, text)
        expected = match is not None and match.end() == len(text)
        assert accepts(f"start: /{pattern}/", text) == expected, text


@pytest.mark.parametrize(
    ("terminal", "yes", "no"),
    [('/a+/|"ab"', ["a", "aa"], ["ab"]), ('"a"|"ab"', ["a", "ab"], ["b"]), ('"b" ("a"|"ab")', ["ba", "bab"], [])],
)
def test_options_that_lark_writes_are_tried_from_the_longest_on(terminal: str, yes: list[str], no: list[str]) -> None:
    assert [accepts(f"start: T\nT: {terminal}\n", text) for text in yes] == [True] * len(yes)
    assert [accepts(f"start: T\nT: {terminal}\n", text) for text in no] == [False] * len(no)


def test_small_grammars_accept_what_lark_accepts() -> None:
    """Every text up to four letters, for terminals of options, counts and lazy repetitions."""
    lark = pytest.importorskip("lark", reason="Lark itself is not installed")
    random = Random(4)
    grammars = [f"start: T\nT: /{pattern}/\nU: /b/\n" for pattern in PREFERRED]
    for _ in range(examples(120)):
        rule = random.choice(("T", "T U", "T+", "(T|U) T"))
        grammars.append(f"start: {rule}\nT: {a_terminal(random, 2)}\nU: {a_terminal(random, 1)}\n")
    compared = 0
    for grammar in grammars:
        try:
            theirs = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
        except lark.exceptions.LarkError as error:
            if "zero-width" in str(error):  # a terminal that may be empty
                continue
            raise
        compiled = BYTES.compile(Gbnf(print_grammar(read_lark(grammar).grammar)))
        split_first = lark.Lark(grammar, parser="earley", lexer="basic")
        for text in SMALL:
            assert compiled.accepts(text) == parses(theirs, text), (grammar, text)
            assert compiled.accepts(text) or not parses(split_first, text), (grammar, text)
            compared += 1
    assert compared > 1_000


PATCH = r"""
start: begin hunk+ end
begin: "*** Begin" LF
end: "*** End" LF?
hunk: "*** Add: " path LF line+ | "*** Delete: " path LF
path: /(.+)/
line: "+" /(.*)/ LF -> line
%import common.LF
"""


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ("start: /(a*)/", ["", "a", "aaa"], ["b"]),
        ('start: T "b"\nT: "a"?', ["b", "ab"], ["aab", "a"]),
        ('start: (T "," )+\nT: /[0-9]*/', [",", "1,", ",,12,"], ["", "1"]),
        ('start: "x" T*\nT: /a*/', ["x", "xaa"], ["a"]),
        (
            PATCH,
            ["*** Begin\n*** Add: a b\n+\n+x\n*** End", "*** Begin\n*** Delete: a\n*** End\n"],
            ["*** Begin\n*** Add: \n+\n*** End", "*** Begin\n*** Add: a\n*** End", "*** Begin\n*** End"],
        ),
    ],
)
def test_a_terminal_that_may_be_empty_may_be_left_out_as_with_openai(
    grammar: str, yes: list[str], no: list[str]
) -> None:
    assert [accepts(grammar, text) for text in yes] == [True] * len(yes)
    assert [accepts(grammar, text) for text in no] == [False] * len(no)
    with pytest.raises(GrammarError, match="to ignore"):
        read_lark('start: "a"\n%ignore / */')


def parses(parser: Any, text: str) -> bool:
    try:
        parser.parse(text)
    except import_module("lark").exceptions.LarkError:
        return False
    return True


def a_terminal(random: Random, depth: int) -> str:
    draw = random.random()
    if depth == 0 or draw < 0.25:
        return random.choice(('"a"', '"b"', '"ab"', '"aba"', '"A"i'))
    if draw < 0.5:
        return f"/{an_expression(random, 2)}/"
    if draw < 0.7:
        return f"({a_terminal(random, depth - 1)} | {a_terminal(random, depth - 1)})"
    if draw < 0.85:
        return f"({a_terminal(random, depth - 1)}){random.choice(('*', '+', '?', '~2', '~1..2'))}"
    return f"{a_terminal(random, depth - 1)} {a_terminal(random, depth - 1)}"


def an_expression(random: Random, depth: int) -> str:
    draw = random.random()
    if depth == 0 or draw < 0.3:
        return random.choice(("a", "b", "ab", "[ab]", ".", "ba", "[^a]"))
    if draw < 0.55:
        return f"(?:{an_expression(random, depth - 1)}|{an_expression(random, depth - 1)})"
    if draw < 0.8:
        # Not `??` and the like inside of a loop: how `re` ends a loop of empty texts is refused.
        return f"(?:{an_expression(random, depth - 1)}){random.choice(('*', '+', '?', '{1,2}', '+?', '{1,2}?'))}"
    return an_expression(random, depth - 1) + an_expression(random, depth - 1)


def test_a_string_with_a_lazy_inside_ends_at_its_first_quotation_mark() -> None:
    grammar = 'start: T "x"\nT: /".*?"/\n'
    assert accepts(grammar, '"a"x')
    assert not accepts(grammar, '"a"b"x')


def accepts(grammar: str, text: str) -> bool:
    return BYTES.compile(Gbnf(print_grammar(read_lark(grammar).grammar))).accepts(text)


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        (SUM, ["1", " ( 1 + 2.5 ) - 3\n"], ["", "1 +", "(1", "1 2"]),
        (PAIRS, ['a=1b="x"', "k9=ON;;\n", "a=b"], ["a=1;", "abcde=1", 'a="', "a=d"]),
        (LEFT, ["b", "baa"], ["a", "ab"]),
        ('start: A\nA: "a" /b+/s\n%ignore "-"', ["ab", "-abb-"], ["a-b", "a"]),
    ],
)
def test_texts_of_a_grammar(grammar: str, yes: list[str], no: list[str]) -> None:
    assert [accepts(grammar, one) for one in yes] == [True] * len(yes)
    assert [accepts(grammar, one) for one in no] == [False] * len(no)


REFUSED = {
    'start: a\na.2: "b"': "priority",
    'start: A\nA.2: "b"': "priority",
    'start: x{"a"}\nx{y}: y': "template",
    "%declare A\nstart: A": "%declare",
    "%import python.NAME\nstart: NAME": "import python",
    "%import common.NOPE\nstart: NOPE": "common.NOPE",
    "start: <think>": "special token",
    "start: /(?<=a)b/": "look",
    "%extend start: A": "%extend",
    "start: /a/l": "flag l",
    "start: /^a/": "anchor",
    "start: /a$/": "anchor",
    "start: /(?:a??)*b/": "loop",
    f"start: /{'(?:a|ab)' * 20_000}/": "counts this large",
}


@pytest.mark.slow
@pytest.mark.parametrize("grammar", REFUSED)
def test_what_cannot_be_translated_is_refused_by_its_construct(grammar: str) -> None:
    with pytest.raises(UnsupportedError, match=REFUSED[grammar]):
        read_lark(grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "x",
        'begin: "a"',
        "start: b",
        'start: "a',
        'start: "a"\nstart: "b"',
        'start: ("a"',
        'start: "b".."a"',
        'start: "a"~3..2',
        'start: "a"~99999',
        "start: A\nA: b\nb: A",
        r'start: "\ud800"',
        "start: start",
        'start: "a" )',
        'start: ""',
        'start: "a"\n%ignore /-*/',
        'start: A\nA: "x" A|"y"',
        "start: " + "(" * 300 + '"a"' + ")" * 300,
    ],
)
def test_what_is_no_grammar_is_an_error_of_grammars(grammar: str) -> None:
    with pytest.raises(GrammarError):
        read_lark(grammar)
