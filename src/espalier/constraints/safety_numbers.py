"""Numbers that check themselves: payment cards by Luhn's sum, as an automaton and, apart from it, by arithmetic.

What is caught: a run of 13 to 19 digits 0 to 9, between any two of which may stand one space or one hyphen, at the
first digit that makes the sum of the run so far valid. A run that directly follows a letter, a digit, or one of
`_ . - @` is part of something else (a key, a decimal, a version) and does not count, nor does what follows in it; a run
of 20 digits or more is no card once it has come so far.

It knows nothing of other patterns. Formula: ISO/IEC 7812-1, annex B: from the last digit leftwards every second one
is doubled, 9 taken off where that has two digits, and the sum is a multiple of 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from espalier.constraints.safety_alphabet import Alphabet, Label
from espalier.constraints.safety_positions import CharDfa
from espalier.grammar.regex import parse_regex

SHORTEST, LONGEST = 13, 19
_RUN = re.compile(r"[0-9](?:[ -]?[0-9])*")
_PART_OF = re.compile(r"[\w.@-]")


def _word() -> Label:
    node = parse_regex(r"[\w.@-]")
    return Label(node.scalars(), False)  # type: ignore[union-attr]  # a class


def card_labels() -> list[Label]:
    """The sets of characters that the automaton tells apart: digits 0 to 9, separators, what a run may not follow."""
    digits = [Label(((0x30 + digit, 0x30 + digit),), False) for digit in range(10)]
    return [*digits, Label(((0x20, 0x20),), False), Label(((0x2D, 0x2D),), False), _word()]


def doubled(digit: int) -> int:
    """What a digit adds to the sum where it is doubled."""
    return 2 * digit - 9 * (digit > 4)


def card_automaton(alphabet: Alphabet, pattern: int) -> CharDfa:
    """Complete where a digit makes a run a card. pattern: its number. The alphabet has `card_labels`."""
    # (length, sum if the last digit is not doubled, sum if it is, a separator stands after it); the rest by name.
    free, part, inside, inside_apart = "free", "part", "inside", "inside, apart"
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
            return place(inside)
        length, plain, other = length + 1, (other + digit) % 10, (plain + doubled(digit)) % 10
        if length > LONGEST:
            return place(inside)
        if length >= SHORTEST and plain == 0:
            return -1 - pattern
        return place((length, plain, other, False))

    def on_separator(state: object, hyphen: bool) -> int:
        if isinstance(state, tuple) and not state[3]:
            return place((*state[:3], True))
        if state == inside:
            return place(inside_apart)
        return place(part if hyphen else free)

    digits = [alphabet.of(label) for label in card_labels()[:10]]
    space, hyphen, word = (alphabet.of(label) for label in card_labels()[10:])
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
    """Whether Luhn's sum of 13 to 19 digits is valid."""
    if not SHORTEST <= len(digits) <= LONGEST:
        return False
    values = [int(digit) for digit in digits[::-1]]
    return (sum(values[::2]) + sum(doubled(value) for value in values[1::2])) % 10 == 0


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """Where cards stand: first character and the one past the last. By arithmetic on each run."""
    for run in _RUN.finditer(text):
        if run.start() and _PART_OF.match(text[run.start() - 1]):
            continue
        digits = ""
        for at in range(run.start(), run.end()):
            digits += text[at] if text[at].isdigit() else ""
            if text[at].isdigit() and is_card(digits):
                yield run.start(), at + 1
                break
