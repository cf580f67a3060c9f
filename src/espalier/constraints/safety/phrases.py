"""Aho-Corasick automaton of phrases over classes of characters; phrases match as whole words or anywhere.

A phrase matches as whole words if no letter, digit or `_` stands directly before or after it; a phrase that starts or
ends with another character needs no border on that side. Since a following letter would continue the word, such a match
is complete only with the character after it, and the text may not end there. It knows no bytes, categories or files.
Bans of exact texts use the byte automaton in `automata/phrases/occurrences.py`, which needs neither classes of
characters nor borders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.alphabet import Alphabet, CharSet
from espalier.constraints.safety.expressions import MAX_CELLS, CharDfa, too_many_cells
from espalier.constraints.safety.folding import folded
from espalier.errors import LimitExceeded
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time

MAX_NODES = 150_000
"""The most distinct prefixes of phrases."""
Phrase = tuple[str, int]
"""A phrase, and the number of its rule."""


def _word() -> CharSet:
    return CharSet(parse_regex(r"\w").scalars(), True)  # type: ignore[union-attr]  # a class


def phrase_sets(phrases: Sequence[Phrase]) -> list[CharSet]:
    """The character sets that the automaton tells apart: word characters first, then each letter of the phrases."""
    letters = sorted({letter for phrase, _ in phrases for letter in folded(phrase)})
    return [_word(), *(CharSet(((ord(letter), ord(letter)),), True) for letter in letters)]


class _Letters:
    """Numbers for the characters of the phrases, after two for all others: 0 for word characters, 1 for the rest."""

    def __init__(self, phrases: Sequence[Phrase], alphabet: Alphabet) -> None:
        word = alphabet.of(_word())
        self.number: dict[str, int] = {}
        self.of_class = np.where(word, 0, 1)  # (K,)
        is_word = [True, False]
        for char_set in phrase_sets(phrases)[1:]:
            members = alphabet.of(char_set)
            self.number[chr(char_set.ranges[0][0])] = len(is_word)
            self.of_class[members] = len(is_word)
            is_word.append(bool(word[members].all()))
        self.is_word: NDArray[np.bool_] = np.array(is_word)  # (L,)


def phrase_automaton(phrases: Sequence[Phrase], alphabet: Alphabet, *, whole: bool) -> CharDfa:
    """The automaton that matches the phrases. whole: as whole words, otherwise anywhere. The alphabet must include
    `phrase_sets(phrases)`. Raises LimitExceeded."""
    letters = _Letters(phrases, alphabet)
    is_word = letters.is_word
    children: list[dict[int, int]] = [{}]
    ended: list[int | None] = [None]  # by trie node: the lowest rule whose phrase ends there
    for phrase, pattern in phrases:
        check_time()
        node = 0
        for character in folded(phrase):
            after = children[node].setdefault(letters.number[character], len(children))
            if after == len(children):
                if after >= MAX_NODES:
                    raise LimitExceeded(
                        f"the phrases have more than {MAX_NODES} distinct prefixes",
                        hint="give fewer or shorter phrases",
                    )
                if after * max(len(is_word), alphabet.count) > MAX_CELLS:
                    raise too_many_cells()
                children.append({})
                ended.append(None)
            node = after
        known = ended[node]
        ended[node] = pattern if known is None else min(known, pattern)

    # State 0: at the start, or after a character that is no word character; state 1: after a word character.
    base = np.where(is_word, 1, 0).astype(np.int32)  # (L,)
    rows = [base.copy(), base.copy()]
    cuts = [-1, -1]
    todo: list[tuple[int, int, int]] = []  # (trie node, its state, its failure state)

    def grow(node: int, row: NDArray[np.int32]) -> None:
        for letter, child in children[node].items():
            if row[letter] < 0:
                continue  # a shorter phrase matches here
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
        if not (whole and is_word[letter]):  # the phrase needs no border before it
            rows[1][letter] = rows[0][letter]
    while waiting:
        todo, waiting = waiting, []
        first = len(rows)
        size = len(todo)
        rows += [base] * size
        cuts += [-1] * size
        for node, state, shorter in todo:
            check_time()
            row = rows[shorter].copy()
            done = ended[node]
            cuts[state] = cuts[shorter]
            if done is not None:  # whole words: the match is complete with the next character
                cuts[state] = done if cuts[state] < 0 else min(done, cuts[state])
                hit = -1 - done
                row[~is_word] = np.where(row[~is_word] < 0, np.maximum(row[~is_word], hit), hit)
            grow(node, row)
            rows[state] = row
        assert len(rows) == first + size
    table = np.array(rows, dtype=np.int32)[:, letters.of_class]  # (S, K)
    busy = np.ones(len(rows), dtype=np.bool_)
    busy[:2] = False
    return CharDfa(table=table, cuts=np.array(cuts, dtype=np.int32), busy=busy)
