"""Parsing GBNF: the tree, and the position and message of every error."""

from __future__ import annotations

import re

import pytest

from espalier.errors import GrammarError
from espalier.grammar.ast import (
    EMPTY,
    AnyChar,
    CharClass,
    Literal,
    Position,
    Repeat,
    RuleRef,
    TokenRef,
    alt,
    postorder,
    seq,
)
from espalier.grammar.parser import MAX_REPEAT, parse

A, B, C = Literal("a"), Literal("b"), Literal("c")


def chars(*text: str, negated: bool = False) -> CharClass:
    """`chars("az", "_")` is [a-z_]."""
    return CharClass(tuple((ord(piece[0]), ord(piece[-1])) for piece in text), negated)


@pytest.mark.parametrize(
    ("body", "tree"),
    [
        ('"a"', A),
        ('"a" "b"', seq(A, B)),
        ('"a"|"b"', alt(A, B)),
        ('"a" | "b" "c"', alt(A, seq(B, C))),
        ('("a" | "b") "c"', seq(alt(A, B), C)),
        ('("a" "b") "c"', seq(seq(A, B), C)),
        ('((("a")))', A),
        ('""', EMPTY),
        ("()", EMPTY),
        ("", EMPTY),
        ("|", alt(EMPTY, EMPTY)),
        ('| "a"', alt(EMPTY, A)),
        ('"a" |', alt(A, EMPTY)),
        ('"a" | | "b"', alt(A, EMPTY, B)),
        ('"a" ( | "b") "c"', seq(A, alt(EMPTY, B), C)),
        ('"" "a"', seq(EMPTY, A)),
        ('"a"*', Repeat(A)),
        ('"a"+', Repeat(A, 1)),
        ('"a"?', Repeat(A, 0, 1)),
        ('"a" ?', Repeat(A, 0, 1)),
        ('"a"{3}', Repeat(A, 3, 3)),
        ('"a"{3,}', Repeat(A, 3)),
        ('"a"{3,5}', Repeat(A, 3, 5)),
        ('"a"{ 3 , 5 }', Repeat(A, 3, 5)),
        ('"a"{0}', Repeat(A, 0, 0)),
        ('"a"{007}', Repeat(A, 7, 7)),
        ('"a"{0,5000}', Repeat(A, 0, 5000)),
        ('"a"{2}{2}', Repeat(Repeat(A, 2, 2), 2, 2)),
        ('"a"*?', Repeat(Repeat(A), 0, 1)),
        ('"ab"*', Repeat(Literal("ab"))),
        ("()*", Repeat(EMPTY)),
        ("[abc]", chars("ac")),
        ("[a-z_]", chars("az", "_")),
        ("[^a-z]", chars("az", negated=True)),
        ("[z-za-b]", chars("ab", "z")),
        ("[a-cb-e]", chars("ae")),
        ("[-a]", chars("-", "a")),
        ("[a-]", chars("-", "a")),
        ("[a-c-e]", chars("ac", "-", "e")),
        ("[--/]", chars("-/")),
        (r"[a\-z]", chars("-", "a", "z")),
        (r"[\]-a]", chars("]a")),
        ("[a^]", chars("a", "^")),
        ("[^^]", chars("^", negated=True)),
        ('["]', chars('"')),
        ("[[]", chars("[")),
        ("[&&~]", chars("&", "~")),
        ("[#]", chars("#")),
        (r"[\n\x41\u00e9\U0001F600]", chars("\n", "A", "é", "😀")),
        ("[ぁ-ゟ]", chars("ぁゟ")),
        ("[a\n]", chars("a", "\n")),
        (r'"\x41\u00e1\U0001F600"', Literal("Aá😀")),
        (r'"\t\r\n\\\"\[\]\-"', Literal('\t\r\n\\"[]-')),
        (r'"\x00"', Literal("\0")),
        ('"a#b"', Literal("a#b")),
        ('"a\nb"', Literal("a\nb")),
        ('"[^"', Literal("[^")),
        (".", AnyChar()),
        (".*", Repeat(AnyChar())),
        ("a", RuleRef("a")),
        ("A", RuleRef("A")),
        ("a-b_c-9", RuleRef("a-b_c-9")),
        ("0", RuleRef("0")),
        ("-", RuleRef("-")),
        ('a"b"c', seq(RuleRef("a"), B, RuleRef("c"))),
        ("<think>", TokenRef("<think>")),
        ("!<think>", TokenRef("<think>", negated=True)),
        ("!</think>*", Repeat(TokenRef("</think>", negated=True))),
        ("<|im start|>", TokenRef("<|im start|>")),
        ("<>", TokenRef("<>")),
        ("<[5]>", TokenRef(id=5)),
        ("!<[5]>", TokenRef(id=5, negated=True)),
        ('("a"\n| "b" # no\n\r\n)\n', alt(A, B)),
        ('"a" |\n\n # no\n "b"', alt(A, B)),
        ('\n "a"', A),
        ('("a"\n*{\n2\n}\n)', Repeat(Repeat(A), 2, 2)),
        ('"a" # "b"', A),
        ('"a"\t', A),
    ],
)
def test_bodies(body: str, tree) -> None:
    assert parse(f"root ::= {body}").rules["root"].body == tree
    assert parse(f"x ::= {body}\r\n", root="x").rules["x"].body == tree


