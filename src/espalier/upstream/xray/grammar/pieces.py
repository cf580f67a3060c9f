"""Tokens as code points, decoded as llama.cpp's grammar decodes them, and a trie of them.

Within a character continuation bytes are not checked, so surrogates, overlong forms and values up to 0x3FFFFF come out;
a character may end in the next token. It knows no grammar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

LENGTHS = (1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 3, 4)
"""Bytes of a character by the four high bits of its first byte; 0: none begins so."""


class PartialCharacter(NamedTuple):
    """A character that has begun: its value so far, and how many bytes are missing; -1 after what is no UTF-8."""

    value: int = 0
    missing: int = 0


WHOLE = PartialCharacter()


class DecodedToken(NamedTuple):
    """chars: the whole code points of a token after a part. part: what it leaves. ends: how many bytes of the token
    had been read when each code point was whole."""

    chars: tuple[int, ...]
    part: PartialCharacter
    ends: tuple[int, ...]


def decode(piece: bytes, begun: PartialCharacter) -> DecodedToken:
    """As llama.cpp's `decode_utf8`: it stops at a NUL."""
    data = piece.partition(b"\0")[0]
    if begun == WHOLE and (text := _valid(data)) is not None:
        chars = tuple(map(ord, text))
        if len(text) == len(data):
            return DecodedToken(chars, WHOLE, tuple(range(1, len(data) + 1)))
        return DecodedToken(chars, WHOLE, tuple(accumulate(1 + (c > 0x7F) + (c > 0x7FF) + (c > 0xFFFF) for c in chars)))
    return _decode(data, begun)


def _valid(data: bytes) -> str | None:
    """The text of valid UTF-8, which needs no rules of its own."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _decode(data: bytes, begun: PartialCharacter) -> DecodedToken:
    place, (value, missing) = 0, begun
    chars: list[int] = []
    ends: list[int] = []
    while place < len(data) and missing > 0:
        if data[place] >> 6 != 2:
            return DecodedToken(tuple(chars), PartialCharacter(0, -1), tuple(ends))
        value = ((value << 6) + (data[place] & 0x3F)) & 0xFFFFFFFF
        place, missing = place + 1, missing - 1
    if begun.missing > 0 and missing == 0:
        chars.append(value)
        ends.append(place)
    while place < len(data):
        missing = LENGTHS[data[place] >> 4] - 1
        if missing < 0:
            return DecodedToken((), PartialCharacter(0, missing), ())
        value = data[place] & ((1 << (7 - missing)) - 1)
        place += 1
        while place < len(data) and missing > 0:
            value = (value << 6) + (data[place] & 0x3F)
            place, missing = place + 1, missing - 1
        if missing == 0:
            chars.append(value)
            ends.append(place)
    return DecodedToken(tuple(chars), PartialCharacter(value, missing) if missing else WHOLE, tuple(ends))


@dataclass(slots=True)
class CodePointNode:
    """ends: tokens whose code points end here, with what they leave. below: by the next code point."""

    ends: list[tuple[int, PartialCharacter]] = field(default_factory=list)
    below: dict[int, CodePointNode] = field(default_factory=dict)


class Pieces:
    """The tokens of a server, as its grammar reads them. Shared by all requests; filled as it is asked."""

    def __init__(self, pieces: Sequence[bytes], eog: frozenset[int]) -> None:
        """pieces: the spelling of every id, special ones included. eog: ids that end a text."""
        self.pieces, self.eog = tuple(pieces), eog
        self._decoded: dict[tuple[int, PartialCharacter], DecodedToken] = {}
        self._trie: CodePointNode | None = None

    def __len__(self) -> int:
        return len(self.pieces)

    def is_void(self, token: int) -> bool:
        """Whether the grammar can never take the token: it has no spelling, or one that begins with NUL."""
        return not self.pieces[token] or self.pieces[token][0] == 0

    def decoded(self, token: int, begun: PartialCharacter) -> DecodedToken:
        key = (token, begun)
        decoded = self._decoded.get(key)
        if decoded is None:
            decoded = self._decoded[key] = decode(self.pieces[token], begun)
            if len(self._decoded) > 4 * len(self.pieces) + 1000:
                self._decoded = {key: decoded}
        return decoded

    def ordinary(self) -> Iterator[int]:
        """The ids that end no text and are not void."""
        return (token for token in range(len(self.pieces)) if token not in self.eog and not self.is_void(token))

    @property
    def trie(self) -> CodePointNode:
        """Of the tokens that begin with a whole character."""
        if self._trie is None:
            root = CodePointNode()
            for token in self.ordinary():
                chars, part, _ = decode(self.pieces[token], WHOLE)
                node = root
                for char in chars:
                    if char == 0:
                        break
                    node = node.below.setdefault(char, CodePointNode())
                node.ends.append((token, part))
            self._trie = root
        return self._trie
