"""Read Tekken, the byte-level tokenizer of mistral-common. Ids below its number of special tokens are special.

Duck-typed: the library is not imported. Files and `Vocab` are not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from espalier.errors import VocabError
from espalier.tokens.raw import RawVocab, find_eos, name_of

_Piece = TypeVar("_Piece")
_DAMAGED = "the tokenizer's file is damaged"


def read_tekken(tokenizer: Any, owner: Any) -> RawVocab:
    """Read a `Tekkenizer`."""
    try:
        eos_id = tokenizer.eos_id
    except ValueError as error:
        hint = "its file has to name </s> among the special tokens"
        raise VocabError(f"the tokenizer has no end of a text: {error}", hint=hint) from error
    special_ids = list(tokenizer.special_ids)
    if not all(isinstance(special_id, int) for special_id in (eos_id, *special_ids)):
        raise VocabError("the rank of a special token is no whole number", hint=_DAMAGED)
    special_texts = {i: str(_ask(tokenizer.id_to_piece, i)) for i in sorted(special_ids)}
    width = int(tokenizer.n_words)
    return RawVocab(
        tokens=[b"" if i in special_texts else bytes(_ask(tokenizer.id_to_byte_piece, i)) for i in range(width)],
        special_texts=special_texts,
        eos_ids=find_eos([eos_id], {text: i for i, text in special_texts.items()}),
        encoder=lambda text: [int(i) for i in tokenizer.encode(text, bos=False, eos=False)],
        name=name_of(owner),
    )


def _ask(read: Callable[[int], _Piece], token: int) -> _Piece:
    try:
        return read(token)
    except (LookupError, TypeError, ValueError) as error:
        raise VocabError(f"token {token} cannot be read: {error}", hint=_DAMAGED) from error
