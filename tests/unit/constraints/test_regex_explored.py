"""A pattern that is explored on demand allows what its automaton allows, built as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import CompiledAutomaton, compile_source
from espalier.constraints.spec import Choice, JsonSchema, Regex
from espalier.constraints.text import (
    MOST_EXPLORED,
    _regex,
    _words,
    compile_explored,
    expression_start,
    regex_grammar,
    words_start,
)
from espalier.errors import RegexError
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.unit.grammar.test_ambiguity import NARROW, WIDE

WORDS = [
    "ab",
    "abc",
    "aa",
    "aaaa",
    "a ",
    " a",
    "12",
    "-0",
    "x.",
    '"a',
    '\\"',
    "é",
    "läu",
    "😀😀",
    "\n",
    "the quick",
    "bb b",
]
PATTERNS = [
    *[pattern for pattern in NARROW if "{0,100}" not in pattern],
    *[pattern for pattern in WIDE if len(pattern) < 20 and "300" not in pattern and "1000" not in pattern],
    "",
    "a{0}",
    "(a|b|)c?",
    "[^a]{2,}",
    r"\S{3,9}\s?",
    "(?s:.){0,6}",
    "(ab|a)(bc|c)?",
    "((a|ab)(c|bcd)){1,3}",
    "é{1,3}|läu+",
]


@cache
def compiler() -> Compiler:
    tokens = [*([bytes([byte]) for byte in range(256)]), *(word.encode() for word in WORDS), b""]
    return Compiler(Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1], name="small"))


def both(pattern: str) -> tuple[CompiledAutomaton, CompiledAutomaton]:
    """The pattern explored, and built."""
    made, source, spec = compiler(), _regex(Regex(pattern)), Regex(pattern)
    explored = compile_explored(expression_start(regex_grammar(spec).rules[source.root].body), source, spec, made)
    return explored, compile_source(source, spec, made.far, made.vocab, made.trie)


def both_of_words(words: Sequence[str]) -> tuple[CompiledAutomaton, CompiledAutomaton]:
    """A choice, explored and built."""
    made, spec = compiler(), Choice(words)
    explored = compile_explored(words_start(words), _words(spec), spec, made)
    return explored, compile_source(_words(spec), spec, made.far, made.vocab, made.trie)


def walk(compiled: tuple[CompiledAutomaton, CompiledAutomaton], seed: int, steps: int = 40) -> None:
    """One random text, of which every mask and every answer is compared."""
    random, width = Random(seed), compiler().vocab.width
    one, other = (each.matcher() for each in compiled)
    for _ in range(steps):
        mask = one.mask()
        assert bytes(mask) == bytes(other.mask()), compiled[0].spec
        assert one.is_accepting == other.is_accepting
        assert len(one.shortest_completion()) == len(other.shortest_completion())
        assert one.forced() == other.forced()
        allowed = masks.allowed_ids(mask, width).tolist()
        refused = random.randrange(width)
        assert one.allows(refused) == other.allows(refused) == (refused in allowed)
        if one.is_finished or not allowed:
            break
        token = random.choice(allowed)
        one.advance(token)
        other.advance(token)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_these_patterns_allow_the_same_explored_and_built(pattern: str) -> None:
    for seed in range(3):
        walk(both(pattern), seed)


atoms = st.sampled_from(["a", "b", "ab", " ", "[ab]", "[^a]", ".", r"\d", r"\w", "é", "1", '"'])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,40}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)


@given(patterns, st.integers(0, 99))
@settings(max_examples=examples(120), deadline=None)
def test_drawn_patterns_allow_the_same_explored_and_built(pattern: str, seed: int) -> None:
    walk(both(pattern), seed, steps=15)


letters = st.sampled_from(["a", "b", "ab", " ", "é", "läu", "1", '"', "the quick", "😀"])


@given(st.lists(st.lists(letters, max_size=4).map("".join), min_size=1, max_size=30), st.integers(0, 99))
@example(["ab", "a", "abc", "", "aaaa", "aa", "ab"], 1)
@settings(max_examples=examples(120), deadline=None)
def test_drawn_words_allow_the_same_explored_and_built(words: list[str], seed: int) -> None:
    walk(both_of_words(words), seed, steps=12)


def test_a_long_choice_and_a_pattern_of_words_are_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word {number} of {number * 7919 % 3000}" for number in range(3_000)]
    vocab, made = compiler().vocab, Compiler(compiler().vocab)
    monkeypatch.setattr(made.far, "build", None)
    for spec in (Choice(words), Regex("|".join(words[:90]))):
        matcher = made.compile(spec).matcher()
        for byte in words[77].encode():
            assert masks.test(matcher.mask(), byte)
            matcher.advance(byte)
        assert matcher.is_accepting
        assert masks.allowed_ids(matcher.mask(), vocab.width).tolist() == [*vocab.eos_ids]


def test_what_is_narrow_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler(compiler().vocab)

    def build(*args: object) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr(made.far, "build", build)
    assert made.compile(Regex(r"[a-z]{1,5000}( \w+)*")).matcher().mask().any()
    for pattern in (".*a.{300}", "a" * (MOST_EXPLORED + 1)):
        with pytest.raises(AssertionError, match="it was built"):
            made.compile(Regex(pattern))


def test_a_pattern_without_any_text_is_refused_before_it_is_explored() -> None:
    with pytest.raises(RegexError, match="no text matches"):
        compiler().compile(Regex(r"a[^\s\S]b"))


def test_a_pattern_with_long_counts_is_no_longer_too_large() -> None:
    matcher = compiler().compile(Regex(r"\p{L}{1,400}( \p{L}{1,400}){0,1000}")).matcher()
    for byte in "läuft die Zeit".encode():
        assert masks.test(matcher.mask(), byte)
        matcher.advance(byte)
    assert matcher.is_accepting


COUNTED = [
    # What begins elsewhere leads to texts of so many characters, or to texts that a kind of characters ends.
    r"(?:[^\"]{0,3}zz\n|\t{0,3})",
    r"(?:[^\"]{0,3}z\n|\t*)",
    r"(?:[^\"\u0007]{0,3}z{1,4}\n|\t{0,3})",
    r"\d?(?:[^<]{0,2}>|9{0,3})",
    r"(?:1|[^\v]{1,6}\v)(?:\w{0,5} )?",
]


@pytest.mark.parametrize("pattern", COUNTED)
def test_texts_of_counted_length_are_not_taken_for_texts_of_any_length(pattern: str) -> None:
    """A token such as " was" was in the mask, and was refused when it was sampled."""
    vocab = Vocab.from_tokens(
        [*(bytes([byte]) for byte in range(256)), b" was", b"was", b"<think>", b"abcdefgh", b""], eos_ids=[260]
    )
    for spec, before in ((Regex(pattern), b""), (JsonSchema({"type": "string", "pattern": f"^(?:{pattern})$"}), b'"')):
        matcher = Compiler(vocab).compile(spec).matcher()
        for byte in before:
            matcher.advance(byte)
        for _ in range(4):
            mask = matcher.mask()
            allowed = [token for token in range(vocab.width) if matcher.allows(token)]
            assert masks.allowed_ids(mask, vocab.width).tolist() == allowed
            matcher.advance(next(token for token in (32, 97, *allowed) if token in allowed))
            if matcher.is_finished:
                break
