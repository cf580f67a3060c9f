"""What guidance and outlines send to vLLM as Lark: `%llguidance`, attributes of rules, imported terminals; held to
llguidance and to Lark where they are installed."""

from __future__ import annotations

from itertools import product

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf
from espalier.errors import GrammarError, UnsupportedError
from espalier.grammar.lark.imported import COMMON
from espalier.grammar.lark.read import read_lark
from espalier.grammar.printer import print_grammar
from espalier.tokens.vocab import Vocab
from espalier.wording import Edge, in_words

BYTES = Compiler(Vocab.bytes())
HEAD = "%llguidance {}\n"
GRAMMARS = {
    "stop": 'start: a "b"\na[stop="x"]: /[a-z]*/\n',
    "stop of several letters": 'start: a "."\na[stop="xy"]: /[xyb]*/\n',
    "stop by an expression": "start: a\na[stop=/x+b/]: /[xb]*/\n",
    "suffix": 'start: a "b"\na[suffix="x"]: /[a-z]*/\n',
    "lazy": 'start: a "b"\na[lazy]: /[a-z]*x/\n',
    "lazy options": 'start: a "b"\na[lazy]: /xb|x|bx/\n',
    "captures": 'start: a "b"\na[capture]: /x/\n',
    "a named capture": 'start: a "b"\na[capture="v", stop="x"]: /[ab]*/\n',
    "no stop": 'start: a\na[stop=""]: /[xb]*/\n',
    "two rules": 'start: a c\na[stop="x"]: /b*/\nc[lazy]: /b+/\n',
}
TEXTS = ["".join(letters) for size in range(5) for letters in product("xyb.", repeat=size)]


def accepts(source: str, text: str) -> bool:
    matcher = BYTES.compile(Gbnf(print_grammar(read_lark(source)))).matcher()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.advance(byte)
    return bool(matcher.is_accepting)


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_rule_with_attributes_has_the_texts_that_llguidance_takes(name: str) -> None:
    llguidance = pytest.importorskip("llguidance", reason="llguidance is not installed")
    source = HEAD + GRAMMARS[name]
    tokenizer = llguidance.LLTokenizer("byte")
    taken = set()
    for text in TEXTS:
        theirs = llguidance.LLMatcher(tokenizer, source, log_level=0)
        assert not theirs.is_error(), theirs.get_error()
        ids = list(text.encode())
        if theirs.try_consume_tokens(ids) == len(ids) and theirs.is_accepting():
            taken.add(text)
    assert {text for text in TEXTS if accepts(source, text)} == taken
    assert taken


def test_a_terminal_takes_the_attributes_too() -> None:
    for rule, terminal in (("a[lazy]: /x+/", "A[lazy]: /x+/"), ('a[stop="."]: /x*/', 'A[stop="."]: /x*/')):
        as_rule, as_terminal = f'start: a "b"\n{rule}\n', f'start: A "b"\n{terminal}\n'
        assert [accepts(as_rule, text) for text in TEXTS] == [accepts(as_terminal, text) for text in TEXTS]


# Lark's own parsers refuse a terminal that may be empty.
@pytest.mark.parametrize("name", sorted(COMMON.keys() - {"_STRING_INNER"}))
def test_every_imported_terminal_has_the_texts_that_lark_takes(name: str) -> None:
    lark = pytest.importorskip("lark", reason="Lark itself is not installed")
    source = f"%import common.{name}\nstart: {name}\n"
    theirs = lark.Lark(source, parser="earley", lexer="dynamic_complete")
    letters = {
        "ESCAPED_STRING": '"\\a\n',
        "C_COMMENT": "/*a\n",
        "SQL_COMMENT": "-a\n",
        "CPP_COMMENT": "/a\n",
        "SH_COMMENT": "#a\n",
        "NEWLINE": "\r\na",
    }.get(name, "0.e+aA_ ")
    for size in range(6 if len(letters) < 6 else 4):
        for text in map("".join, product(letters, repeat=size)):
            assert accepts(source, text) == is_parsed(theirs, text, lark), text


def is_parsed(parser: object, text: str, lark: object) -> bool:
    try:
        parser.parse(text)  # type: ignore[attr-defined]
    except lark.exceptions.LarkError:  # type: ignore[attr-defined]
        return False
    return True


@pytest.mark.parametrize("options", ["{}", '{"no_forcing": true}', '{"allow_initial_skip": true, "no_forcing": false}'])
def test_options_of_llguidance_change_no_text(options: str) -> None:
    assert accepts(f'%llguidance {options}\nstart: "x"\n', "x")


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        ("start: a\na[max_tokens=12]: /x*/\n", UnsupportedError, "max_tokens"),
        ('start: a\na[temperature=0.5]: "x"\n', UnsupportedError, "temperature"),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: "x"\n', UnsupportedError, "allow_invalid_utf8"),
        ("start: B\nB: A /b/\nA[lazy]: /x+/\n", GrammarError, "first match"),
        ("start: a\na[stop]: /x/\n", UnsupportedError, "stop"),
        ('start: A\nA[capture]: %json {"type": "object"}\n', UnsupportedError, "%json"),
        ('start: a\na: %regex {"substring_words": "a b"}\n', UnsupportedError, "%regex"),
        ("start: a\na[lazy: /x/\n", UnsupportedError, ":"),
        ("start: a\na[lazy", GrammarError, "too early"),
        ('start: a\na[lazy]: b "x"\nb: /x/\n', GrammarError, "cannot contain a rule"),
    ],
)
def test_what_no_grammar_can_hold_is_refused_by_its_name(source: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        read_lark(source)


@pytest.mark.parametrize(
    ("attribute", "edge", "hint"),
    [
        ("max_tokens=12", "python", "max_tokens=12, its reasoning with max_reasoning=12"),
        ("max_tokens=12", "http", '"max_tokens": 12, its reasoning with "espalier": {"max_reasoning": 12}'),
        ("temperature=0.5", "http", "temperature"),
    ],
)
def test_the_refusal_of_a_limit_says_what_does_its_work(attribute: str, edge: Edge, hint: str) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        read_lark(f"start: a\na[{attribute}]: /x*/\n")
    assert hint in in_words(refusal.value.hint or "", edge)
