"""What the tokens of a vocabulary do to the structure of a JSON text."""

from __future__ import annotations

import re
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

PART = re.compile(rb'"(?:[^"\\]|\\.)*(?P<end>")?|[^"]+', re.DOTALL)
CLOSER = re.compile(rb"[\]}]")
CLOSERS = re.compile(rb"[\]} \t\r\n]*")
BEFORE = (b"", b'"', b'"\\')
"""What stands before a token outside a string, inside, and inside after a backslash."""
MARKED = re.compile(rb'[]},"[]|[0-9.][eE]|^[eE]')
EXPONENT = re.compile(rb"(?:[0-9.]|^)[eE]")


class StructuralTokens:
    """The tokens of a vocabulary by what they can do to the structure of a JSON text.

    Inside a string, a token makes it longer by what stands before its first quotation mark; what follows is its tail.
    """

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        #: `(V,) int32`, each token's index in `tails`; -1 where an escape comes first.
        self.tail = np.zeros(vocab.width, dtype=np.int32)
        #: `(3, V) int8`: the marks of each token where it comes after each of BEFORE.
        self.marks = np.zeros((len(BEFORE), vocab.width), dtype=np.int8)
        numbers = {b"": 0}
        opening, reopening = [], []
        self.ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(vocab.tokens):
            if not data:
                continue
            self.ids.setdefault(data, []).append(token)
            if MARKED.search(data):
                self.marks[:, token] = [_marks_of(before, data) for before in BEFORE]
            head, mark, rest = data.partition(b'"')
            is_escaped = mark and b"\\" in head
            self.tail[token] = -1 if is_escaped else numbers.setdefault(mark + rest, len(numbers))
            if b"[" in data or b"{" in data:
                opening.append(token)
                if b"[" in rest or b"{" in rest:
                    reopening.append(token)
        #: The distinct tails, the first one empty.
        self.tails = tuple(numbers)
        #: The ids of tokens with a `[` or a `{`.
        self.opening = np.array(opening, dtype=np.int64)
        #: Of those with one after a `"`.
        self.reopening = np.array(reopening, dtype=np.int64)

    def marked(self, ids: NDArray[np.int32], marks: int, *, in_string: bool, is_escaped: bool) -> NDArray[np.bool_]:
        """Whether each token does one of the marked things. is_escaped: after a backslash in a string."""
        either: NDArray[np.bool_] = self.marks[in_string + is_escaped, ids] & int(marks) != 0
        return either


class Marks(IntFlag):
    """What a token does to the structure of a JSON text."""

    #: It closes an array or an object.
    CLOSES = 1
    #: More than brackets comes after the first that it closes.
    GOES_ON = 2
    #: It opens an array.
    OPENS = 4
    COMMA = 8
    ENDS_STRING = 16
    #: It has an exponent of a number, or what may be one.
    EXPONENT = 32


def _marks_of(before: bytes, data: bytes) -> int:
    """What a token does after `before`."""
    structure, ends_string = b"", False
    for part in PART.finditer(before + data):
        if part[0][:1] != b'"':
            structure += part[0]
        else:
            ends_string |= part["end"] is not None
    closing = CLOSER.search(structure)
    return (
        Marks.CLOSES * (closing is not None)
        | Marks.GOES_ON * (closing is not None and not CLOSERS.fullmatch(structure, closing.start()))
        | Marks.OPENS * (b"[" in structure)
        | Marks.COMMA * (b"," in structure)
        | Marks.ENDS_STRING * ends_string
        | Marks.EXPONENT * (EXPONENT.search(structure) is not None)
    )
