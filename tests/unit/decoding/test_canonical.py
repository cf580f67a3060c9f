"""What `Canonical.stable` promises, over tokenizers of every kind: every longer text is split as it begins."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from espalier.decoding.canonical import Canonical, shared
from espalier.tokens.vocab import Vocab
from espalier.wiring import demo_model
from tests.examples import examples
from tests.tokenizers import (
    byte_level_spec,
    byte_level_vocab,
    sentencepiece_processor,
    spm_vocab,
    tekken_vocab,
    tokenizer_from,
)

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
DIGITS_FROM_THE_RIGHT = r"\p{L}+|\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))|[^\p{L}\p{N}]+"
PIECES = ['{"', '"', '":', '","', "name", "a", "é", "日", "🌳", " ", "  ", "\n", "\t", "1", "23", "'", "l", "{", "}"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map("".join)


def cut_by(pattern: str, **model: object) -> Vocab:
    """The byte-level tokenizer, trained with GPT-2's pre-tokenizer, behind another."""
    spec = byte_level_spec()
    spec["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    return Vocab.from_tokenizer(tokenizer_from({**spec, "model": {**spec["model"], **model}}))


VOCABS = {
    "bytes": lambda: Vocab.from_tokens(
        Vocab.bytes().tokens, eos_ids=[256], special_ids={256: "</s>"}, encoder=lambda text: list(text.encode())
    ),
    "demo": lambda: Vocab.from_tokenizer(demo_model() / "tokenizer.json", eos_ids=[2]),
    "byte level": byte_level_vocab,
    "llama 3": lambda: cut_by(LLAMA_3),
    "ignore merges": lambda: cut_by(LLAMA_3, ignore_merges=True),
    "digits from the right": lambda: cut_by(DIGITS_FROM_THE_RIGHT),
    "byte fallback": spm_vocab,
    "unigram": lambda: Vocab.from_tokenizer(sentencepiece_processor()),
    "tekken": tekken_vocab,
}


@cache
def canonical_of(name: str) -> Canonical:
    vocab = VOCABS[name]()
    assert vocab.encoder is not None
    return Canonical(vocab, vocab.encoder)


@pytest.mark.parametrize("name", VOCABS)
@hypothesis_settings(max_examples=examples(150))
@given(text=TEXTS, more=TEXTS)
@example("it'l", "l")
@example("a  ", "b")
@example("a \t", "b")
@example("1234", "5")
@example('{"name":', '"')
def test_what_is_stable_begins_the_encoding_of_every_longer_text(name, text, more):
    splitter = canonical_of(name)
    found = splitter.stable(text.encode())
    longer = splitter.whole((text + more).encode())
    if longer is not None:
        assert longer[: len(found)] == found
    assert text.encode().startswith(splitter.vocab.decode(found))


@pytest.mark.parametrize("name", ["demo", "llama 3", "byte fallback", "unigram"])
@hypothesis_settings(max_examples=examples(60))
@given(text=TEXTS, place=st.integers(0, 60))
def test_bytes_that_are_no_whole_characters_wait(name, text, place):
    splitter = canonical_of(name)
    data = text.encode()[:place]
    found = splitter.stable(data)
    whole = splitter.whole(text.encode())
    if whole is not None:
        assert whole[: len(found)] == found
    assert splitter.stable(b"\xa9" + data) == ()


@pytest.mark.parametrize("name", VOCABS)
def test_little_is_held_back_of_compact_json(name):
    splitter = canonical_of(name)
    for text in ('{"name":"', '","email":"', '","tags":["', 'ing","enabled":'):
        whole = splitter.whole(text.encode())
        assert whole is not None
        assert len(whole) - len(splitter.stable(text.encode())) <= 2


def test_a_text_that_the_tokenizer_changes_is_not_split():
    vocab = Vocab.from_tokens(Vocab.bytes().tokens, eos_ids=[256], encoder=lambda text: list(text.lower().encode()))
    splitter = Canonical(vocab, lambda text: list(text.lower().encode()))
    assert splitter.whole(b"Ada") is None
    assert splitter.stable(b"Ada") == ()
    assert splitter.stable(b"ada") == (*b"ad",)
    assert splitter.going_on(b"", b"", tuple(b"Ada")) == ()


def test_what_comes_before_keeps_its_tokens():
    """`head` is looked at, so that digits are counted from where they begin; where it would merge, it is left alone."""
    splitter = canonical_of("demo")
    vocab = splitter.vocab

    def texts(head, held, forced):
        return [vocab.bytes_of(t) for t in splitter.going_on(head, held, tuple(vocab.encoder(forced)))]

    assert texts(b"", b"{", '"name":"') == [b'{"', b"name", b'":']
    assert texts(b"{", b"", '"name":"') == [b'"', b"name", b'":']
    assert texts(b"Ada", b'"', ',"email":"') == [b'",', b'"', b"email", b'":']


def test_how_many_are_shared():
    assert [shared(a, b) for a, b in (((), ()), ((1, 2), (1, 2, 3)), ((1, 2), (2,)), ((1, 2), (1, 3)))] == [0, 2, 0, 1]
