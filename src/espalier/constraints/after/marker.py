"""The automaton of the text before a marker: any text up to it; under a token limit, only the shortest way there.

If the text must begin with an opening such as `<think>`, the marker is looked for behind the opening. Special tokens
that are spelled like the marker, like the tag that it closes, like the opening or like a part of one of them count as
text here. It knows nothing about what follows the marker.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from espalier.automata.ends.closing import Ends
from espalier.automata.ends.forced import forced
from espalier.automata.languages.algebra import language
from espalier.automata.languages.dfa import Dfa
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.phrases.occurrences import until
from espalier.chat.reading.thoughts import TAG
from espalier.constraints.after.border import GAP, WHITESPACE
from espalier.errors import UnsupportedError, VocabError
from espalier.grammar.ast import CharClass, Literal, Repeat, seq
from espalier.grammar.ranges import merge
from espalier.tokens.trie import TokenTrie, build_trie
from espalier.tokens.vocab import Vocab

_BLANKS = frozenset(bytes([blank]) for blank in WHITESPACE)


class Waiting:
    """The automaton of the texts up to the first marker, for one vocabulary. Safe across threads."""

    def __init__(
        self,
        marker: bytes,
        vocab: Vocab,
        trie: TokenTrie,
        *,
        opens: bytes | None = None,
        tags: Collection[bytes] = (),
        hurries: bool = False,
        before: Dfa | None = None,
    ) -> None:
        """opens: what the text must begin with, after up to GAP whitespace characters. tags: spellings of special
        tokens that count as text. hurries: whether an automaton of the shortest ways to the marker is needed. before:
        the texts up to the marker, where they are not all texts without it; its last state is its only accept state,
        and no text goes on from there."""
        self.marker = marker
        self.opens = opens
        self.specials = _ids(vocab, marker)
        if any(token in vocab.eos_ids for token in self.specials):
            raise UnsupportedError(
                f"the marker {marker.decode()!r} is a token that ends the text, so nothing can come after it",
                hint="use a marker that the model writes within its turn",
                field="marker",
            )
        spelled = {token: tag for tag in tags for token in _ids(vocab, tag) if token not in vocab.eos_ids}
        spelled |= _pieces(vocab, marker) | ({} if opens is None else _pieces(vocab, opens))
        self.spelled = spelled | dict.fromkeys(self.specials, marker)
        self.vocab, self.trie = _with_text(vocab, trie, self.spelled)
        if hurries and (missing := self.vocab.missing_bytes()):
            raise VocabError(
                f"max_before needs a token for every byte, and {len(missing)} bytes have none",
                hint="use a tokenizer with byte fallback, or leave max_before out",
            )
        dfa = until([marker]) if before is None else before
        self._before = before
        self.inside = dfa.start
        """The start state behind the opening; the start where there is no opening."""
        self.opening_states = 0
        """States below this number are within the opening."""
        if opens is not None:
            rest = dfa
            dfa, self.inside = _with_opening(opens, rest)
            self.opening_states = self.inside - rest.start
        self.done = len(dfa) - 1
        self.start = dfa.start
        self.machine = RegularMachine(dfa, self.vocab, self.trie)
        self.hurry = RegularMachine(_shortest_ways(dfa, self.machine), self.vocab, self.trie) if hurries else None
        self.spanning = _spanning(self.vocab, marker)
        self._ways: dict[tuple[bool, int], tuple[int, ...]] = {}  # one for each state at most

    def opens_with(self, data: bytes) -> bool:
        """Whether a whole text begins with the opening."""
        return self.opens is not None and opened(data, self.opens) is not None

    def head(self, data: bytes) -> int | None:
        """How many bytes a text has up to the end of its first marker; None if it has no marker, or does not begin
        with the opening."""
        if self._before is not None:
            return _read_length(self._before, data)
        behind = 0 if self.opens is None else opened(data, self.opens)
        at = -1 if behind is None else data.find(self.marker, behind)
        return None if at < 0 else at + len(self.marker)

    def walk(self, machine: RegularMachine, state: int, token: int) -> tuple[int, bytes] | None:
        """The state after a token, and the token's bytes past the marker; None if the token is refused."""
        after = machine.advance(state, token)
        if after is not None:
            return after, b""
        data = self.vocab.bytes_of(token) if 0 <= token < self.vocab.width else b""
        for at, byte in enumerate(data):
            step = machine.step(state, byte)
            if step is None:
                return None
            if step == self.done:
                return (step, data[at + 1 :]) if at + 1 < len(data) else None
            state = step
        return None

    def forced(self, machine: RegularMachine, state: int) -> tuple[int, ...]:
        """Tokens that every way to the marker continues with."""
        return forced(machine, self.trie, state)

    def shortest(self, machine: RegularMachine, state: int) -> tuple[int, ...]:
        """The fewest tokens to the marker's last byte."""
        key = (machine is self.machine, state)
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = Ends(machine, self.trie, self.vocab).shortest(state)
        return way


