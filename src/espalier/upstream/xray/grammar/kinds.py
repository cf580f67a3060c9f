"""Which code points and which tokens a grammar cannot tell apart. It knows no stacks."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count

import numpy as np
from numpy.typing import NDArray

from espalier.upstream.xray.grammar.pieces import WHOLE, PartialCharacter, Pieces
from espalier.upstream.xray.grammar.program import Chars, GrammarProgram, TokenSymbol

END, VOID = 0, 1
"""Kinds of tokens: those that end a text, and those that the grammar never takes."""


class TokenKinds:
    """Kinds of tokens of one grammar over one vocabulary. From any thread: what two find at once is the same."""

    def __init__(self, program: GrammarProgram, pieces: Pieces) -> None:
        self._pieces = pieces
        edges = {1}  # NUL is a kind of its own: there llama.cpp stops
        for symbol in program.symbols:
            if isinstance(symbol, Chars) and symbol.ranges is not None:
                for low, high in symbol.ranges:
                    edges.update((low, high + 1))
        self._edges = sorted(edges)
        self._has_tokens = any(isinstance(symbol, TokenSymbol) for symbol in program.symbols)
        self._chars: dict[int, int] = {}
        self._numbers: dict[object, int] = {}
        self._next = count(2)
        self._whole = np.full(len(pieces), -1, dtype=np.int32)
        # Of the code points of one byte, where their kinds fit into one.
        self._table = bytes(bisect_right(self._edges, char) for char in range(256)) if len(self._edges) < 256 else None
        self._begun: dict[tuple[int, PartialCharacter], int] = {}

    def of_char(self, char: int) -> int:
        """The kind of a code point."""
        number = self._chars.get(char)
        if number is None:
            number = self._chars[char] = bisect_right(self._edges, char)
        return number

    def of_token(self, token: int, begun: PartialCharacter) -> int:
        """The kind of a token after a part of a character."""
        if begun == WHOLE:
            kind = int(self._whole[token])
            if kind < 0:
                kind = self._whole[token] = self._made(token, begun)
            return kind
        known = self._begun.get((token, begun))
        if known is None:
            known = self._begun[token, begun] = self._made(token, begun)
        return known

    def of_tokens(self, tokens: NDArray[np.int64], begun: PartialCharacter) -> list[int]:
        """The kinds of `(n,)` tokens."""
        if begun != WHOLE:
            return [self.of_token(token, begun) for token in tokens.tolist()]
        kinds: NDArray[np.int32] = self._whole[tokens]
        for place in np.flatnonzero(kinds < 0).tolist():
            kinds[place] = self.of_token(int(tokens[place]), WHOLE)
        return list(kinds.tolist())

    def _made(self, token: int, begun: PartialCharacter) -> int:
        if token in self._pieces.eog:
            return END
        if self._pieces.is_void(token):
            return VOID
        piece, number = self._pieces.pieces[token], token if self._has_tokens else -1
        if begun == WHOLE and self._table is not None and piece.isascii() and b"\0" not in piece:
            return self._numbered((piece.translate(self._table), WHOLE, number))
        chars, part, _ = self._pieces.decoded(token, begun)
        spelled = tuple(self.of_char(char) for char in chars)
        # A part is not a code point yet, so that its value counts; and a grammar may name a token by its number.
        return self._numbered((spelled, part if part.missing else WHOLE, number))

    def _numbered(self, key: object) -> int:
        """The number of a kind; no two kinds have one, also where two threads come upon them at once."""
        number = self._numbers.get(key)
        return self._numbers.setdefault(key, next(self._next)) if number is None else number
