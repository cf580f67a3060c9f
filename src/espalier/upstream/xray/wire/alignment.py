"""Which tokens of a reply have an entry of probabilities: llama-server leaves out those that end inside a character."""

from __future__ import annotations

from collections.abc import Sequence


def is_cut(text: bytes) -> bool:
    """Whether the text ends inside a character, as llama-server sees it: it looks back at most four bytes, for the
    first byte of a longer character."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        for mask, head, length in ((0xE0, 0xC0, 2), (0xF0, 0xE0, 3), (0xF8, 0xF0, 4)):
            if byte & mask == head and back < length:
                return True
    return False


def with_entries(pieces: Sequence[bytes]) -> list[bool]:
    """For each token of an output whether the server gives its probabilities. pieces: what each adds to the text."""
    tokens, tail = [], b""
    for piece in pieces:
        tail = (tail + piece)[-8:]
        tokens.append(not is_cut(tail))
    return tokens
