"""Reads the vocabulary of a GGUF file through llama.cpp: bytes of each token, special tokens, ids that end a text.

It is given the library and a handle; `tokenize.py` splits text. It knows no model.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from espalier.engines.llamacpp.tokenize import KINDS, Tokenizer
from espalier.errors import CapabilityError, VocabError
from espalier.tokens.vocab import Vocab

UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 2, 4, 8, 16, 32  # of enum llama_token_attr
LSTRIP, RSTRIP = 128, 256
_TEXT = NORMAL | USER_DEFINED | BYTE
_PADDING = re.compile(r"\[PAD\d+\]|<pad\d+>", re.IGNORECASE)
"""Names of the ids with which converters pad a vocabulary to the model's width."""
_ROOM = 256  # bytes; longer pieces need a second call
_REFUSED = {
    0: "no tokenizer",
    3: "a WordPiece tokenizer: it is an embedding model, and cannot generate",
    4: "a Unigram tokenizer: it is an encoder, or an encoder-decoder such as T5",
}


def read_vocab(lib: Any, handle: Any, *, name: str, keeper: Callable[[], object]) -> Vocab:
    """Everything that a constraint needs. keeper: returns the owner of the handle, None once that is freed.

    Control tokens, unknown tokens and all that end a text are outside the byte language, whatever their type says.
    Raises CapabilityError for the tokenizer of a model that cannot generate, or of an unknown kind, VocabError if no
    token ends a text.
    """
    kind = int(lib.llama_vocab_type(handle))
    if kind not in KINDS:
        raise CapabilityError(f"{name} has {_REFUSED.get(kind, f'a tokenizer of kind {kind}, which is not known')}")
    width = int(lib.llama_vocab_n_tokens(handle))
    ids = range(width)
    is_end, attribute = lib.llama_vocab_is_eog, lib.llama_vocab_get_attr
    ends = [token for token in ids if is_end(handle, token)]
    kinds = [attribute(handle, token) for token in ids]
    tokens = _pieces(lib, handle, width)
    outside = {token for token in ids if kinds[token] & (UNKNOWN | CONTROL) or not kinds[token] & _TEXT}
    specials: dict[int, str] = {}
    for token in sorted(outside.union(ends)):
        text = _text(lib, handle, token)
        # An unused id gets neither bytes nor a spelling, so it is never sampled.
        if token in ends or not (kinds[token] & UNUSED and _PADDING.fullmatch(text)):
            specials[token] = text
        tokens[token] = b""
    if not ends:
        raise VocabError(f"{name} names no token that ends a text", hint="its eos_token_id is missing or wrong")
    first = [token for token in (lib.llama_vocab_eos(handle), lib.llama_vocab_eot(handle)) if token in ends]
    tokenizer = Tokenizer(
        lib,
        handle,
        keeper=keeper,
        tokens=tokens,
        specials=specials,
        own={_text(lib, handle, token): token for token in ids if kinds[token] & USER_DEFINED and tokens[token]},
        stripping={_text(lib, handle, token) for token in ids if kinds[token] & (LSTRIP | RSTRIP)},
    )
    return Vocab.from_tokens(
        tokens,
        eos_ids=list(dict.fromkeys([*first, *ends])),
        special_ids=specials,
        width=width,
        encoder=tokenizer.continuation,
        name=name,
    )


def _pieces(lib: Any, handle: Any, width: int) -> list[bytes]:
    """The bytes that llama.cpp adds to a text for each token; `b""` for control and unknown tokens."""
    to_piece, buffer = lib.llama_token_to_piece, ctypes.create_string_buffer(_ROOM)
    pieces: list[bytes] = []
    for token in range(width):
        count = to_piece(handle, token, buffer, _ROOM, 0, False)
        if count < 0:
            longer = ctypes.create_string_buffer(-count)
            to_piece(handle, token, longer, -count, 0, False)
            pieces.append(longer.raw)
        else:
            pieces.append(buffer.raw[:count])
    return pieces


def _text(lib: Any, handle: Any, token: int) -> str:
    return bytes(lib.llama_vocab_get_text(handle, token) or b"").decode("utf-8", "replace")
