"""Findings about grammars that parse, and the facts behind them against the independent recogniser."""

from __future__ import annotations

from random import Random
from time import thread_time

import pytest
from hypothesis import given, settings

from espalier.errors import GrammarError
from espalier.grammar.analysis import left_recursive_groups
from espalier.grammar.ast import EMPTY, Grammar, Rule, RuleRef
from espalier.grammar.check import check, left_recursive_cycles, nullable, productive, reachable, validate
from espalier.grammar.parser import parse
from espalier.grammar.sample import sample
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import small_grammars


def codes(text: str) -> list[tuple[str, str, str | None]]:
    return [(found.severity, found.code, found.rule) for found in check(parse(text))]


def test_a_clean_grammar_has_no_findings() -> None:
    grammar = parse('root ::= a+\na ::= "x" | "(" root ")"')
    assert check(grammar) == []
    validate(grammar)


def test_undefined_rules_come_with_place_and_near_names() -> None:
    grammar = parse('root ::= "a" |\n  strin | nowhere | strin\nstring ::= "s"')
    first, second, *_ = check(grammar)
    assert (first.severity, first.code, first.rule) == ("error", "undefined-rule", "root")
    assert str(first.position) == "line 2, column 3"
    assert first.hint == "did you mean 'string'?"
    assert second.hint is None
    assert str(first).startswith("error: line 2, column 3: rule 'strin' is used and never defined (did you mean")
    with pytest.raises(GrammarError, match="'strin' is used and never defined at line 2, column 3") as caught:
        validate(grammar)
    assert "^strin" in caught.value.excerpt


def test_findings_of_a_built_grammar_have_no_excerpt() -> None:
    with pytest.raises(GrammarError, match="'x' is used and never defined"):
        validate(Grammar.of([Rule("root", RuleRef("x"))]))
    with pytest.raises(GrammarError, match="no rule named 'root'"):
        validate(Grammar.of([Rule("a", EMPTY)]))


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "a" root',
        "root ::= root",
        'root ::= a\na ::= "(" b ")"\nb ::= a "x" | "y" b',
        r'root ::= "a" [^\x00-\U0010FFFF]',
        r"root ::= [^\x00-\uD7FF\uE000-\U0010FFFF]",
    ],
)
def test_empty_languages_are_errors(text: str) -> None:
    grammar = parse(text)
    assert "empty-language" in {found.code for found in check(grammar)}
    assert not Recogniser(grammar).viable("")
    with pytest.raises(GrammarError, match="no finite sentence at line 1, column 1"):
        validate(grammar)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('root ::= "a"\nx ::= "b"', ("warning", "unreachable-rule", "x")),
        ('root ::= "a" | x\nx ::= "b" x', ("warning", "dead-rule", "x")),
        ('root ::= x\nx ::= "a"\nx ::= "b"', ("warning", "replaced-rule", "x")),
        ('root ::= root "a" | "b"', ("note", "left-recursion", "root")),
        ('root ::= ("a"?)*', ("note", "nullable-loop", "root")),
        ("root ::= a{2,3}\na ::= | [x]", ("note", "nullable-loop", "root")),
        ('root ::= my_rule\nmy_rule ::= "a"', ("note", "llama-cpp", "my_rule")),
        ('root ::= "a"{0,2001}', ("note", "llama-cpp", "root")),
        ('root ::= "a"{2001}', ("note", "llama-cpp", "root")),
        ('root ::= ("a"{0,99}"b"){0,99}', ("note", "llama-cpp", "root")),
    ],
)
def test_warnings_and_notes(text: str, found: tuple[str, str, str]) -> None:
    assert codes(text) == [found]
    validate(parse(text))


@pytest.mark.parametrize(
    "text", ['root ::= "a"{2000}', 'root ::= "a"{0,2000}', 'root ::= ("a"?)?', 'root ::= ("a"?){0,1}']
)
def test_what_is_fine_is_not_noted(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ('root ::= root "a" | "b"', [("root",)]),
        ('root ::= a\na ::= b "x"\nb ::= a "y" | "z"', [("a", "b")]),
        ('root ::= ws root "x" | "y"\nws ::= " "*', [("root",)]),
        ('root ::= ("a" | root)+ "b"', [("root",)]),
        ('root ::= root{0} "a"', []),
        ('root ::= "a" root | "b"', []),
        ('root ::= x y\nx ::= x "1" | "2"\ny ::= z\nz ::= "a"? y "b" | "c"', [("x",), ("y", "z")]),
        ('root ::= a\na ::= b | c\nb ::= c "1"\nc ::= a "2" | "3"', [("a", "c")]),
    ],
)
def test_cycles_are_named(text: str, cycles: list[tuple[str, ...]]) -> None:
    grammar = parse(text)
    assert left_recursive_cycles(grammar) == cycles
    notes = [found.message for found in check(grammar) if found.code == "left-recursion"]
    assert len(notes) == len(cycles)
    for note, cycle in zip(notes, cycles, strict=True):
        assert " → ".join((*cycle, cycle[0])) in note


@given(small_grammars)
@settings(max_examples=examples(150), deadline=None)
def test_facts_agree_with_the_recogniser(grammar: Grammar) -> None:
    for name in grammar.rules:
        oracle = Recogniser(Grammar(grammar.rules, name))
        assert (name in nullable(grammar)) == oracle.accepts("")
        assert (name in productive(grammar)) == oracle.viable("")
    cycles, groups = left_recursive_cycles(grammar), left_recursive_groups(grammar)
    assert all(cycle[0] == group[0] and set(cycle) <= set(group) for cycle, group in zip(cycles, groups, strict=True))


def test_reachable_needs_a_way_from_the_root() -> None:
    grammar = parse('root ::= a | missing\na ::= "x" root\nb ::= c\nc ::= b')
    assert reachable(grammar) == {"root", "a"}


LARGE = {
    "chain": lambda n: ["root ::= r0", *(f'r{i} ::= "a" r{i + 1}?' for i in range(n)), f'r{n} ::= "x"'],
    "wide": lambda n: ["root ::= " + " | ".join(f"r{i}" for i in range(n)), *(f'r{i} ::= "{i}"' for i in range(n))],
    "from the end": lambda n: [*(f"r{i} ::= r{i - 1}" if i else 'r0 ::= "x"' for i in range(n)), f"root ::= r{n - 1}"],
    "ring": lambda n: ["root ::= r0", *(f'r{i} ::= r{(i + 1) % n} "a" | "b"' for i in range(n))],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "size"), [("chain", 100_000), ("wide", 100_000), ("from the end", 20_000), ("ring", 20_000)]
)
def test_a_hundred_thousand_rules(shape: str, size: int) -> None:
    started = thread_time()
    grammar = parse("\n".join(LARGE[shape](size)))
    assert len(grammar.rules) > size
    findings = check(grammar)
    assert [found.code for found in findings] == (["left-recursion"] if shape == "ring" else [])
    assert all(len(found.message) < 200 for found in findings)
    assert thread_time() - started < 60  # some 5 s on an idle machine; quadratic would be hours


def test_a_deep_grammar_is_checked_and_sampled() -> None:
    grammar = parse("root ::= " + '("a" ' * 10_000 + '"b"' + ")?" * 10_000)
    assert check(grammar) == []
    assert len(sample(grammar, Random(1), max_size=50)) <= 50
