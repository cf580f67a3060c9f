"""Phrases as an automaton over characters, whole words of them or anywhere (Aho and Corasick).

A whole word is one that no letter, digit or `_` stands directly before or after; a phrase that begins or ends with
anything else needs no border there. A letter after a whole word makes another word of it, so such a phrase is complete
with the character that ends it, and the text may not end there. It knows nothing of bytes, categories or files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.alphabet import Alphabet, Label
from espalier.constraints.safety.expressions import CharDfa
from espalier.constraints.safety.folding import folded
from espalier.errors import LimitExceeded
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time

MAX_NODES = 150_000
"""Different beginnings of phrases."""
Phrase = tuple[str, int]
"""A phrase, and the number of the pattern that it belongs to."""


def _word() -> Label:
    return Label(parse_regex(r"\w").scalars(), True)  # type: ignore[union-attr]  # a class


def phrase_labels(phrases: Sequence[Phrase]) -> list[Label]:
    """The sets of characters that the automaton tells apart."""
    letters = sorted({letter for phrase, _ in phrases for letter in folded(phrase)})
    return [_word(), *(Label(((ord(letter), ord(letter)),), True) for letter in letters)]


class _Letters:
    """The characters of some phrases, and two for all others: letters, and what is none."""

    def __init__(self, phrases: Sequence[Phrase], alphabet: Alphabet) -> None:
        word = alphabet.of(_word())
        self.number: dict[str, int] = {}
        self.of_class = np.where(word, 0, 1)  # (K,)
        is_word = [True, False]
        for label in phrase_labels(phrases)[1:]:
            members = alphabet.of(label)
            self.number[chr(label.ranges[0][0])] = len(is_word)
            self.of_class[members] = len(is_word)
            is_word.append(bool(word[members].all()))
        self.is_word: NDArray[np.bool_] = np.array(is_word)  # (L,)


def phrase_automaton(phrases: Sequence[Phrase], alphabet: Alphabet, *, whole: bool) -> CharDfa:
    """whole: as whole words; else anywhere. The alphabet has `phrase_labels`. Raises LimitExceeded."""
    letters = _Letters(phrases, alphabet)
    is_word = letters.is_word
    children: list[dict[int, int]] = [{}]
    ended: list[int | None] = [None]  # by node of the trie: the first pattern whose phrase ends there
    for phrase, pattern in phrases:
        check_time()
        node = 0
        for character in folded(phrase):
            after = children[node].setdefault(letters.number[character], len(children))
            if after == len(children):
                if after >= MAX_NODES:
                    raise LimitExceeded(
                        f"the phrases have more than {MAX_NODES} different beginnings",
                        hint="give fewer or shorter phrases",
                    )
                children.append({})
                ended.append(None)
            node = after
        known = ended[node]
        ended[node] = pattern if known is None else min(known, pattern)

    # State 0: after something that is no letter, or nothing; state 1: after a letter.
    base = np.where(is_word, 1, 0).astype(np.int32)  # (L,)
    rows = [base.copy(), base.copy()]
    ends = [True, True]
    todo: list[tuple[int, int, int]] = []  # (node of the trie, its state, the state of the longest shorter end)

    def grow(node: int, row: NDArray[np.int32]) -> None:
        for letter, child in children[node].items():
            if row[letter] < 0:
                continue  # a shorter phrase is complete there
            done = ended[child]
            if done is not None and not (whole and is_word[letter]):
                row[letter] = -1 - done
                continue
            state = len(rows) + len(waiting)
            waiting.append((child, state, int(row[letter])))
            row[letter] = state

    waiting: list[tuple[int, int, int]] = []
    grow(0, rows[0])
    for letter in children[0]:
        if not (whole and is_word[letter]):  # needs no border before it
            rows[1][letter] = rows[0][letter]
    while waiting:
        todo, waiting = waiting, []
        first = len(rows)
        size = len(todo)
        rows += [base] * size
        ends += [True] * size
        for node, state, shorter in todo:
            check_time()
            row = rows[shorter].copy()
            done = ended[node]
            ends[state] = ends[shorter]
            if done is not None:  # a whole word: it is complete with what ends it
                ends[state] = False
                hit = -1 - done
                row[~is_word] = np.where(row[~is_word] < 0, np.maximum(row[~is_word], hit), hit)
            grow(node, row)
            rows[state] = row
        assert len(rows) == first + size
    table = np.array(rows, dtype=np.int32)[:, letters.of_class]  # (S, K)
    busy = np.ones(len(rows), dtype=np.bool_)
    busy[:2] = False
    return CharDfa(table=table, ends=np.array(ends), busy=busy)