@pytest.mark.parametrize(
    "text",
    [
        'root ::= x\nx ::= "a"',
        'root ::= x\r\nx ::= "a"\r\n',
        'root ::= x\rx ::= "a"\r',
        '\ufeffroot ::= x\nx ::= "a"',
        '# head\n\n  root::=x # tail\n\t x\t::= "a"\n# end',
        'root ::= x\n\n\nx ::=\n\n"a"\n\n',
        'x ::= "b"\nroot ::= x\nx ::= "a"\n',
    ],
)
def test_layouts(text: str) -> None:
    grammar = parse(text)
    assert grammar == parse(text.encode())
    assert {name: rule.body for name, rule in grammar.rules.items()} == {"root": RuleRef("x"), "x": A}


def test_names_keep_their_case() -> None:
    assert set(parse('root ::= a A\na ::= "x"\nA ::= "y"').rules) == {"root", "a", "A"}


def test_positions_point_at_the_start_of_each_node() -> None:
    grammar = parse('# c\nroot ::= ("a" | b)+\r\n  b ::= [x]{2} <[5]> .\n')
    places = {
        type(node).__name__: (node.position.line, node.position.column)
        for rule in grammar.rules.values()
        for node in postorder(rule.body)
    }
    assert places == {
        "Literal": (2, 11),
        "RuleRef": (2, 17),
        "Alternative": (2, 10),
        "Repeat": (3, 9),
        "CharClass": (3, 9),
        "TokenRef": (3, 16),
        "AnyChar": (3, 22),
        "Sequence": (3, 9),
    }
    assert grammar.rules["root"].position == Position(4, 2, 1)
    assert grammar.rules["b"].position == Position(27, 3, 3)


