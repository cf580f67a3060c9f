"""Automata written as rules: the language is the same, and the rules look handwritten."""

from __future__ import annotations

from functools import reduce
from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.automata.languages.algebra import language
from espalier.automata.lazy.table import Table
from espalier.errors import LimitExceeded
from espalier.grammar.ast import EMPTY, CharClass, Grammar, Literal, Node, Repeat, Rule, alt, seq
from espalier.grammar.json_mode import JsonWhitespace
from espalier.grammar.printer import print_grammar, print_node
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.lowering import dfa_rules as rules
from espalier.schema.lowering.dfa_rules import dfa_rules
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.linear import choice, join, join_all, optional, write
from espalier.schema.lowering.spelling import literal
from espalier.time_limit import time_limit
from tests.examples import examples
from tests.unit.schema.hand_shapes import Accepts

TEXTS = ["".join(letters) for n in range(6) for letters in product("aé", repeat=n)]


def written(expression: str) -> Grammar:
    dfa = language(parse_regex(expression))
    assert dfa is not None
    names = count(1)
    root, more = dfa_rules(dfa, CharClass, lambda: f"r{next(names)}")
    return Grammar.of([Rule("root", root), *more])


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_the_language_stays(data: st.DataObject) -> None:
    parts = st.sampled_from(["a", "é", "[aé]", "(a|éé)*", "(aé)+", "a?", "[^a]", "(é|aa){1,3}", "(a*é)*", ".{0,2}"])
    expression = "".join(data.draw(st.lists(parts, min_size=1, max_size=4)))
    dfa = language(parse_regex(expression))
    assert dfa is not None
    test = Accepts(written(expression))
    for text in [*TEXTS, "b", "aéb", "😀"]:
        assert test(text) == dfa.accepts(text.encode()), (expression, text)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("[0-9]{4}", "root ::= [0-9]{4}\n"),
        ("[a-z][0-9]{0,9}", "root ::= [a-z] [0-9]{0,9}\n"),
        ("[a-z]+", "root ::= [a-z]+\n"),
        ("(?s:.*)", "root ::= [\\x00-\\uD7FF\\uE000-\\U0010FFFF]*\n"),
    ],
)
def test_simple_automata_read_as_if_written_by_hand(expression: str, text: str) -> None:
    assert print_grammar(written(expression)) == text


def test_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_STATES", 5)
    with pytest.raises(LimitExceeded, match="rules"):
        written("a{10}")


def test_joining_and_choosing_fold_what_repeats() -> None:
    a, b = Literal("a"), CharClass(((48, 57),))
    assert join(a, Literal("b")) == Literal("ab")
    assert join(b, Repeat(b, 0, 3)) == Repeat(b, 1, 4)
    assert join(b, b) == Repeat(b, 2, 2)
    assert join(b, seq(b, a)) == seq(Repeat(b, 2, 2), a)
    assert join(EMPTY, a) == join(a, EMPTY) == a
    assert optional(Repeat(b, 1, 4)) == Repeat(b, 0, 4)
    assert choice([a, EMPTY, a]) == Repeat(a, 0, 1)
    assert choice([EMPTY]) == EMPTY
    assert choice([]) == alt()


def test_deep_automata_do_not_nest_without_end() -> None:
    options = [[(Literal(str(i % 10)), i + 1), (Literal("x"), 5000)] for i in range(5000)]
    names = count()
    root, more = write(Table(rows=[*options, []], ends=[False] * 5000 + [True]), lambda: f"r{next(names)}")
    assert len(more) > 300
    longest = max(print_node(node).count("(") for node in [root, *(rule.body for rule in more)])
    assert longest < 20


LETTER = CharClass(((0x61, 0x63),))
PIECES = [EMPTY, Literal("a"), Literal("b"), LETTER, Repeat(LETTER, 0, 3), Repeat(LETTER, 2, None)]
PIECES += [seq(LETTER, Literal("a")), seq(Literal("b"), LETTER), alt(Literal("a"), LETTER)]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_many_are_joined_as_one_after_the_other_are(pieces: list[Node]) -> None:
    one_by_one = reduce(lambda rest, piece: join(piece, rest), reversed(pieces), EMPTY)
    assert join_all(pieces) == one_by_one
    assert print_node(join_all(pieces)) == print_node(one_by_one)


@pytest.mark.parametrize("form", ["natural", "compact"])
def test_a_constant_of_many_members_takes_a_time_that_grows_with_their_number(form: JsonWhitespace) -> None:
    """One of 5,000 took 48 s in which nothing could end it, after its clients had left too."""
    constant = {f"k{i}": [i, {"v": "x" * 20}] for i in range(10_000)}
    with time_limit(10):
        assert literal(constant, layout(form), 0) != EMPTY
