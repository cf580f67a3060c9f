"""Printing: text that reads back as the same tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from espalier.grammar.ast import (
    EMPTY,
    NEVER,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Repeat,
    Rule,
    RuleRef,
    TokenRef,
    alt,
    seq,
)
from espalier.grammar.parser import parse
from espalier.grammar.printer import WIDTH, print_grammar, print_node
from tests.examples import examples
from tests.unit.grammar.trees import wild_grammars

A, B = Literal("a"), Literal("b")


@given(wild_grammars)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_printed_reads_back(grammar: Grammar) -> None:
    text = print_grammar(grammar)
    assert parse(text) == grammar
    assert parse(text.encode()) == grammar
    assert print_grammar(parse(text)) == text


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (EMPTY, '""'),
        (seq(EMPTY, A), '"" "a"'),
        (alt(A, EMPTY), '"a" | ""'),
        (seq(A, alt(A, B)), '"a" ("a" | "b")'),
        (alt(seq(A, B), A), '"a" "b" | "a"'),
        (alt(alt(A, B), A), '("a" | "b") | "a"'),
        (seq(seq(A, B), A), '("a" "b") "a"'),
        (Repeat(seq(A, B)), '("a" "b")*'),
        (Repeat(EMPTY), "()*"),
        (Repeat(Repeat(A, 2, 2), 2, 2), '("a"{2}){2}'),
        (Repeat(A, 1), '"a"+'),
        (Repeat(A, 0, 1), '"a"?'),
        (Repeat(A, 2), '"a"{2,}'),
        (Repeat(A, 0, 3), '"a"{0,3}'),
        (Literal('say "\\"\n\t\r\0\x7f'), r'"say \"\\\"\n\t\r\x00\x7F"'),
        (Literal("é\u00a0\u2028😀\ufeff"), r'"é\xA0\u2028😀\uFEFF"'),
        (Literal("\U0001f3fb\U000e0001"), '"\U0001f3fb\\U000E0001"'),
        (CharClass(((45, 45), (91, 94))), r"[\x2D[-\x5E]"),
        (CharClass(((97, 98),)), "[ab]"),
        (CharClass(((97, 99),), negated=True), "[^a-c]"),
        (NEVER, r"[^\x00-\U0010FFFF]"),
        (AnyChar(), "."),
        (TokenRef("<think>", negated=True), "!<think>"),
        (TokenRef(id=5), "<[5]>"),
        (RuleRef("a-b"), "a-b"),
    ],
)
def test_how_nodes_look(node, text: str) -> None:
    assert print_node(node) == text
    assert parse(f"root ::= {text}").rules["root"].body == node


def test_long_alternatives_go_over_lines_that_end_with_a_bar() -> None:
    body = alt(*[Literal("word" * 4)] * 20, EMPTY, alt(A, B))
    text = print_grammar(Grammar.of([Rule("root", body)]))
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert all(line.endswith("|") for line in text.splitlines()[1:-1])
    assert parse(text).rules["root"].body == body


def test_deep_trees_are_printed() -> None:
    node = A
    for _ in range(10_000):
        node = Repeat(seq(A, node), 0, 1)
    assert parse(f"root ::= {print_node(node)}").rules["root"].body == node
