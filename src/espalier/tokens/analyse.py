"""Analyse a vocabulary: counts, categories, searches, and tokens that the tokenizer itself never produces.

This module knows no command line, no model and no tokenizer library: the function that splits a text is an argument.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from espalier.computed import computed
from espalier.errors import InputError, NotAvailable, UnknownName
from espalier.json_record import JsonRecord
from espalier.nearest import nearest_or_all
from espalier.tokens.categories import CATEGORIES, category_of
from espalier.tokens.vocab import Vocab

Encode: TypeAlias = Callable[[str], Sequence[int]]
"""Text to ids, without special tokens."""

_NO_TEXT = frozenset({"special", "unused", "byte", "partial"})
"""Categories of tokens that are not the result of splitting a text."""

_HEX = re.compile(r"0x(?:[0-9A-Fa-f]{2})+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches(JsonRecord):
    """The results of a search; ids ascend.

    exact: tokens equal to the term. spaced: tokens equal to a space and the term. containing: all tokens with the term
    in their text, the others included. encoding: the ids that the term is split into; None if unknown.
    """

    term: str
    exact: tuple[int, ...]
    spaced: tuple[int, ...]
    containing: tuple[int, ...]
    encoding: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Glitch(JsonRecord):
    """A token whose own text is split into other tokens, so that the model may never have been trained on it.

    encoding: what its text is split into. reason: a short explanation.
    """

    id: int
    text: str
    encoding: tuple[int, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class VocabReport:
    """The analysis of a vocabulary; `espalier.analyse_vocab` returns it.

    categories: by id, `vocab.width` of them; `espalier.tokens.categories.CATEGORIES` describes them. texts: by id, the
    spelling of a special token, or else the token's text; a byte that is no part of a character is a lone surrogate,
    U+DC00 plus its value. encode: text to ids; None if unknown.
    """

    vocab: Vocab
    categories: tuple[str, ...]
    texts: tuple[str, ...]
    encode: Encode | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of ids in each category, in the order of CATEGORIES, without empty ones."""
        counts = Counter(self.categories)
        return {name: counts[name] for name in CATEGORIES if name in counts}

    def ids_in(self, category: str) -> tuple[int, ...]:
        """The ids of a category, ascending. Raises UnknownName, listing the categories."""
        if category not in CATEGORIES:
            raise UnknownName(
                f"unknown category {category!r}", hint=nearest_or_all(category, CATEGORIES), field="category"
            )
        return tuple(i for i, name in enumerate(self.categories) if name == category)

    def search(self, term: str, *, ignore_case: bool = False) -> Matches:
        """The tokens that contain a term; special tokens by their spelling. Raises InputError for an empty term."""
        _check_term(term)
        wanted, texts = (term.casefold(), self._folded) if ignore_case else (term, self.texts)
        containing = tuple(i for i, text in enumerate(texts) if wanted in text)
        return Matches(
            term=term,
            exact=tuple(i for i in containing if texts[i] == wanted),
            spaced=tuple(i for i in containing if texts[i] == f" {wanted}"),
            containing=containing,
            encoding=None if self.encode is None else tuple(map(int, self.encode(term))),
        )

    def containing(self, data: bytes) -> tuple[int, ...]:
        """The tokens that contain these bytes, regardless of character boundaries. Special tokens have no bytes."""
        if not data:
            raise InputError("there are no bytes to look for", field="contains")
        return tuple(i for i, token in enumerate(self.vocab.tokens) if data in token)

    def glitches(self) -> tuple[Glitch, ...]:
        """Tokens whose text is split into other tokens; special tokens and parts of characters are left out.

        These are candidates: some are merely never the first choice, such as the shorter of two spellings. One text is
        split per token, which takes a second or two for 100,000. Raises NotAvailable without `encode`.
        """
        encode = self.encode
        if encode is None:
            raise NotAvailable(
                f"it is not known how {self.vocab.name or 'this vocabulary'} splits a text",
                hint="read it from a tokenizer, or give `encode`",
            )
        texts = ((i, self.texts[i]) for i, name in enumerate(self.categories) if name not in _NO_TEXT)
        split = ((i, text, tuple(map(int, encode(text)))) for i, text in texts)
        return tuple(
            Glitch(id=i, text=text, encoding=ids, reason=_reason(self.vocab, i, ids))
            for i, text, ids in split
            if ids != (i,)
        )

    def to_json(self) -> dict[str, Any]:
        """The summary, without searches."""
        vocab = self.vocab
        return {
            "name": vocab.name,
            "tokens": vocab.width - vocab.padding_count,
            "ids": len(vocab),
            "width": vocab.width,
            "eos_ids": list(vocab.eos_ids),
            "specials": [{"id": i, "text": text} for i, text in sorted(vocab.special_texts.items())],
            "missing_bytes": list(vocab.missing_bytes()),
            "categories": self.counts,
        }

    @computed
    def _folded(self) -> tuple[str, ...]:
        return tuple(text.casefold() for text in self.texts)


