"""Vocabularies in the store: the same after reading, found by the beginning of a fingerprint, held to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from espalier.errors import InputError, OutputError, VocabError
from espalier.store.open import open_store
from espalier.store.packing import pack
from espalier.store.vocab_cache import VOCAB_CACHE
from espalier.tokens.kept import from_json, to_json
from espalier.tokens.vocab import Vocab


@pytest.fixture
def store(url):
    opened = open_store(url)
    yield opened
    opened.close()


def keep(store, vocab):
    store.save_vocab(vocab.fingerprint, to_json(vocab), tokens=len(vocab))


def read(store, beginning):
    fingerprint, body = store.vocab(beginning)
    return from_json(body, fingerprint)


@given(
    st.lists(st.binary(max_size=6), min_size=1, max_size=30).filter(lambda tokens: any(tokens[:-1])),
    st.text(max_size=5),
    st.integers(0, 3),
)
def test_a_vocabulary_comes_back_as_it_was(tokens, special, padding):
    last = len(tokens) - 1
    vocab = Vocab.from_tokens(
        tokens, eos_ids=[last], special_ids={last: special}, width=len(tokens) + padding, name="é\udcff"
    )
    again = from_json(to_json(vocab), vocab.fingerprint)
    assert again == vocab
    assert (again.tokens, again.eos_ids, again.special_texts) == (vocab.tokens, vocab.eos_ids, vocab.special_texts)
    assert (again.width, again.name) == (vocab.width, vocab.name)


def test_it_is_found_by_the_beginning_of_its_fingerprint_and_kept_once(store):
    vocab = Vocab.bytes()
    keep(store, vocab)
    keep(store, vocab)
    assert read(store, vocab.fingerprint[:8]) == vocab
    [row] = store.vocabs()
    assert (row["fingerprint"], row["tokens"], row["width"], row["name"]) == (vocab.fingerprint, 257, 257, "bytes")
    assert store.remove_vocab(vocab.fingerprint[:8]) == vocab.fingerprint
    assert store.vocabs() == []


@pytest.mark.parametrize("beginning", ["", "abc", "%%%%", "____", "ABCD", "0" * 65, "kept:abcd"])
def test_what_begins_no_fingerprint_is_refused(store, beginning):
    keep(store, Vocab.bytes())
    with pytest.raises(InputError, match="does not begin a fingerprint"):
        store.vocab(beginning)


def test_a_beginning_of_two_or_of_none_is_refused(store):
    found: dict[str, Vocab] = {}
    for number in range(2000):
        vocab = Vocab.from_tokens([b"a", str(number).encode(), b""], eos_ids=[2])
        other = found.setdefault(vocab.fingerprint[:4], vocab)
        if other != vocab:
            break
    keep(store, other)
    keep(store, vocab)
    with pytest.raises(InputError, match="several vocabularies"):
        store.vocab(vocab.fingerprint[:4])
    assert read(store, vocab.fingerprint) == vocab
    with pytest.raises(InputError, match="no vocabulary is kept"):
        store.remove_vocab("f" * 64)


def test_a_row_that_was_changed_is_no_vocabulary_of_its_fingerprint(store):
    vocab = Vocab.bytes()
    keep(store, vocab)
    with store.database.writing() as connection:
        connection.execute(update(VOCAB_CACHE).values(body=pack(to_json(vocab) | {"eos_ids": [255]}, what="v")))
    with pytest.raises(VocabError, match="is not what was kept"):
        read(store, vocab.fingerprint)
    with store.database.writing() as connection:
        connection.execute(update(VOCAB_CACHE).values(body=b"\0"))
    with pytest.raises(OutputError, match="damaged"):
        read(store, vocab.fingerprint)