def opened(data: bytes, opens: bytes) -> int | None:
    """The length in bytes of the whitespace and opening at the start of a text; None if the opening is not there. The
    first position where it occurs counts."""
    for count in range(GAP + 1):
        if data.startswith(opens, count):
            return count + len(opens)
        if data[count : count + 1] not in _BLANKS:
            return None
    return None


def _read_length(dfa: Dfa, data: bytes) -> int | None:
    """How many bytes lead to the last state of an automaton; None if they never do."""
    state = dfa.start
    for count, byte in enumerate(data, 1):
        state = int(dfa.table[state, dfa.classes[byte]])
        if state < 0 or state == len(dfa) - 1:
            return None if state < 0 else count
    return None


def _with_opening(opens: bytes, rest: Dfa) -> tuple[Dfa, int]:
    """The automaton of optional whitespace, an opening, and then `rest`; and the state in which `rest` begins."""
    blanks = CharClass(merge((blank, blank) for blank in WHITESPACE))
    head = language(seq(Repeat(blanks, 0, GAP), Literal(opens.decode())))
    if head is None:
        raise AssertionError("an opening is not empty, so its language is not")
    unopened = np.flatnonzero(~head.accepting)
    number = np.full(len(head) + 1, -1, dtype=np.int32)  # (S + 1,), the last stands for -1
    number[unopened] = np.arange(len(unopened))
    number[:-1][head.accepting] = len(unopened) + rest.start  # the first opening counts: no other way goes on
    first = number[head.table[unopened][:, head.classes]]  # (K, 256)
    then = rest.table[:, rest.classes]  # (R, 256)
    whole = np.concatenate([first, np.where(then >= 0, then + len(unopened), -1)])
    columns, classes = np.unique(whole, axis=1, return_inverse=True)
    accepting = np.concatenate([np.zeros(len(unopened), dtype=np.bool_), rest.accepting])
    dfa = Dfa(
        classes=classes.reshape(256).astype(np.uint8),
        table=np.ascontiguousarray(columns, dtype=np.int32),
        accepting=accepting,
        start=int(number[head.start]),
    )
    return dfa, len(unopened) + rest.start


def _ids(vocab: Vocab, text: bytes) -> tuple[int, ...]:
    return tuple(token for token, spelling in vocab.special_texts.items() if spelling.encode() == text)


def _pieces(vocab: Vocab, text: bytes) -> dict[int, bytes]:
    """The special tokens that stand within a text, as in `<|end|><|start|>assistant`, with their spelling. One that
    ends a turn is none."""
    spellings = {token: spelling.encode() for token, spelling in vocab.special_texts.items() if TAG.fullmatch(spelling)}
    return {
        token: spelling
        for token, spelling in spellings.items()
        if spelling in text and spelling != text and token not in vocab.eos_ids
    }


def _with_text(vocab: Vocab, trie: TokenTrie, spelled: dict[int, bytes]) -> tuple[Vocab, TokenTrie]:
    """The vocabulary and its trie, with the special tokens `spelled` as ordinary text."""
    if not spelled:
        return vocab, trie
    tokens = [*vocab.tokens, *(b"" for _ in range(max(spelled) + 1 - len(vocab)))]
    for token, data in spelled.items():
        tokens[token] = data
    extended = replace(vocab, tokens=tuple(tokens))
    return extended, build_trie(extended.tokens)


def _shortest_ways(dfa: Dfa, machine: RegularMachine) -> Dfa:
    """The automaton with only those steps that lead closer to an accepting state."""
    far = np.array([*(machine.least(state) for state in range(len(dfa))), -1])  # (S + 1,), the last stands for -1
    closer = far[dfa.table] == far[:-1, None] - 1  # (S, C)
    table = np.where(closer & (dfa.table >= 0), dfa.table, -1).astype(np.int32)
    return Dfa(classes=dfa.classes, table=table, accepting=dfa.accepting, start=dfa.start)


def _spanning(vocab: Vocab, marker: bytes) -> tuple[int, ...]:
    """The tokens that may complete the marker and have bytes after it."""
    last = marker[-1:]
    spanning: list[int] = []
    for token, data in enumerate(vocab.tokens):
        at = data.find(last, 0, -1)
        while at >= 0:
            head = data[: at + 1]
            if head.endswith(marker) or marker.endswith(head):
                spanning.append(token)
                break
            at = data.find(last, at + 1, -1)
    return tuple(spanning)
