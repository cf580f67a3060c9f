"""What the tokens of a vocabulary do to the structure of a JSON text."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import AnswerCache
from espalier.constraints.unique.tracker import QUOTE
from espalier.constraints.watching import Seen
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

PART = re.compile(rb'"(?:[^"\\]|\\.)*(?P<end>")?|[^"]+', re.DOTALL)
SEVERAL = re.compile(rb"[\[{].*,", re.DOTALL)
CLOSER = re.compile(rb"[\]}]")
CLOSERS = re.compile(rb"[\]} \t\r\n]*")
BEFORE = (b"", b'"', b'"\\')
"""What stands before a token outside a string, inside, and inside after a backslash."""
MARKED = re.compile(rb'[]},"[]|[0-9.][eE]|^[eE]')
MOST_STRINGS = 100_000
"""So many items are kept with the beginnings of them."""
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
        #: What stands before the quotation marks with which tokens end a string, where no escape does.
        self.heads: set[bytes] = set()
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
            if mark and not is_escaped:
                self.heads.add(head)
            self.tail[token] = -1 if is_escaped else numbers.setdefault(mark + rest, len(numbers))
            if SEVERAL.search(data):
                opening.append(token)
                if SEVERAL.search(rest):
                    reopening.append(token)
        self.longest_head = max(map(len, self.heads), default=0)
        #: The distinct tails, the first one empty.
        self.tails = tuple(numbers)
        #: The ids of tokens that may open an array or an object and begin its second item.
        self.opening = np.array(opening, dtype=np.int64)
        #: Of those that do it after a `"`.
        self.reopening = np.array(reopening, dtype=np.int64)

    def marked(self, ids: NDArray[np.int32], marks: int, *, in_string: bool, is_escaped: bool) -> NDArray[np.bool_]:
        """Whether each token does one of the marked things. is_escaped: after a backslash in a string."""
        either: NDArray[np.bool_] = self.marks[in_string + is_escaped, ids] & int(marks) != 0
        return either


class RepeatedStrings:
    """The tokens that end an open string by which it equals an item before. Thread-safe: what is kept is only added."""

    def __init__(self, tokens: StructuralTokens) -> None:
        self._tokens = tokens
        self._begins = AnswerCache(self._find_begins, MOST_STRINGS, lambda some, begins: len(some))

    def heads(self, begun: bytes, seen: Seen) -> list[bytes]:
        """What a token may begin with that ends the string then. begun: what is written of it, with its first quotation
        mark and no escape. seen: the keys of the items before it."""
        heads: list[bytes] = []
        for some in seen:
            heads += self._begins(some).get(begun, ())
        return heads

    def _find_begins(self, some: frozenset[Hashable]) -> Mapping[bytes, Sequence[bytes]]:
        """The beginnings of strings that one token may end, with what it begins with."""
        begins: dict[bytes, list[bytes]] = {}
        heads, longest = self._tokens.heads, self._tokens.longest_head
        for key in some:
            if isinstance(key, bytes) and key[0] == QUOTE:
                for end in range(len(key) - 1, max(0, len(key) - 2 - longest), -1):
                    if key[end:-1] in heads:
                        begins.setdefault(key[:end], []).append(key[end:-1])
        return begins


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
