"""A vocabulary as JSON and back, for the store. Its encoder is not kept: it is code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.errors import VocabError
from espalier.tokens.vocab import Vocab


def to_json(vocab: Vocab) -> dict[str, Any]:
    """Each token is a text with one character for each byte (Latin-1)."""
    return {
        "name": vocab.name,
        "width": vocab.width,
        "eos_ids": list(vocab.eos_ids),
        "special_texts": {str(token): text for token, text in vocab.special_texts.items()},
        "tokens": [token.decode("latin-1") for token in vocab.tokens],
    }


def from_json(data: Mapping[str, Any], fingerprint: str) -> Vocab:
    """The vocabulary that `to_json` wrote. Raises VocabError if it is not the one of the fingerprint."""
    try:
        vocab = Vocab(
            tokens=tuple(token.encode("latin-1") for token in data["tokens"]),
            eos_ids=tuple(data["eos_ids"]),
            special_texts={int(token): text for token, text in data["special_texts"].items()},
            width=data["width"],
            name=data["name"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VocabError(f"the kept vocabulary {fingerprint[:12]} is damaged: {error}") from error
    if vocab.fingerprint != fingerprint:
        raise VocabError(
            f"the kept vocabulary {fingerprint[:12]} is not what was kept: its fingerprint is {vocab.fingerprint[:12]}",
            hint="remove it with `espalier vocab --forget`, and keep it again",
        )
    return vocab
