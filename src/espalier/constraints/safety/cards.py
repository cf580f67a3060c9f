"""Numbers that check themselves: payment cards by Luhn's sum, as an automaton and, apart from it, by arithmetic.

What is caught: a run of 13 to 19 digits, between any two of which may stand one space or one hyphen, at the first digit
that makes the sum of the run so far valid. Only ASCII counts: if width did not, the automaton of `pii` would have four
times as many states. Digits that directly follow a letter or one of `_ . - @` are part of something else (a
key, a decimal, a version), and so are those from the twentieth of a run on: up to a space, behind which a run may
begin. Any other number one separator before a card belongs to its run, as nothing tells `12 4111 1111 1111 1111` from
a number of 18 digits.

It knows nothing of other patterns. Formula: ISO/IEC 7812-1, annex B: from the last digit leftwards every second one
is doubled, 9 taken off where that has two digits, and the sum is a multiple of 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from espalier.constraints.safety.alphabet import Alphabet, Label
from espalier.constraints.safety.expressions import CharDfa
from espalier.grammar.regex.parse import parse_regex

SHORTEST, LONGEST = 13, 19
_RUN = re.compile(r"[0-9](?:[ -]?[0-9])*")
_PART_OF = re.compile(r"[\w.@-]")


def _word() -> Label:
    node = parse_regex(r"[\w.@-]")
    return Label(node.scalars(), False)  # type: ignore[union-attr]  # a class


def card_labels() -> list[Label]:
    """The sets of characters that the automaton tells apart: digits 0 to 9, separators, what a run may not follow."""
    return [*(Label(((ord(one), ord(one)),), False) for one in "0123456789 -"), _word()]


def doubled(digit: int) -> int:
    """What a digit adds to the sum where it is doubled."""
    return 2 * digit - 9 * (digit > 4)


def card_automaton(alphabet: Alphabet, pattern: int) -> CharDfa:
    """Complete where a digit makes a run a card. pattern: its number. The alphabet has `card_labels`."""
    # (length, sum if the last digit is not doubled, sum if it is, a separator stands after it); the rest by name.
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
    """Where cards stand in a text: first character and the one past the last. By arithmetic on each run."""
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
    """Past the first space from `start` on; `end` if there is none before it."""
    at = text.find(" ", start, end)
    return end if at < 0 else at + 1
