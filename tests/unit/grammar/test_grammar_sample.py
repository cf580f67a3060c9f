"""Random sentences: always in the language, never longer than asked, the same for the same generator."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.analysis import productive
from espalier.grammar.ast import Grammar
from espalier.grammar.builtin import builtin
from espalier.grammar.parser import parse
from espalier.grammar.sample import CHAR_COST, SentenceSampler, sample
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import small_grammars


def draws(text: str, count: int = 200, **options) -> set[str]:
    sampler, random = SentenceSampler(parse(text), **options), Random(5)
    return {sampler.draw(random, max_size=20) for _ in range(count)}


@given(small_grammars, st.integers(0, 30))
@settings(max_examples=examples(150), deadline=None)
def test_sentences_are_in_the_language_and_bounded(grammar: Grammar, size: int) -> None:
    if "root" not in productive(grammar):
        with pytest.raises(GrammarError, match="no finite sentence"):
            SentenceSampler(grammar)
        return
    oracle, sampler = Recogniser(grammar), SentenceSampler(grammar)
    for seed in range(5):
        sentence = sampler.draw(Random(seed), max_size=size)
        assert oracle.accepts(sentence)
        assert len(sentence) <= max(size, sampler.least / CHAR_COST)
        assert sentence == sampler.draw(Random(seed), max_size=size)


def test_all_sentences_of_a_finite_language_come_up() -> None:
    assert draws('root ::= ("a" | "b"?) [xy]{1,2}') == {
        first + rest for first in ("a", "b", "") for rest in ("x", "y", "xx", "xy", "yx", "yy")
    }


def test_recursion_ends() -> None:
    for text in (
        'root ::= root root | "a"',
        'root ::= root | root | "a"',
        'root ::= "(" root root ")" | "x"',
        'root ::= a\na ::= b | "x"\nb ::= a a a a a',
        'root ::= root "a" | ""',
        "root ::= (root?)* [x]",
    ):
        oracle = Recogniser(parse(text))
        assert all(oracle.accepts(sentence) and len(sentence) <= 20 for sentence in draws(text, 50))


def test_size_is_used() -> None:
    sampler = SentenceSampler(builtin("json"))
    lengths = [len(sampler.draw(Random(seed), max_size=150)) for seed in range(100)]
    assert max(lengths) > 75
    assert all(length <= 150 for length in lengths)


def test_the_least_sentence_counts_when_it_is_longer_than_the_size() -> None:
    assert sample(parse('root ::= "abcdef" | "abc" root | "gh"{50}'), Random(1), max_size=2) == "abcdef"
    assert sample(parse('root ::= "a"{50,}'), Random(1), max_size=2) == "a" * 50


def test_classes_give_what_is_in_them() -> None:
    assert draws("root ::= [^a-z]") >= set("0A~")
    assert all(len(text) == 1 and text not in "abc" for text in draws("root ::= [^a-c]"))
    assert draws("root ::= [ぁ-ぅ]") == set("ぁあぃいぅ")
    assert all(not 0xD800 <= ord(text) <= 0xDFFF for text in draws("root ::= .", 500))


def test_token_references() -> None:
    assert draws('root ::= <think> "a" <[5]> | !<x>') == {"<think>a<[5]>", "!<x>"}
    assert draws('root ::= (<think> | "a" | <[5]>* "b")', tokens="avoid") == {"a", "b"}
    with pytest.raises(UnsupportedError, match="every sentence"):
        SentenceSampler(parse('root ::= "a" <think>'), tokens="avoid")


def test_towers_of_counts_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="1000000 code points"):
        SentenceSampler(parse("root ::= " + "(" * 50 + '"a"' + "{1000})" * 50))
    assert sample(parse("root ::= " + "(" * 50 + '""' + "){1000}" * 50 + '"x"'), Random(1)) == "x"


def test_deep_grammars() -> None:
    grammar = parse("root ::= " + '("a" ' * 10_000 + '"b"' + ")?" * 10_000)
    assert set(sample(grammar, Random(1), max_size=30)) <= {"a"}
