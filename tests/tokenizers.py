"""Small tokenizers of every supported kind, trained in the process that asks and kept there.

Tests share them; they know nothing of what is under test.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from espalier.tokens.vocab import Vocab

CORPUS = (
    '{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["math", "poetry"]}',
    '[1, 2.5, -3e10, true, false, null, {"nested": {"deep": [[]]}}]',
    "The quick brown fox jumps over the lazy dog; the dog does not mind at all.",
    "Una espaldera es un árbol guiado por una celosía: mañana, año, corazón, pingüino.",
    "Ein Spalier hält Äste, Straßen und Öl. 日本語のテキスト。 Привет, мир! 🌳🌿",
    "def walk(node):\n    for child in node:\n        yield child\n\n",
)


@cache
def byte_level_tokenizer() -> Any:
    """A GPT-2-style byte-level BPE `tokenizers.Tokenizer`: ChatML specials, EOS `<|im_end|>`, two text tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("    ", special=False)])
    return tokenizer


def byte_level_spec(**changes: Any) -> dict[str, Any]:
    """The `tokenizer.json` of `byte_level_tokenizer()` with some of its entries changed, for `tokenizer_from`."""
    return {**json.loads(byte_level_tokenizer().to_str()), **changes}


def tokenizer_from(spec: dict[str, Any]) -> Any:
    """A new `tokenizers.Tokenizer` from the content of a `tokenizer.json`."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(spec))


@cache
def spm_byte_fallback_tokenizer() -> Any:
    """A Llama-2-style `tokenizers.Tokenizer`: BPE over `▁`, byte fallback, a dummy space in front, EOS `</s>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trained.train_from_iterator(
        (line for line in CORPUS if line.isascii()), trainers.BpeTrainer(vocab_size=160, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in pieces[:3]])
    return tokenizer


@cache
def sentencepiece_model() -> bytes:
    """A serialised SentencePiece Unigram model with byte fallback, no normaliser, and one user-defined piece."""
    spm = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([*CORPUS] * 20),
        model_writer=written,
        model_type="unigram",
        vocab_size=360,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        user_defined_symbols=["<end_of_turn>", "▁▁"],
        control_symbols=["<pause>"],
        character_coverage=0.98,
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


@cache
def sentencepiece_processor() -> Any:
    """The `SentencePieceProcessor` of `sentencepiece_model()`."""
    return pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=sentencepiece_model())


@cache
def byte_level_vocab() -> Vocab:
    """The vocabulary of `byte_level_tokenizer()`: every byte has a token, some 420 ids."""
    return Vocab.from_tokenizer(byte_level_tokenizer())


@cache
def spm_vocab() -> Vocab:
    """The vocabulary of `spm_byte_fallback_tokenizer()`: each ASCII letter has two spellings, piece and byte."""
    return Vocab.from_tokenizer(spm_byte_fallback_tokenizer())


@cache
def tekken_tokenizer() -> Any:
    """Mistral's Tekken from the installed mistral-common: 131,072 ids, 1,000 of them special; skips without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it sets warning filters of its own as it is imported
        package = pytest.importorskip("mistral_common")
        tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    path = Path(package.__file__).parent / "data" / "tekken_240911.json"
    if not path.is_file():
        pytest.skip("mistral-common is here without tekken_240911.json")
    return tekken.Tekkenizer.from_file(path)


@cache
def tekken_vocab() -> Vocab:
    """The vocabulary of `tekken_tokenizer()`; skips where that is not installed."""
    return Vocab.from_tokenizer(tekken_tokenizer())


VOCABS: dict[str, Callable[[], Vocab]] = {
    "bytes": Vocab.bytes,
    "byte-level": byte_level_vocab,
    "sentencepiece": spm_vocab,
}
"""The vocabularies over which the laws of constraints are tested."""
