"""The word graph against Daciuk's, and the loop around it against a regular expression."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.automata.languages import words as module
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.nfa import word_graph
from espalier.automata.languages.words import word_table
from espalier.automata.phrases.word_loop import WordParts, word_loop
from espalier.errors import GrammarError, LimitExceeded

WORDS = st.lists(st.binary(max_size=6) | st.text("aéb", max_size=4).map(str.encode), min_size=1, max_size=30)


@given(WORDS)
def test_the_graph_has_exactly_the_words_and_is_the_smallest(words):
    found = word_table(words)
    assert len(found.table) == len(word_graph(words))
    for word in words:
        assert found.ends[found.walk(word)]
        for other in (word + b"a", word[:-1], b"\x00" + word):
            state = found.walk(other)
            assert (state >= 0 and bool(found.ends[state])) == (other in words)


@pytest.mark.slow
def test_long_words_and_many_words_do_not_need_a_rectangle(monkeypatch):
    one = Dfa.of_words(["a" * 100_000, "b"])
    assert one.accepts(b"a" * 100_000)
    assert not one.accepts(b"a" * 99_999)
    monkeypatch.setattr(module, "MAX_CELLS", 1)
    assert len(word_table([b"ab", b"cb"]).table) == 3


def test_bytes_that_end_c_strings_are_letters_too():
    found = word_table([b"a", b"a\x00", b"\x00\x00b"])
    for word in (b"a", b"a\x00", b"\x00\x00b"):
        assert found.ends[found.walk(word)]
    assert not found.ends[found.walk(b"\x00")]


LETTERS = st.text("abé", min_size=1, max_size=3)


@given(
    st.lists(LETTERS, min_size=1, max_size=6),
    st.lists(LETTERS.map(lambda w: w + "'"), max_size=2),
    st.lists(LETTERS.map(lambda w: "'" + w), max_size=2),
    st.booleans(),
    st.integers(1, 3),
    st.lists(st.sampled_from(["a", "b", "é", "'", " ", ".", "A", "É", "-", "1"]), max_size=12).map("".join),
)
def test_the_loop_is_the_regular_expression_it_stands_for(words, elided, clitics, spaced, run, text):
    words, elided, clitics = sorted(set(words)), sorted(set(elided)), sorted(set(clitics))
    loop = word_loop(
        WordParts(
            words=[w.encode() for w in words],
            elided=[w.encode() for w in elided],
            clitics=[w.encode() for w in clitics],
            separators=[b" ", b"."],
            ends=[b"."],
            hyphens=[b"-"],
            digits=[b"1"],
            joints=[],
            max_run=run,
            spaced=spaced,
        )
    )
    word = f"(?:{'|'.join(map(re.escape, words))})"
    before = f"(?:{'|'.join(map(re.escape, elided)) or '(?!)'})*"
    after = f"(?:{'|'.join(map(re.escape, clitics)) or '(?!)'})*"
    chain = f"{before}{word}{after}"
    unit = f"(?:{chain}(?:-{chain})*|1{{1,12}})"
    pause = f"(?<![ .])[ .]{{1,{run}}}(?![ .])"
    pattern = f"(?:{pause})?{unit}(?:{pause}{unit})*(?:{pause})?" if spaced else f"(?:{pause})?(?:{unit}(?:{pause})?)+"
    assert loop.accepts(text.encode()) == (re.fullmatch(pattern, text) is not None), pattern


def test_a_capital_only_where_a_sentence_starts():
    parts = WordParts(words=[b"ab", b"abc"], capitals=[(b"A", b"a")], separators=[b" ", b"."], ends=[b"."])
    loop = word_loop(parts)
    for text in (b"Ab", b"ab", b"ab. Abc ab", b". Ab", b" Ab", b"ab.Ab"):
        assert loop.accepts(text), text
    for text in (b"ab Ab", b"aB", b"AbAb", b"ab. ab Ab"):
        assert not loop.accepts(text), text


def test_only_words_that_need_another_word_are_nothing_to_say():
    with pytest.raises(GrammarError, match="no text"):
        word_loop(WordParts(words=[], elided=[b"l'"], separators=[b" "], ends=[]))


def test_a_name_with_a_zero_byte_is_not_let_in_by_an_empty_list():
    loop = word_loop(WordParts(words=[], names=[b"Ada"], separators=[b" "], ends=[]))
    assert loop.accepts(b"Ada Ada")
    assert not loop.accepts(b"\x00")
    assert not loop.accepts(b"")


def test_more_states_than_allowed_are_refused():
    with pytest.raises(LimitExceeded, match="fewer words"):
        word_loop(WordParts(words=[b"ab"], separators=[b" "], ends=[]), max_states=5)


@given(st.lists(LETTERS, min_size=1, max_size=12))
def test_the_loop_adds_few_states_to_the_smallest_automaton(words):
    parts = WordParts(words=[w.encode() for w in words], separators=[b" ", b".", "…".encode()], ends=[b"."])
    loop = word_loop(parts)
    assert len(loop) <= len(loop.minimised()) + 5 * parts.max_run + 10
