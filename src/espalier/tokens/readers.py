"""Tokenizers of other libraries -> the bytes of their tokens.

Duck-typed: no library is imported here. It returns plain data and does not know `Vocab`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class RawVocab(NamedTuple):
    """What can be read off a tokenizer. tokens: bytes of each id (specials: their spelling's bytes or b"")."""

    tokens: list[bytes]
    special_texts: dict[int, str]
    eos_ids: list[int]
    encoder: Callable[[str], list[int]] | None
    name: str


def read_tokenizer(tokenizer: Any) -> RawVocab:
    """Read any supported tokenizer. Raises VocabError for one whose bytes cannot be known."""
    raise NotImplementedError(type(tokenizer))
