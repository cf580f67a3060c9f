"""Which tokens of a session are the text, and which of them come before a stop text: the bytes of tokens, by the
spellings in a GGUF file.

A spelling may not tell what a token adds, so the bytes of all tokens together are held to the text that was printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.engines.gguf.header import Header
from espalier.tokens.pieces import BYTE_LEVEL, SPACE_MARK, byte_piece

Pieces = Callable[[int], bytes | None]
"""The bytes that a token adds to a text, None where they are not known."""


def pieces_of(header: Header) -> Pieces:
    """By the kind of tokenizer that the file names; of another kind, no token is known."""
    read = {"gpt2": _byte_level, "llama": _sentence_piece}.get(str(header.values.get("tokenizer.ggml.model", "")))
    spellings = header.tokens

    def piece(token: int) -> bytes | None:
        if read is None or not 0 <= token < len(spellings):
            return None
        return read(spellings[token].decode("utf-8", "replace"))

    return piece


def up_to(ids: Sequence[int], piece: Pieces, text: bytes, size: int) -> tuple[int, ...] | None:
    """The first ids, whose bytes reach `size` bytes of the text; None where ids and text do not agree up to there."""
    held = b""
    for count, token in enumerate(ids, start=1):
        added = piece(token)
        if added is None:
            return None
        held += added
        if len(held) >= size:
            # A half character at the end is not printed.
            return tuple(ids[:count]) if text.startswith(held[:size]) else None
    return None


def spelling(ids: Sequence[int], piece: Pieces, text: bytes, *, ended: bool) -> tuple[int, ...]:
    """The last ids of a session, whose bytes are the text; () where none are. ended: whether a token ended the text,
    which is then the last one, unless the session lacks it."""
    for at in (len(ids) - 1, len(ids)) if ended else (len(ids),):
        begin = _start(ids, at, piece, text)
        if begin is not None:
            return tuple(ids[begin:])
    return ()


def _start(ids: Sequence[int], at: int, piece: Pieces, text: bytes) -> int | None:
    """The index from which on the ids before `at` spell the text."""
    while text:
        added = piece(ids[at - 1]) if at > 0 else None
        if not added or not text.endswith(added):
            return None
        text, at = text[: -len(added)], at - 1
    return max(at, 0)


def _byte_level(spelling: str) -> bytes | None:
    try:
        return bytes(BYTE_LEVEL[char] for char in spelling)
    except KeyError:
        return None


def _sentence_piece(spelling: str) -> bytes:
    byte = byte_piece(spelling)
    return spelling.replace(SPACE_MARK, " ").encode() if byte is None else byte
