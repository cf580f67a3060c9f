"""Rewrites keep the language: compared text by text with an independent recogniser of the original."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from espalier.errors import GrammarError
from espalier.grammar.analysis import left_recursive_cycles, nullable_costs, productive, reachable
from espalier.grammar.ast import Grammar
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.rewrite import (
    MAX_GROUP,
    nullable_loops,
    portable,
    remove_left_recursion,
    remove_nullable_loops,
    trim,
)
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import SHORT_TEXTS, small_grammars, wild_grammars


def language(grammar: Grammar) -> list[str]:
    oracle = Recogniser(grammar)
    return [text for text in SHORT_TEXTS if oracle.accepts(text)]


def loops(grammar: Grammar) -> list[object]:
    empty = nullable_costs(grammar)
    return [loop for rule in grammar.rules.values() for loop in nullable_loops(rule.body, empty)]


@given(small_grammars)
@settings(max_examples=examples(200), deadline=None)
def test_the_language_is_kept(grammar: Grammar) -> None:
    expected = language(grammar)
    plain = remove_nullable_loops(grammar)
    assert loops(plain) == []
    assert language(plain) == expected
    straight = remove_left_recursion(grammar)
    assert left_recursive_cycles(straight) == []
    assert language(straight) == expected
    assert list(straight.rules)[: len(grammar.rules)] == list(grammar.rules)
    for_llama = portable(grammar)
    assert left_recursive_cycles(for_llama) == []
    assert loops(for_llama) == []
    assert language(for_llama) == expected
    if "root" in productive(grammar):
        trimmed = trim(grammar)
        assert productive(trimmed) == reachable(trimmed) == set(trimmed.rules)
        assert language(trimmed) == expected
    else:
        assert expected == []


@given(small_grammars)
@settings(max_examples=examples(60), deadline=None)
def test_every_rule_keeps_its_meaning(grammar: Grammar) -> None:
    straight = remove_left_recursion(grammar)
    for name in grammar.rules:
        assert language(Grammar(straight.rules, name)) == language(Grammar(grammar.rules, name))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('root ::= root "+" n | n\nn ::= [0-9]', 'root ::= n ("+" n)*\nn ::= [0-9]\n'),
        ('root ::= root "a" | root "b" | "c" | "d"', 'root ::= ("c" | "d") ("a" | "b")*\n'),
        ('root ::= root "a" | ""', 'root ::= root-nonempty | ""\nroot-nonempty ::= "a" "a"*\n'),
        ('root ::= (root "+")? "n"', 'root ::= "n" ("+" "n")*\n'),
        ('root ::= root | "a"', 'root ::= "a"\n'),
        ('root ::= "a" root | "b"', 'root ::= "a" root | "b"\n'),
    ],
)
def test_how_left_recursion_is_rewritten(before: str, after: str) -> None:
    assert parse(print_grammar(remove_left_recursion(parse(before)))) == parse(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('root ::= ("a"?)*', '"a"*'),
        ('root ::= ("a"*)*', '"a"*'),
        ('root ::= (("a"*)*)*', '"a"*'),
        ('root ::= ("a"*)+', '"a"*'),
        ('root ::= ("a"?){2,5}', '"a"{0,5}'),
        ("root ::= ()*", '""'),
        ('root ::= ("a"? "b"?)*', '("a" "b"? | "b")*'),
        ('root ::= ("" | "a")*', '"a"*'),
        ('root ::= ("a"?)?', '("a"?)?'),
        ('root ::= "a"*', '"a"*'),
    ],
)
def test_how_loops_are_rewritten(before: str, after: str) -> None:
    assert remove_nullable_loops(parse(before)).rules["root"].body == parse(f"root ::= {after}").rules["root"].body


def test_what_needs_nothing_is_given_back_as_it_is() -> None:
    grammar = parse('root ::= a*\na ::= "x" root?')
    assert all(
        rewrite(grammar) is grammar for rewrite in (trim, remove_nullable_loops, remove_left_recursion, portable)
    )


def test_trim_drops_dead_options_and_unreached_rules() -> None:
    grammar = parse('root ::= "a" | "b" dead | "c" dead* | missing\ndead ::= "x" dead\nunused ::= "y"')
    assert trim(grammar) == parse('root ::= "a" | "c" ""')
    with pytest.raises(GrammarError, match="'root' derives no finite sentence"):
        trim(parse("root ::= root"))


def test_portable_names() -> None:
    grammar = portable(parse('my_start ::= a_b a-b root\na_b ::= "x"\na-b ::= "y"\nroot ::= "z"', root="my_start"))
    assert grammar.root == "root"
    assert print_grammar(grammar) == 'root ::= a-b-2 a-b root-2\na-b-2 ::= "x"\na-b ::= "y"\nroot-2 ::= "z"\n'


@given(wild_grammars)
@settings(max_examples=examples(60), deadline=None)
def test_portable_grammars_read_back_with_plain_names(grammar: Grammar) -> None:
    plain = portable(grammar)
    assert parse(print_grammar(plain)) == plain
    assert all(re.fullmatch(r"[A-Za-z0-9-]+", name) for name in plain.rules)


def test_a_mutual_left_recursion_of_many_rules() -> None:
    size = 12
    rules = [f'r{i} ::= r{(i + 1) % size} "a" | r{(i + 5) % size} "b" "b" | "ab"' for i in range(size)]
    grammar = parse("\n".join(["root ::= r0", *rules]))
    straight = remove_left_recursion(grammar)
    assert left_recursive_cycles(straight) == []
    assert language(straight) == language(grammar)


def test_what_is_too_large_is_refused_with_the_cycle() -> None:
    rules = [f'r{i} ::= r{(i + 1) % (MAX_GROUP + 1)} "a" | "b"' for i in range(MAX_GROUP + 1)]
    with pytest.raises(GrammarError, match="left recursion r0 → r1 → r2 → r3 → r4 → … → r0 is too large"):
        remove_left_recursion(parse("\n".join(["root ::= r0", *rules])))
    with pytest.raises(GrammarError, match="too many parts that can be empty"):
        remove_nullable_loops(parse("root ::= (" + '"a"? ' * 5000 + ")*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "tower", ['("a"' * 10_000 + ")*" * 10_000, '("a"? ' * 10_000 + ")?" * 10_000, '"a"' + "*" * 10_000]
)
def test_towers_are_rewritten(tower: str) -> None:
    plain = portable(parse(f"root ::= {tower}"))
    assert loops(plain) == []
