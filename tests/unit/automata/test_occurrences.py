"""Phrases in running text: against Python's `in`, and masks against every token tried."""

import codecs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.automata.masks.regular import RegularMachine
from espalier.automata.phrases.occurrences import MAX_CELLS, MAX_PHRASE, avoiding, search, until
from espalier.errors import LimitExceeded
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab

ALPHABET = "abéè日本🌳"  # é and è share their first byte, 日 and 本 do not share their second
PHRASES = st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=6)
TEXT = st.text(ALPHABET + "c", max_size=12)


def encoded(phrases):
    return [phrase.encode() for phrase in phrases]


@given(PHRASES, TEXT)
def test_avoiding_is_in(phrases, text):
    assert avoiding(encoded(phrases)).accepts(text.encode()) == (not any(phrase in text for phrase in phrases))


@given(PHRASES, TEXT)
def test_until_is_the_first_occurrence_at_the_end(phrases, text):
    data, marks = text.encode(), encoded(phrases)
    first = any(data.endswith(mark) for mark in marks) and not any(mark in data[:-1] for mark in marks)
    assert until(marks).accepts(data) == first


@given(PHRASES, st.binary(max_size=6))
def test_only_utf_8_is_text(phrases, data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert not avoiding(encoded(phrases)).accepts(data)
    else:
        assert avoiding(encoded(phrases)).accepts(data) == (not any(phrase in text for phrase in phrases))


@given(PHRASES, TEXT)
def test_a_state_knows_the_longest_phrase_that_has_begun(phrases, text):
    found = search(encoded(phrases))
    state, data = found.avoiding.start, b""
    for byte in text.encode():
        state = found.avoiding.step(state, byte)
        if state < 0:
            return
        data += bytes([byte])
        ends = [data[at:] for at in range(len(data) + 1) if any(p.startswith(data[at:]) for p in encoded(phrases))]
        assert found.begun(state) == ends[0]


@given(PHRASES)
def test_no_state_is_a_dead_end(phrases):
    for dfa in (avoiding(encoded(phrases)), until(encoded(phrases))):
        live = dfa.accepting.copy()
        for _ in range(len(dfa)):
            live |= ((dfa.table >= 0) & live[dfa.table]).any(axis=1)
        assert live.all()


def test_a_character_that_could_only_be_banned_is_not_begun():
    every = [chr(code) for code in range(0xC0, 0x100)]  # all that begin with the byte c3
    dfa = avoiding(encoded(every))
    assert dfa.step(dfa.start, 0xC3) == -1
    assert dfa.accepts("¿x".encode())
    ends = until(encoded(every))
    assert ends.accepts("xé".encode())
    assert not ends.accepts("éx".encode())


@given(PHRASES, TEXT)
def test_masks_are_every_token_that_stays_clear(phrases, text):
    pieces = ["a", "b", "ab", "ba", "éa", "日本", "c", "🌳", "aab"]
    tokens = [bytes([byte]) for byte in range(256)] + encoded(pieces)
    tokens += ["日".encode()[:2], "本".encode()[1:], "é".encode()[1:] + b"a", b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1])
    machine = RegularMachine(avoiding(encoded(phrases)), vocab, build_trie(vocab.tokens))
    state, said = machine.start, ""
    for char in text:
        if any(phrase in said + char for phrase in phrases):
            break
        said += char
        for byte in char.encode():
            state = machine.step(state, byte)
    wanted = {i for i, data in enumerate(tokens) if data and clear(said.encode() + data, encoded(phrases))}
    assert set(masks.allowed_ids(machine.mask(state), vocab.width).tolist()) == wanted


def clear(data, phrases):
    """Whether some text without the phrases begins with these bytes."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    if any(phrase in data for phrase in phrases):
        return False
    some = [bytes([byte]) for byte in range(0x80, 0xC0)]
    ends = [b"", *some, *(b"\x80" + one for one in some), *(one + b"\x80" for one in some)]
    ends += [one + b"\x80\x80" for one in some]
    return any(whole(data + end) and not any(phrase in data + end for phrase in phrases) for end in ends)


def whole(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_ten_thousand_phrases_fit():
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz éñ"))
    phrases = ["".join(row) for row in letters[rng.integers(0, len(letters), (10_000, 20))]]
    dfa = avoiding(encoded(phrases))
    assert len(dfa) > 150_000
    assert dfa.table.nbytes < 60 * 2**20
    for phrase in phrases[::500]:
        assert not dfa.accepts(f"a {phrase}.".encode())
        assert dfa.accepts(f"a {phrase[:-1]}.".encode())


@pytest.mark.parametrize("phrases", [[], [b""], [b"a", b""], [b"\xff"], ["é".encode()[:1]]])
def test_what_is_no_phrase_is_refused(phrases):
    with pytest.raises(ValueError):
        avoiding(phrases)


def test_limits_end_in_an_error():
    with pytest.raises(LimitExceeded, match="states"):
        avoiding([b"abcdefghij"], max_states=10)
    with pytest.raises(LimitExceeded, match="bytes"):
        avoiding([b"a" * (MAX_PHRASE + 1)])
    many = [f"{i:x}".encode() * 40 + bytes(range(32, 127)) for i in range(8000)]
    with pytest.raises(LimitExceeded, match=str(MAX_CELLS)):
        until(many)