FAULTS = {
    "no rules": ("# nothing\n", (2, 1), "no rules", "root ::="),
    "empty": ("", (1, 1), "no rules", "root ::="),
    "no root": ('a ::= "x"', (1, 10), "no rule named 'root'", "every sentence"),
    "unterminated literal": ('root ::= "abc', (1, 10), "literal is never closed", "ends with"),
    "a quote forgotten": ('root ::= "abc\nb ::= "x"', (2, 9), "literal is never closed", "opened in line 1, column 10"),
    "a quote forgotten, even": ('root ::= "a\nb ::= "x?\n" "', (3, 1), "unexpected", "opened in line 1, column 10"),
    "unterminated class": ("root ::= [abc", (1, 10), "class is never closed", "ends with"),
    "unterminated range": ("root ::= [a-", (1, 10), "class is never closed", "ends with"),
    "a bracket forgotten": ('root ::= [ab\nx ::= "[]" )', (2, 10), "literal is never closed", "class opened in line 1"),
    "unterminated group": ('root ::= "a" ("b" | ("c")', (1, 14), "group is never closed", "next rule"),
    "group over a rule": ('root ::= ("a"\nb ::= "x"', (1, 10), "group is never closed", "next rule"),
    "stray closing": ('root ::= "a")', (1, 13), r"unexpected `\)` in rule 'root'", "no group"),
    "stray bracket": ("root ::= a]", (1, 11), "unexpected `]`", "no class"),
    "stray brace": ("root ::= a}", (1, 11), "unexpected `}`", "no repetition"),
    "single quotes": ("root ::= 'a'", (1, 10), "unexpected `'`", "double quotes"),
    "semicolon": ('root ::= "a";', (1, 13), "unexpected `;`", "ends with its line"),
    "odd space": ('root ::= "a"\f"b"', (1, 13), r"unexpected U\+000C", "spaces and tabs"),
    "odd space in a group": ('root ::= ("a"\u00a0"b")', (1, 14), r"unexpected U\+00A0 NO-BREAK SPACE", "spaces"),
    "no rule name": ('root ::= "a"\n"b" ::= "c"', (2, 1), 'unexpected `"` where a rule should start', None),
    "option on its own line": ('root ::= "a"\n  | "b"', (2, 3), "cannot start with `|`", "end the line before"),
    "missing ::=": ('root "a"', (1, 6), "`::=` is missing after 'root'", "name ::= "),
    "wrong ::=": ('root := "a"', (1, 6), "`::=` is missing", "not `:=`"),
    "equals sign": ('root = "a"', (1, 6), "`::=` is missing", "not `=`"),
    "::= on the next line": ('root\n::= "a"', (1, 5), "`::=` is missing", None),
    "a rule inside a rule": ('root ::= "a" |\nb ::= "x"', (2, 1), "new rule starts inside", "'root' goes on"),
    "no body": ('root ::=\nb ::= "x"', (2, 1), "new rule starts inside", "'root' goes on"),
    "unknown escape": (r'root ::= "a\d"', (1, 12), r"unknown escape `\\d`", "known:"),
    "unknown escape in class": (r"root ::= [\w]", (1, 11), r"unknown escape `\\w`", "known:"),
    "escape at the end": ('root ::= "a\\', (1, 12), "lone", "known:"),
    "short x": (r'root ::= "\x4g"', (1, 11), "takes 2 hex", None),
    "short u": (r'root ::= "\u12"', (1, 11), "takes 4 hex", None),
    "short U": (r'root ::= "\U0001F60"', (1, 11), "takes 8 hex", None),
    "past the end": (r'root ::= "\U00110000"', (1, 11), r"U\+110000 is past", None),
    "surrogate": (r'root ::= "\ud83d"', (1, 11), r"U\+D83D is a surrogate", "not text"),
    "surrogate pair": (r'root ::= "\ud83d\ude00"', (1, 11), "surrogate", r"\\U0001F600"),
    "surrogate in class": (r"root ::= [\ud800-\udfff]", (1, 11), "surrogate", None),
    "raw surrogate": ('root ::= "\ud800"', (1, 11), r"surrogate U\+D800", None),
    "raw NUL": ('root ::= "a\0"', (1, 12), "NUL", r"\\x00"),
    "reversed range": ("root ::= [xz-a]", (1, 12), "range z-a is reversed", "low end first"),
    "reversed by escape": (r"root ::= [a-\]]", (1, 11), "reversed", None),
    "reversed to dash": ("root ::= [a--]", (1, 11), "range a-- is reversed", "first or last"),
    "empty class": ("root ::= []", (1, 10), "class is empty", 'empty text is ""'),
    "empty negated class": ("root ::= [^]", (1, 10), "class is empty", "any code point"),
    "nothing to repeat": ("root ::= *", (1, 10), r"nothing that `\*` could repeat", "stand after"),
    "repeat after |": ('root ::= "a" | +', (1, 16), r"nothing that `\+`", None),
    "repeat after (": ('root ::= ( ?"a")', (1, 12), r"nothing that `\?`", None),
    "repeat of empty literal": ('root ::= "a" ""*', (1, 16), "nothing that", None),
    "repeat of none": ('root ::= "a"{0}*', (1, 16), "nothing that", None),
    "reversed counts": ('root ::= "a"{3,1}', (1, 13), "at least 3 and at most 1", r"\{1,3\}"),
    "no least count": ('root ::= "a"{,3}', (1, 14), "least count", r"\{0,n\}"),
    "no count": ('root ::= "a"{}', (1, 14), "a count is expected", None),
    "words for counts": ('root ::= "a"{x}', (1, 14), "a count is expected", None),
    "unclosed counts": ('root ::= "a"{1,2', (1, 13), "repetition is never closed", None),
    "unclosed count": ('root ::= "a"{1;2}', (1, 13), "repetition is never closed", None),
    "counts over lines": ('root ::= "a"{1,\n2}', (1, 16), "a count is expected", None),
    "huge count": (f'root ::= "a"{{{MAX_REPEAT + 1}}}', (1, 14), "a count is 1000000 at most", None),
    "absurd count": (f'root ::= "a"{{{"9" * 5000}}}', (1, 14), "at most", None),
    "unclosed token": ('root ::= <think "a"\nb ::= ">"', (1, 10), "token reference is never closed", "same line"),
    "token without id": ("root ::= <[]>", (1, 12), "a token id is expected", None),
    "token with a word": ("root ::= <[x]>", (1, 12), "a token id is expected", None),
    "token id unclosed": ("root ::= <[5>", (1, 13), r"ends with `\]>`", None),
    "token id too large": ("root ::= <[2147483648]>", (1, 12), "a token id is 2147483647 at most", None),
    "! without a token": ('root ::= !"a"', (1, 10), "negates a token reference only", r"\[\^"),
    "! apart": ("root ::= ! <[5]>", (1, 10), "negates a token reference only", None),
    "second line, CRLF": ('root ::= "a"\r\nb ::= ?', (2, 7), "nothing that", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_with_their_place(fault: str) -> None:
    text, place, message, hint = FAULTS[fault]
    with pytest.raises(GrammarError, match=message) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == place
    assert error.field == "grammar"
    assert "^" in error.excerpt
    if hint is not None:
        assert re.search(hint, str(error.hint))


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(GrammarError, match="byte 0xff is not UTF-8") as caught:
        parse(b'# \xc3\xa9\nroot ::= "a\xff"')
    assert (caught.value.line, caught.value.column) == (2, 12)
    with pytest.raises(GrammarError, match="not UTF-8"):
        parse(b'root ::= "\xed\xa0\x80"')  # an encoded surrogate
    with pytest.raises(GrammarError, match="not UTF-8"):
        parse(b'root ::= "\xc0\xaf"')  # too long a form


def test_the_excerpt_shows_the_place() -> None:
    with pytest.raises(GrammarError) as caught:
        parse('root ::= "yes" | ;')
    assert caught.value.excerpt == 'root ::= "yes" | ^;'


def test_deep_and_long_grammars_are_read() -> None:
    for text in (
        "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000,
        "root ::= " + '("a" ' * 10_000 + '"b"' + ")*" * 10_000,
        'root ::= "a"' + "*" * 10_000,
        "root ::= " + " | ".join(['"a"'] * 10_000),
    ):
        assert "root" in parse(text).rules
    with pytest.raises(GrammarError, match="never closed"):
        parse("root ::= " + "(" * 10_000)
