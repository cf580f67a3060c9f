"""Detects payment card numbers by their Luhn checksum: as an automaton, and independently by arithmetic.

A match is a run of 13 to 19 ASCII digits, with at most one space or hyphen between two digits, up to the first digit
that makes the checksum valid. (Folding the width of digits too would make the automaton of `pii` four times as large.)
Digits directly after a letter or one of `_ . - @` belong to something else, such as a key or a version; so do the
digits from the twentieth of a run on, up to the next space, after which a new run may start. A number one separator
before a card belongs to the card's run, because nothing tells `12 4111 1111 1111 1111` from a number of 18 digits.

It knows no other patterns. Checksum: ISO/IEC 7812-1, annex B: from the last digit leftwards, every second digit is
doubled, minus 9 if that has two digits, and the sum must be a multiple of 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from espalier.constraints.safety.alphabet import Alphabet, CharSet
from espalier.constraints.safety.expressions import CharDfa
from espalier.grammar.regex.parse import parse_regex

SHORTEST, LONGEST = 13, 19
_RUN = re.compile(r"[0-9](?:[ -]?[0-9])*")
_PART_OF = re.compile(r"[\w.@-]")


def _word() -> CharSet:
    node = parse_regex(r"[\w.@-]")
    return CharSet(node.scalars(), False)  # type: ignore[union-attr]  # a class


def card_sets() -> list[CharSet]:
    """The character sets that the automaton tells apart: digits 0 to 9, space, hyphen, what a run may not follow."""
    return [*(CharSet(((ord(one), ord(one)),), False) for one in "0123456789 -"), _word()]


def doubled(digit: int) -> int:
    """What a doubled digit adds to the checksum."""
    return 2 * digit - 9 * (digit > 4)


def card_automaton(alphabet: Alphabet, pattern: int) -> CharDfa:
    """The automaton that matches card numbers. pattern: the number of its rule. The alphabet must include
    `card_sets()`."""
    # A state in a run: (length, sum if the last digit is not doubled, sum if it is, whether a separator follows it).
    free, part = "free", "part"
    number: dict[object, int] = {}
    order: list[object] = []

    def place(state: object) -> int:
        if state not in number:
            number[state] = len(order)
            order.append(state)
        return number[state]

    def on_digit(state: object, digit: int) -> int:
        if state == free:
            length, plain, other = 0, 0, 0
        elif isinstance(state, tuple):
            length, plain, other = state[:3]
        else:
            return place(part)
        length, plain, other = length + 1, (other + digit) % 10, (plain + doubled(digit)) % 10
        if length > LONGEST:
            return place(part)
        if length >= SHORTEST and plain == 0:
            return -1 - pattern
        return place((length, plain, other, False))

    def on_separator(state: object, hyphen: bool) -> int:
        if isinstance(state, tuple) and not state[3]:
            return place((*state[:3], True))
        return place(part if hyphen else free)

    digits = [alphabet.of(char_set) for char_set in card_sets()[:10]]
    space, hyphen, word = (alphabet.of(char_set) for char_set in card_sets()[10:])
    place(free)
    rows = []
    for state in order:  # grows as states are met
        row = np.full(alphabet.count, place(free), dtype=np.int32)  # (K,)
        row[word] = place(part)
        row[space] = on_separator(state, False)
        row[hyphen] = on_separator(state, True)
        for digit, members in enumerate(digits):
            row[members] = on_digit(state, digit)
        rows.append(row)
    return CharDfa(
        table=np.array(rows, dtype=np.int32),
        ends=np.ones(len(order), dtype=np.bool_),
        busy=np.array([isinstance(state, tuple) for state in order]),
    )


def is_card(digits: str) -> bool:
    """Whether 13 to 19 digits have a valid Luhn checksum."""
    if not SHORTEST <= len(digits) <= LONGEST:
        return False
    values = [int(digit) for digit in digits[::-1]]
    return (sum(values[::2]) + sum(doubled(value) for value in values[1::2])) % 10 == 0


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """The cards in a text, as (first character, one past the last), by arithmetic on each run of digits."""
    for run in _RUN.finditer(text):
        start, end = run.span()
        if start and _PART_OF.match(text[start - 1]):
            start = _behind_space(text, start, end)
        while start < end:
            places = [at for at in range(start, end) if text[at] not in " -"]
            digits = "".join(text[at] for at in places)
            size = next((n for n in range(SHORTEST, min(len(digits), LONGEST) + 1) if is_card(digits[:n])), None)
            if size is not None:
                yield start, places[size - 1] + 1
                break
            if len(digits) <= LONGEST:
                break
            start = _behind_space(text, places[LONGEST], end)


def _behind_space(text: str, start: int, end: int) -> int:
    """The place after the first space from `start` on; `end` if there is no space before it."""
    at = text.find(" ", start, end)
    return end if at < 0 else at + 1
