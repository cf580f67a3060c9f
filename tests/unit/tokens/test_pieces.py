"""Decoders of pieces: what one adds to a text is what the library adds, and what looks at neighbours is refused."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.errors import VocabError
from espalier.tokens.readers import read_tokenizer
from tests.tokenizers import byte_level_spec, tokenizer_from

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("decoders", "piece", "wanted"),
    [
        ([{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}], "▁a▁b", b" a b"),
        ([{"type": "Strip", "content": "_", "start": 1, "stop": 2}], "__a___", b"_a_"),
        ([{"type": "ByteFallback"}], "<0xe2>", b"\xe2"),
        ([{"type": "ByteFallback"}], "<0x100>", b"<0x100>"),
        ([BYTE_LEVEL], "Ġñ▁", "Ġñ▁".encode()),  # not of the alphabet as a whole: taken as it stands
        ([{"type": "Sequence", "decoders": [BYTE_LEVEL]}], "ĠaĊ", b" a\n"),  # nested
    ],
)
def test_decoder_steps_give_the_bytes_that_the_library_gives(
    decoders: list[dict[str, Any]], piece: str, wanted: bytes
) -> None:
    model = {"type": "WordLevel", "vocab": {"x": 0, piece: 1}, "unk_token": "<none>"}
    spec = byte_level_spec(model=model, added_tokens=[], decoder={"type": "Sequence", "decoders": decoders})
    tokenizer = tokenizer_from(spec)
    assert read_tokenizer(tokenizer).tokens[1] == wanted
    assert tokenizer.decode([0, 1]) == (b"x" + wanted).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder": None}, "no decoder"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "WordPiece decoder"),
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, "BPEDecoder"),
        (
            {"decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}},
            "CTC decoder",
        ),
        ({"decoder": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}}, "regular expression"),
        (
            {
                "decoder": {
                    "type": "Sequence",
                    "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": " ."}, "content": "."}],
                }
            },
            "across tokens",
        ),
        (
            {
                "decoder": {
                    "type": "Sequence",
                    "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}],
                }
            },
            "strips the end",
        ),
    ],
)
def test_a_decoder_that_looks_at_neighbours_is_refused_not_guessed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VocabError, match=message) as caught:
        read_tokenizer(tokenizer_from(byte_level_spec(**changes)))
    assert caught.value.hint


def test_wordpiece_is_refused_with_a_hint() -> None:
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(VocabError, match="where spaces go") as caught:
        read_tokenizer(tokenizer)
    assert "byte-level or SentencePiece" in str(caught.value.hint)


def test_an_end_of_word_suffix_is_refused_as_the_text_does_not_hold_it() -> None:
    spec = byte_level_spec()
    spec["model"]["end_of_word_suffix"] = "</w>"
    with pytest.raises(VocabError, match="where spaces go"):
        read_tokenizer(tokenizer_from(spec))
