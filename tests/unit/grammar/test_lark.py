"""Lark grammars as ours: the same texts, held to Lark's own Earley parser where it is installed; what is refused."""

from __future__ import annotations

from random import Random

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
    ours, random = read_lark(GRAMMARS[name]), Random(1)
    for _ in range(examples(100)):
        text = sample(ours, random, max_size=30)
        theirs.parse(text)
        place = random.randrange(len(text) + 1)
        changed = text[:place] + random.choice("a1=+(\n;") + text[place + random.randrange(2) :]
        try:
            theirs.parse(changed)
            expected = True
        except lark.exceptions.LarkError:
            expected = False
        assert accepts(GRAMMARS[name], changed) == expected, changed


def accepts(grammar: str, text: str) -> bool:
    return BYTES.compile(Gbnf(print_grammar(read_lark(grammar)))).accepts(text)


@pytest.mark.parametrize(("grammar", "yes", "no"), [
    (SUM, ["1", " ( 1 + 2.5 ) - 3\n"], ["", "1 +", "(1", "1 2"]),
    (PAIRS, ['a=1b="x"', "k9=ON;;\n", "a=b"], ["a=1;", "abcde=1", 'a="', "a=d"]),
    (LEFT, ["b", "baa"], ["a", "ab"]),
    ('start: A\nA: "a" /b+/s\n%ignore "-"', ["ab", "-abb-"], ["a-b", "a"]),
])  # fmt: skip
def test_texts_of_a_grammar(grammar: str, yes: list[str], no: list[str]) -> None:
    assert [accepts(grammar, one) for one in yes] == [True] * len(yes)
    assert [accepts(grammar, one) for one in no] == [False] * len(no)


REFUSED = {
    'start: a\na.2: "b"': "priority", 'start: A\nA.2: "b"': "priority", 'start: x{"a"}\nx{y}: y': "template",
    "%declare A\nstart: A": "%declare", "%import python.NAME\nstart: NAME": "import python",
    "%import common.NOPE\nstart: NOPE": "common.NOPE", "start: <think>": "special token",
    "start: /(?<=a)b/": "look", "%extend start: A": "%extend", "start: /a/l": "flag l",
}  # fmt: skip


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_cannot_be_translated_is_refused_by_its_construct(grammar: str) -> None:
    with pytest.raises(UnsupportedError, match=REFUSED[grammar]):
        read_lark(grammar)


@pytest.mark.parametrize("grammar", [
    "", "x", 'begin: "a"', "start: b", 'start: "a', 'start: "a"\nstart: "b"', 'start: ("a"', 'start: "b".."a"',
    'start: "a"~3..2', 'start: "a"~99999', "start: A\nA: b\nb: A", r'start: "\ud800"', "start: start",
    'start: "a" )', "start: " + "(" * 300 + '"a"' + ")" * 300,
])  # fmt: skip
def test_what_is_no_grammar_is_an_error_of_grammars(grammar: str) -> None:
    with pytest.raises(GrammarError):
        read_lark(grammar)
