"""What guidance and outlines send to vLLM as Lark: `%llguidance`, attributes of rules, imported terminals; held to
llguidance and to Lark where they are installed."""

from __future__ import annotations

from itertools import product

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.json_schema.check import schema_grammar
from espalier.constraints.spec import Gbnf, JsonSchema, Regex, Spec
from espalier.constraints.to_gbnf import portable
from espalier.errors import CapabilityError, GrammarError, SpecError, UnsupportedError
from espalier.grammar.ast import Grammar
from espalier.grammar.lark.imported import COMMON
from espalier.grammar.lark.read import read_lark
from espalier.grammar.printer import print_grammar
from espalier.tokens.vocab import Vocab

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
    matcher = BYTES.compile(Gbnf(print_grammar(read_lark(source).grammar))).matcher()
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
@pytest.mark.slow
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
        ('start: a\na[max_tokens=12]: b "x"\nb: /x/\n', GrammarError, "cannot contain a rule"),
        ('start: a\na[max_tokens=x]: "x"\n', GrammarError, "a number of tokens"),
        ('start: a\na[max_tokens=2]: %regex {"substring_chars": "a"} b\nb: "x"\n', GrammarError, "cannot contain"),
        ("start: B\nB: A /b/\nA[max_tokens=3]: /x+/\n", GrammarError, "a limit of tokens"),
        ('start: a\na[temperature=hot]: "x"\n', UnsupportedError, "temperature"),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: "x"\n', UnsupportedError, "allow_invalid_utf8"),
        ("start: B\nB: A /b/\nA[lazy]: /x+/\n", GrammarError, "first match"),
        ("start: a\na[stop]: /x/\n", UnsupportedError, "stop"),
        ('start: a\na: %json {"type": "object"}\n', UnsupportedError, "%json"),  # nobody here reads schemas
        ('start: A\nA: %json {"type": "object"}\n', GrammarError, "in a terminal"),
        ("start: a\na: %json {type}\n", GrammarError, "line 2.*JSON"),
        ('start: a\na: %regex {"pattern": "a+"}\n', GrammarError, "substring_words"),
        ('start: a\na: %regex {"substring_chunks": "ab"}\n', GrammarError, "a list of texts"),
        ("start: a\na[lazy: /x/\n", UnsupportedError, ":"),
        ("start: a\na[lazy", GrammarError, "too early"),
        ('start: a\na[lazy]: b "x"\nb: /x/\n', GrammarError, "cannot contain a rule"),
    ],
)
def test_what_no_grammar_can_hold_is_refused_by_its_name(source: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        read_lark(source)


SCHEMAS: dict[str, tuple[str, str]] = {
    "an integer": ('{"type": "integer", "minimum": 0, "maximum": 12}', "012"),
    "an object": (
        '{"type": "object", "properties": {"a": {"enum": [1, "x"]}}, "required": ["a"], "additionalProperties": false}',
        '{"a":1x}',
    ),
    "a constant": ('{"const": null}', "nul"),
    "a recursive array": ('{"type": "array", "items": {"$ref": "#"}}', "[],"),
}


def schema_reader(schema: object) -> Grammar:
    return schema_grammar(JsonSchema(schema, whitespace="compact"))  # type: ignore[arg-type]


def masks_agree(source: str, letters: str, *, depth: int) -> int:
    """Walks all texts of these letters that llguidance takes, and compares the masks at each; returns how many."""
    llguidance = pytest.importorskip("llguidance", reason="llguidance is not installed")
    tokenizer = llguidance.LLTokenizer("byte")
    lark = read_lark(source, schema_reader)
    limits = tuple(lark.token_limits.items())
    compiled = BYTES.compile(Gbnf(print_grammar(lark.grammar), token_limits=limits))
    todo, count = [""], 0
    while todo:
        text = todo.pop()
        theirs = llguidance.LLMatcher(tokenizer, source, log_level=0)
        assert not theirs.is_error(), theirs.get_error()
        assert theirs.try_consume_tokens(list(text.encode())) == len(text.encode())
        bits = theirs.compute_bitmask()
        ours = compiled.matcher()
        for byte in text.encode():
            ours.advance(byte)
        wanted = {letter for letter in letters if bits[ord(letter) // 8] >> ord(letter) % 8 & 1}
        assert {letter for letter in letters if ours.allows(ord(letter))} == wanted, text
        assert ours.is_accepting == theirs.is_accepting(), text
        count += 1
        if len(text) < depth:
            todo += [text + letter for letter in wanted]
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_json_within_a_rule_has_the_masks_of_llguidance(name: str) -> None:
    schema, letters = SCHEMAS[name]
    schema = schema.replace("{", '{"x-guidance": {"whitespace_flexible": false}, ', 1)
    source = HEAD + f'start: "<" a (";" a)* ">"\na[capture]: %json {schema}\n'
    assert masks_agree(source, letters + "<;>", depth=9) > 5


@pytest.mark.parametrize(
    "literal",
    [
        '{"substring_chars": "abca"}',
        '{"substring_chunks": ["ab", "c", "ab"]}',
        '{"substring_words": "my dear  fox, my..x_1"}',
        '{"substring_words": "don\'t stop"}',
        '{"substring_words": ""}',
    ],
)
def test_parts_of_a_text_have_the_masks_of_llguidance(literal: str) -> None:
    letters = "".join(sorted({*literal.partition(":")[2]} - {*'[]{}"!'}))
    assert masks_agree(f'{HEAD}start: "!" a "!"\na: %regex {literal}\n', letters + "!", depth=12)
    assert masks_agree(f'{HEAD}start: A "!"\nA: "!" %regex {literal}\n', letters + "!", depth=12)


@pytest.mark.parametrize(
    "rules",
    [
        'start: a "!"\na[max_tokens=3]: /[ab]*/',
        'start: a "!"\na[max_tokens=2]: /[ab]*x/',
        'start: a "!"\na[max_tokens=0]: /[ab]*/',
        'start: a c "!"\na[max_tokens=2]: /[ab]{4}/\nc: /x+/',
        'start: a "!"\na[max_tokens=3]: /[ab]+/ "x"',
        'start: a "!"\na[capture, max_tokens=4, temperature=0.7]: %json {"enum": ["ab", "xx"]}',
    ],
)
def test_a_limit_of_tokens_has_the_masks_of_llguidance(rules: str) -> None:
    """Behind other text, llguidance counts a token more: the rule begins before it is reached."""
    assert masks_agree(f"{HEAD}{rules}\n", 'abx!"', depth=8) > 1


def test_a_limit_of_tokens_counts_tokens_and_ends_no_character_in_its_middle() -> None:
    vocab = Vocab.from_tokens([*(bytes([byte]) for byte in range(256)), b"ab", b"b!", b"", "é".encode()], eos_ids=[258])
    spec = Gbnf('root ::= name "!"\nname ::= [abé]{8}', token_limits={"name": 2})  # type: ignore[arg-type]
    matcher = Compiler(vocab).compile(spec).matcher()
    for token in (256, 256):
        assert not matcher.allows(ord("!"))
        matcher.advance(token)
    assert matcher.allows(ord("!"))  # four of the eight letters
    assert not matcher.allows(256)
    matcher.rollback(1)
    matcher.advance("é".encode()[0])
    assert not matcher.allows(ord("!"))  # half a character
    matcher.advance("é".encode()[1])
    assert matcher.allows(ord("!"))
    assert not matcher.allows(ord("a"))


def test_each_visit_of_a_rule_has_its_own_tokens() -> None:
    spec = Gbnf('root ::= (name ",")* "!"\nname ::= [ab]+', token_limits={"name": 2})  # type: ignore[arg-type]
    matcher = BYTES.compile(spec).matcher()
    for text in ("ab", "ab"):
        for byte in text.encode():
            matcher.advance(byte)
        assert not matcher.allows(ord("a"))
        matcher.advance(ord(","))
    assert matcher.allows(ord("a"))
    assert matcher.shortest_completion() == (ord("!"), 256)


def test_a_spec_with_limits_round_trips() -> None:
    spec = Gbnf('root ::= name\nname ::= "a"', token_limits={"name": 2})  # type: ignore[arg-type]
    assert Spec.from_json(spec.to_json()) == spec
    assert spec.to_json()["token_limits"] == {"name": 2}


@pytest.mark.parametrize(
    ("limits", "error", "match"),
    [
        ({"nobody": 1}, GrammarError, "no such rule"),
        ({"root": 1}, GrammarError, "whole text"),
        ({"name": 1, "inner": 2}, GrammarError, "within it"),
        ({"name": -1}, SpecError, "a number of tokens"),
        (["name"], SpecError, "token_limits"),
    ],
)
def test_a_wrong_limit_is_named(limits: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        BYTES.compile(
            Gbnf('root ::= name\nname ::= inner+\ninner ::= "a"', token_limits=limits)  # type: ignore[arg-type]
        )


def test_limits_are_refused_where_nobody_counts_tokens() -> None:
    spec = Gbnf('root ::= name\nname ::= "a"', token_limits={"name": 2})  # type: ignore[arg-type]
    with pytest.raises(CapabilityError, match="counts no tokens"):
        portable(spec, BYTES)
    with pytest.raises(UnsupportedError, match="limits of tokens"):
        BYTES.language(spec, wanted_by="a test")


def test_a_limit_holds_beside_other_constraints() -> None:
    spec = Gbnf('root ::= name "!"\nname ::= [ab]*', token_limits={"name": 2})  # type: ignore[arg-type]
    matcher = BYTES.compile(AllOf(spec, Regex("[^a]*"))).matcher()
    matcher.advance(ord("b"))
    assert not matcher.allows(ord("a"))
    matcher.advance(ord("b"))
    assert [byte for byte in range(257) if matcher.allows(byte)] == [ord("!")]


def test_a_limit_is_of_one_json_alone() -> None:
    with pytest.raises(UnsupportedError, match="more than one terminal or one %json"):
        read_lark('start: a\na[max_tokens=2]: %json {"type": "null"} "x"\n', schema_reader)
