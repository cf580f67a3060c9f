"""`Vocab`: token ids, the bytes they stand for, and the model's width, as constraints need them.

How text is split into tokens is not known here; `tokens/readers.py` reads tokenizers. Special tokens (chat markers,
EOS, padding) are outside the byte language: their entry in `tokens` is `b""` and their spelling is in `special_texts`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.errors import VocabError
from espalier.tokens.readers import read_tokenizer
from espalier.tokens.vocab_file import Storage, read_vocab_file

TokenBytes: TypeAlias = bytes  # `Vocab.bytes` hides the builtin inside the class body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocab:
    """What a constraint needs to know about a tokenizer. Two vocabularies are equal if their fingerprints are.

    tokens: the bytes of each id, `len(tokens) <= width`; `b""` for special ids, unused ids and padding. eos_ids: the
    ids that end a text (generation config, chat end), in order; the first is the default. special_texts: the spelling
    of each special id (`{2: "<|im_end|>"}`), EOS ids included. width: V, the number of logits of the model, at least
    `len(tokens)`. encoder: text to ids as the tokenizer would split it, without special tokens; None if unknown.
    """

    tokens: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    special_texts: Mapping[int, str]
    width: int
    encoder: Callable[[str], list[int]] | None = None
    name: str = ""
    fingerprint: str = field(init=False)
    real_ids: NDArray[np.bool_] = field(init=False, repr=False)  # (V,), False for padding ids
    padding_count: int = field(init=False)
    _missing: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.width < len(self.tokens):
            raise VocabError(
                f"width {self.width} is less than the {len(self.tokens)} tokens there are",
                hint="width is the model's number of logits",
            )
        if not self.eos_ids:
            raise VocabError("a vocabulary needs at least one EOS id", hint="pass eos_ids=[...]")
        for token in (*self.eos_ids, *self.special_texts):
            if not 0 <= token < self.width:
                raise VocabError(f"special id {token} is outside 0..{self.width - 1}")
        if not any(self.tokens):
            raise VocabError("a vocabulary needs at least one token with bytes")
        # An id with neither bytes nor a spelling is padding; no sampler may ever take it (tokens/mask.py).
        real = np.zeros(self.width, dtype=np.bool_)
        real[: len(self.tokens)] = [bool(t) for t in self.tokens]
        real[list(self.special_texts)] = True
        real.setflags(write=False)
        object.__setattr__(self, "padding_count", self.width - int(np.count_nonzero(real)))
        object.__setattr__(self, "real_ids", real)
        single = {token[0] for token in self.tokens if len(token) == 1}
        possible = [b for b in range(256) if b not in (0xC0, 0xC1) and b < 0xF5]
        object.__setattr__(self, "_missing", bytes(b for b in possible if b not in single))
        digest = hashlib.sha256()
        for token_bytes in self.tokens:
            digest.update(len(token_bytes).to_bytes(4, "little"))
            digest.update(token_bytes)
        digest.update(repr((self.eos_ids, sorted(self.special_texts.items()), self.width)).encode())
        object.__setattr__(self, "fingerprint", digest.hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and other.fingerprint == self.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def has_padding(self) -> bool:
        """Whether the model has logits for ids that are not tokens."""
        return self.padding_count > 0

    @property
    def special_ids(self) -> frozenset[int]:
        """Every id outside the byte language, EOS included."""
        return frozenset(self.special_texts) | frozenset(self.eos_ids)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token adds to the text; `b""` for special tokens and padding. Raises IndexError outside
        `0..V-1`."""
        if not 0 <= token < self.width:
            raise IndexError(f"token id {token} is outside 0..{self.width - 1}")
        return self.tokens[token] if token < len(self.tokens) else b""

    def text_of(self, token: int) -> str:
        """A token for people: its text (U+FFFD for a part of a character), or the spelling of a special token."""
        if token in self.special_texts:
            return self.special_texts[token]
        return self.bytes_of(token).decode("utf-8", "replace")

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of a sequence; special tokens add nothing."""
        return b"".join(self.bytes_of(i) for i in ids)

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its spelling, or None."""
        return next((i for i, spelling in self.special_texts.items() if spelling == text), None)

    def missing_bytes(self) -> bytes:
        """Byte values, ascending, that occur in UTF-8 text but have no single-byte token."""
        return self._missing

    @staticmethod
    @cache
    def bytes() -> Vocab:
        """The byte vocabulary: ids 0-255 are byte values, 256 is EOS, width 257. It needs no model."""
        return Vocab.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_ids=[256], name="bytes")

    @staticmethod
    def from_tokens(
        tokens: Sequence[TokenBytes],
        *,
        eos_ids: Sequence[int],
        special_ids: Sequence[int] | Mapping[int, str] = (),
        width: int | None = None,
        encoder: Callable[[str], list[int]] | None = None,
        name: str = "",
    ) -> Vocab:
        """A vocabulary from a list of byte strings, index = id.

        special_ids: ids outside the byte language; a mapping gives their spellings, otherwise the spelling is the
        token's own bytes or `<[id]>`. EOS ids are always special. Raises VocabError.
        """
        for place, token_bytes in enumerate(tokens):
            if not isinstance(token_bytes, bytes | bytearray):
                raise VocabError(f"token {place} is {type(token_bytes).__name__}, not bytes", hint="text: encode it")
        eos_ids = [int(i) for i in eos_ids]  # numpy integers would change the fingerprint
        texts = {int(i): text for i, text in special_ids.items()} if isinstance(special_ids, Mapping) else {}
        width = len(tokens) if width is None else width
        for token in (*map(int, special_ids), *eos_ids):
            if not 0 <= token < width:
                raise VocabError(f"special id {token} is outside 0..{width - 1}")
            own = tokens[token].decode("utf-8", "replace") if token < len(tokens) else ""
            texts.setdefault(token, own or f"<[{token}]>")
        return Vocab(
            tokens=tuple(b"" if i in texts else bytes(t) for i, t in enumerate(tokens)),
            eos_ids=tuple(dict.fromkeys(eos_ids)),
            special_texts=texts,
            width=width,
            encoder=encoder,
            name=name,
        )

    @staticmethod
    def from_tokenizer(tokenizer: Any, *, eos_ids: Sequence[int] | None = None, width: int | None = None) -> Vocab:
        """From a Hugging Face tokenizer (fast or SentencePiece), a `tokenizers.Tokenizer`, a
        `sentencepiece.SentencePieceProcessor`, or the path of a `tokenizer.json` or a SentencePiece model.

        eos_ids: by default the tokenizer's EOS and its chat-end markers. width: the model's number of logits, by
        default the tokenizer's length. Raises VocabError if the tokenizer's bytes cannot be determined.
        """
        raw = read_tokenizer(tokenizer)
        return Vocab.from_tokens(
            raw.tokens,
            eos_ids=raw.eos_ids if eos_ids is None else eos_ids,
            special_ids=raw.special_texts,
            width=len(raw.tokens) if width is None else width,
            encoder=raw.encoder,
            name=raw.name,
        )

    @staticmethod
    def from_file(
        path: str | PathLike[str],
        *,
        storage: Storage = "text",
        eos_ids: Sequence[int] | None = None,
        width: int | None = None,
    ) -> Vocab:
        """From a plain file: one token on each line; or, with the suffix `.json`, an array of tokens or an object from
        token to id. It knows no encoder.

        storage: `text`, `byte_level` (`Ġthe`) or `sentencepiece` (`▁the`). eos_ids: by default the tokens that are
        spelled as known ends. Raises VocabError for a file that cannot be read or leaves one of the two open.
        """
        raw = read_vocab_file(Path(path), storage)
        return Vocab.from_tokens(
            raw.tokens,
            eos_ids=raw.eos_ids if eos_ids is None else eos_ids,
            special_ids=raw.special_texts,
            width=width,
            name=raw.name,
        )


def first_difference(first: Vocab, other: Vocab) -> int | None:
    """The lowest id that stands for other bytes, or another special token, in two vocabularies; None where there is
    none. Padding, and which ids end a text, do not count."""
    if first.tokens == other.tokens and first.special_texts == other.special_texts:
        return None
    for token in range(max(first.width, other.width)):
        meant = [
            (vocab.bytes_of(token), vocab.special_texts.get(token)) if token < vocab.width else (b"", None)
            for vocab in (first, other)
        ]
        if meant[0] != meant[1]:
            return token
    return None
