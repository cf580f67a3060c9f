"""Which code points and which tokens a grammar cannot tell apart. It knows no stacks."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from espalier.upstream.xray.grammar.pieces import WHOLE, Part, Pieces
from espalier.upstream.xray.grammar.program import Chars, Program, Token

END, VOID = 0, 1
"""Kinds of tokens: those that end a text, and those that the grammar never takes."""


class Kinds:
    """Kinds of tokens of one grammar over one vocabulary. Not for several threads at once."""

    def __init__(self, program: Program, pieces: Pieces) -> None:
        self._pieces = pieces
        edges = {1}  # NUL is a kind of its own: there llama.cpp stops
        for symbol in program.symbols:
            if isinstance(symbol, Chars) and symbol.ranges is not None:
                for low, high in symbol.ranges:
                    edges.update((low, high + 1))
        self._edges = sorted(edges)
        self._has_tokens = any(isinstance(one, Token) for one in program.symbols)
        self._chars: dict[int, int] = {}
        self._numbers: dict[object, int] = {}
        self._whole = array("i", [-1]) * len(pieces)
        self._begun: dict[tuple[int, Part], int] = {}

    def of_char(self, char: int) -> int:
        """The kind of a code point."""
        found = self._chars.get(char)
        if found is None:
            found = self._chars[char] = bisect_right(self._edges, char)
        return found

    def of_token(self, token: int, begun: Part) -> int:
        """The kind of a token after a part of a character."""
        if begun == WHOLE:
            found = self._whole[token]
            if found < 0:
                found = self._whole[token] = self._made(token, begun)
            return found
        known = self._begun.get((token, begun))
        if known is None:
            known = self._begun[token, begun] = self._made(token, begun)
        return known

    def _made(self, token: int, begun: Part) -> int:
        if token in self._pieces.eog:
            return END
        if self._pieces.is_void(token):
            return VOID
        chars, part, _ = self._pieces.decoded(token, begun)
        spelled = tuple(self.of_char(char) for char in chars)
        # A part is not a code point yet, so that its value counts; and a grammar may name a token by its number.
        key = (spelled, part if part.missing else WHOLE, token if self._has_tokens else -1)
        return self._numbers.setdefault(key, len(self._numbers) + 2)
