"""Vocabularies: what an id stands for, which ids are special, and when two vocabularies are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import VocabError
from espalier.tokens.vocab import Vocab
from tests.tokenizers import byte_level_tokenizer, byte_level_vocab, spm_vocab


def small(**changes: object) -> Vocab:
    given_fields: dict[str, object] = {"eos_ids": [2], "special_ids": {2: "<end>"}, "width": 6}
    return Vocab.from_tokens([b"a", b"\xc3", b"", b"ab"], **{**given_fields, **changes})  # type: ignore[arg-type]


def test_the_byte_vocabulary_is_made_once() -> None:
    """Compiling without a vocabulary takes it each time; making it costs more than a small constraint."""
    assert Vocab.bytes() is Vocab.bytes()


def test_the_byte_vocabulary_has_ids_equal_to_byte_values() -> None:
    vocab = Vocab.bytes()
    assert (vocab.width, vocab.eos_ids, len(vocab)) == (257, (256,), 257)
    assert vocab.decode("añ🌳".encode()) == "añ🌳".encode()
    assert vocab.missing_bytes() == b""


@settings(deadline=None)
@given(st.text())
def test_decoding_what_the_encoder_gave_is_the_text(text: str) -> None:
    vocab = byte_level_vocab()
    assert vocab.encoder is not None
    assert vocab.decode(vocab.encoder(text)) == text.encode()


def test_special_tokens_and_padding_add_nothing_to_a_text() -> None:
    vocab = small()
    assert vocab.decode([0, 2, 3, 5]) == b"aab"
    assert [vocab.bytes_of(i) for i in (2, 4, 5)] == [b"", b"", b""]


def test_bytes_given_for_a_special_token_are_its_spelling_not_text() -> None:
    vocab = Vocab.from_tokens([b"a", b"</s>"], eos_ids=[1])
    assert vocab.tokens[1] == b""
    assert vocab.special_texts == {1: "</s>"}
    assert vocab.text_of(1) == "</s>"


def test_a_special_without_a_spelling_gets_one_by_its_id() -> None:
    assert Vocab.from_tokens([b"a"], eos_ids=[3], width=4).special_texts == {3: "<[3]>"}


@pytest.mark.parametrize("token", [-1, 6])
def test_an_id_outside_the_logits_has_no_bytes_to_give(token: int) -> None:
    with pytest.raises(IndexError):
        small().bytes_of(token)


def test_ids_without_bytes_or_spelling_are_padding() -> None:
    vocab = small()
    assert vocab.real_ids.tolist() == [True, True, True, True, False, False]
    assert (vocab.padding_count, vocab.has_padding) == (2, True)
    assert not Vocab.bytes().has_padding


def test_part_of_a_character_is_shown_as_a_replacement() -> None:
    assert small().text_of(1) == "\ufffd"


def test_special_id_is_found_by_its_spelling() -> None:
    assert small().special_id("<end>") == 2
    assert small().special_id("a") is None


def test_bytes_that_no_single_token_can_write_are_named() -> None:
    missing = small().missing_bytes()
    assert b"b" in missing
    assert b"a" not in missing
    assert b"\xff" not in missing  # occurs in no UTF-8 text
    assert spm_vocab().missing_bytes() == b""


@pytest.mark.parametrize(
    "changes",
    [{"width": 7}, {"eos_ids": [2, 3]}, {"special_ids": {2: "<stop>"}}, {"special_ids": {2: "<end>", 0: "a"}}],
)
def test_a_mask_cached_for_one_vocabulary_is_not_taken_for_another(changes: dict[str, object]) -> None:
    assert small(**changes).fingerprint != small().fingerprint
    assert small(**changes) != small()


def test_moving_a_byte_from_one_token_to_the_next_changes_the_fingerprint() -> None:
    first = Vocab.from_tokens([b"ab", b"c", b""], eos_ids=[2])
    assert first != Vocab.from_tokens([b"a", b"bc", b""], eos_ids=[2])


def test_name_and_encoder_do_not_make_another_vocabulary() -> None:
    same = small(name="other", encoder=lambda text: [])
    assert same == small()
    assert hash(same) == hash(small())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 3}, "width 3 is less than the 4 tokens"),
        ({"eos_ids": []}, "at least one EOS"),
        ({"eos_ids": [6]}, r"special id 6 is outside 0\.\.5"),
        ({"special_ids": {-1: "<x>"}}, "special id -1"),
        ({"special_ids": {0: "a", 1: "b", 2: "c", 3: "d"}}, "at least one token with bytes"),
    ],
)
def test_an_impossible_vocabulary_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(VocabError, match=message):
        small(**changes)


def test_the_models_logits_may_be_wider_than_the_tokenizer() -> None:
    vocab = Vocab.from_tokenizer(byte_level_tokenizer(), width=512)
    assert (vocab.width, len(vocab)) == (512, len(byte_level_vocab()))
    assert vocab.bytes_of(511) == b""


def test_eos_ids_of_the_caller_replace_the_tokenizers_and_the_others_stay_special() -> None:
    vocab = Vocab.from_tokenizer(byte_level_tokenizer(), eos_ids=[0])
    assert vocab.eos_ids == (0,)
    assert vocab.special_id("<|im_end|>") == 2