def analyse_vocab(vocab: Vocab, encode: Encode | None = None) -> VocabReport:
    """Assign a category to every token, and prepare the vocabulary for searches.

    encode: text to ids without special tokens; by default the vocabulary's own, which splits a text as in the middle of
    another one.
    """
    specials, spare = vocab.special_ids, _spare_bytes(vocab)
    padding = (b"",) * (vocab.width - len(vocab))
    categories, texts = [], []
    for i, data in enumerate((*vocab.tokens, *padding)):
        outside = "special" if i in specials else None if data else "unused"
        categories.append(outside or ("byte" if i in spare else category_of(data)))
        texts.append(vocab.special_texts.get(i) or data.decode("utf-8", "surrogateescape"))
    return VocabReport(vocab=vocab, categories=tuple(categories), texts=tuple(texts), encode=encode or vocab.encoder)


def read_bytes(text: str) -> bytes:
    """Parse bytes as people write them: `0xE2 0x80` or `0xE280`, otherwise the text itself in UTF-8. Raises
    InputError."""
    _check_term(text, "contains")
    if not text.startswith("0x"):
        return text.encode()
    for word in re.finditer(r"\S+", text):
        if not _HEX.fullmatch(word[0]):
            raise InputError(
                f"{word[0]!r} at offset {word.start()} is no byte",
                hint="write 0xE2 0x80, or 0xE280; text that begins with 0x is found by searching it as a term",
                field="contains",
            )
    return bytes.fromhex(text.replace("0x", ""))


def _check_term(term: str, field: str = "search") -> None:
    if not term:
        raise InputError("there is nothing to look for: the term is empty", field=field)
    place = next((i for i, c in enumerate(term) if 0xD800 <= ord(c) < 0xE000), None)
    if place is not None:
        raise InputError(f"the term is not valid Unicode at character {place}", hint="write it in UTF-8", field=field)


def _spare_bytes(vocab: Vocab) -> frozenset[int]:
    """Byte-fallback tokens of bytes that also have another token.

    A vocabulary does not mark its byte-fallback tokens; they are 256 consecutive ids that spell the bytes in order.
    """
    every = tuple(bytes([b]) for b in range(256))
    spelled = Counter(token for token in vocab.tokens if len(token) == 1)
    starts = (i for i, token in enumerate(vocab.tokens) if token == b"\x00")
    runs = (range(i, i + 256) for i in starts if vocab.tokens[i : i + 256] == every)
    return frozenset(i for run in runs for i in run if spelled[vocab.tokens[i]] > 1)


def _reason(vocab: Vocab, token: int, ids: tuple[int, ...]) -> str:
    if not ids:
        return "its text is split into nothing"
    if vocab.decode(ids) != vocab.tokens[token]:
        return "its text is changed before it is split"
    return "another token has the same text" if len(ids) == 1 else f"its text is split into {len(ids)} tokens"
