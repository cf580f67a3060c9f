"""Detects payment card numbers by issuer, length and Luhn checksum: as automata, and independently by arithmetic.

A number is a card if its first two digits belong to an issuer, it has a length of that issuer, and its checksum is
valid. It is written in one piece, or in groups with one space or hyphen between two: 4-4-4-4, 4-6-5 or 4-6-4. Digits
directly after a letter, a digit or one of `_ . @ -` begin no card, since they belong to something else; after a space a
card may begin, whatever stands before the space. Directly after it there is no further digit, so a match is complete
with the character after it. Fullwidth digits are digits.

It knows no other patterns. Issuers: ISO/IEC 7812 and the ranges that the card networks publish. Checksum: ISO/IEC
7812-1, annex B: from the last digit leftwards, every second digit is doubled, minus 9 if that has two digits, and the
sum must be a multiple of 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

import numpy as np

from espalier.constraints.safety.alphabet import Alphabet, CharSet
from espalier.constraints.safety.expressions import CharDfa
from espalier.grammar.regex.parse import parse_regex

SHORTEST, LONGEST = 14, 19
SIXTEEN, AMEX, DINERS, LONG = (16,), (15,), (14, 16), (16, 19)
_RANGES = (
    (40, 49, LONG),
    (51, 55, SIXTEEN),
    (22, 27, SIXTEEN),
    (34, 34, AMEX),
    (37, 37, AMEX),
    (30, 30, DINERS),
    (36, 36, DINERS),
    (38, 39, DINERS),
    (35, 35, SIXTEEN),
    (50, 50, LONG),
    (56, 58, LONG),
    (60, 60, LONG),
    (62, 65, LONG),
    (67, 67, LONG),
)
LENGTHS = {f"{digits}": lengths for low, high, lengths in _RANGES for digits in range(low, high + 1)}
"""The lengths of an issuer's numbers, by their first two digits: Visa, Mastercard, American Express, Diners Club, JCB,
Maestro, Discover, UnionPay. Visa's numbers of 13 digits are no longer issued, and are left out."""
_PLAIN = re.compile(r"(?<![\w.@-])[0-9]{14,19}(?![0-9])")
_GROUPS = re.compile(
    r"(?<![\w.@-])(?=([0-9]{4}[ -](?:[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}|[0-9]{6}[ -][0-9]{4,5}))(?![0-9]))"
)
_DIGITS = "0123456789"
State = Hashable


def _word() -> CharSet:
    node = parse_regex(r"[\w.@-]", flags="i")
    return CharSet(node.scalars(), True)  # type: ignore[union-attr]  # a class


def card_sets() -> list[CharSet]:
    """The character sets that the automata tell apart: digits 0 to 9, space, hyphen, what a card may not follow."""
    return [*(CharSet(((ord(character), ord(character)),), True) for character in f"{_DIGITS} -"), _word()]


def doubled(digit: int) -> int:
    """What a doubled digit adds to the checksum."""
    return 2 * digit - 9 * (digit > 4)


def is_card(digits: str) -> bool:
    """Whether digits have an issuer, a length of it and a valid checksum."""
    if len(digits) not in LENGTHS.get(digits[:2], ()):
        return False
    values = [int(digit) for digit in digits[::-1]]
    return (sum(values[::2]) + sum(doubled(value) for value in values[1::2])) % 10 == 0


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """The cards in a text with ASCII digits, as (first character, one past the last), by arithmetic."""
    spans = {match.span() for match in _PLAIN.finditer(text) if is_card(match[0])}
    spans |= {match.span(1) for match in _GROUPS.finditer(text) if is_card(re.sub("[ -]", "", match[1]))}
    yield from sorted(spans)


# The automata. A state is "free": a card may begin; "part": none may, until a character that is none of `[\w.@-]`; or a
# tuple: what has been read of a card, and last whether it is complete if no digit follows.


def card_automata(alphabet: Alphabet) -> list[CharDfa]:
    """The automata that match card numbers, each as pattern 0. The alphabet must include `card_sets()`. Cards of four
    groups have an automaton for each place, counted by fours, that the first group may have in a row of groups, so that
    each has to follow one number only."""
    fours = [_automaton(alphabet, partial(_fours_digit, first), _fours_gap) for first in range(4)]
    return [_automaton(alphabet, _plain_digit, _plain_gap), *fours, _automaton(alphabet, _sixes_digit, _sixes_gap)]


def _automaton(
    alphabet: Alphabet, on_digit: Callable[[Any, int], State], on_gap: Callable[[Any, bool], State]
) -> CharDfa:
    """on_digit: the state after a digit in a state other than "part". on_gap: after a space, or a hyphen (True), in a
    tuple."""
    number: dict[State, int] = {}
    order: list[State] = []

    def place(state: State) -> int:
        if state not in number:
            number[state] = len(order)
            order.append(state)
        return number[state]

    digits = [alphabet.of(char_set) for char_set in card_sets()[:10]]
    space, hyphen, word = (alphabet.of(char_set) for char_set in card_sets()[10:])
    place("free")
    rows, complete = [], []
    for state in order:  # grows as states are met
        complete.append(isinstance(state, tuple) and bool(state[-1]))
        row = np.full(alphabet.count, -1 if complete[-1] else place("free"), dtype=np.int32)  # (K,)
        if not complete[-1]:
            row[word] = place("part")
            if isinstance(state, tuple):
                row[space], row[hyphen] = place(on_gap(state, False)), place(on_gap(state, True))
        for digit, members in enumerate(digits):
            row[members] = place("part" if state == "part" else on_digit(state, digit))
        rows.append(row)
    return CharDfa(
        table=np.array(rows, dtype=np.int32),
        cuts=np.where(complete, 0, -1).astype(np.int32),
        busy=np.array([isinstance(state, tuple) for state in order]),
    )


def _plain_digit(state: Any, digit: int) -> State:
    """In one piece: (digits read, the first digit or the lengths, the sum if the length is even, the sum if it is odd,
    complete)."""
    if state == "free":
        return (1, str(digit), doubled(digit), digit, False)
    size, which, even, odd, _ = state
    size += 1
    lengths = LENGTHS.get(f"{which}{digit}", ()) if size == 2 else which
    if not lengths or size > lengths[-1]:
        return "part"
    # A digit is doubled if the number of digits after it is odd.
    even = (even + (doubled(digit) if size % 2 else digit)) % 10
    odd = (odd + (digit if size % 2 else doubled(digit))) % 10
    if all(length % 2 == 0 for length in lengths):
        odd = 0  # it is not needed
    if all(length % 2 for length in lengths):
        even = 0
    return (size, lengths, even, odd, size in lengths and not (odd if size % 2 else even))


def _plain_gap(state: Any, hyphen: bool) -> State:
    return "part" if hyphen else "free"


def _fours_digit(first: int, state: Any, digit: int) -> State:
    """In groups of four: (place of the group in the row of groups, digits read in it, what has been read of a card or
    None, complete). Of a card: its first digit, or its sum. first: the place where cards begin, 0 to 3."""
    group, read, card, is_new, _ = (0, 0, None, True, False) if state == "free" else state
    if read == 4:
        return "part"
    read += 1
    if read == 1 and group == first:  # four groups before it are no part of a card that begins here, or after a hyphen
        return (group, 1, str(digit) if is_new else None, is_new, False)
    if isinstance(card, str):
        if 16 not in LENGTHS.get(f"{card}{digit}", ()):
            card = None
        else:
            card = (doubled(int(card)) + digit) % 10
    elif card is not None:
        card = (card + (doubled(digit) if read % 2 else digit)) % 10
    last = read == 4 and group == (first + 3) % 4
    return (group, read, card, is_new, last and card == 0)


def _fours_gap(state: Any, hyphen: bool) -> State:
    """is_new: whether a card may begin with the next group."""
    group, read, card, _, _ = state
    if read < 4:  # no group of four, or a second gap
        return "part" if hyphen else "free"
    return ((group + 1) % 4, 0, card, not hyphen, False)


def _sixes_digit(state: Any, digit: int) -> State:
    """In groups of four, six and four or five: (what has been read of each card that may have begun, complete). Of a
    card: (group, 0 to 2; digits read in it; its first digit, then its length; its sum)."""
    runs = ((0, 0, None, 0),) if state == "free" else state[0]
    groups: list[tuple[int, int, str | int, int]] = []
    complete = False
    for group, read, which, total in runs:
        read += 1
        if which is None:
            groups.append((0, 1, str(digit), 0))
            continue
        if isinstance(which, str):
            size = next((length for length in LENGTHS.get(f"{which}{digit}", ()) if length in (14, 15)), None)
            if size is None:
                continue
            total = doubled(int(which)) if size == 14 else int(which)
            which = size
        if read > (4, 6, which - 10)[group]:
            continue
        after = which - (0, 4, 10)[group] - read  # how many digits come after this one
        total = (total + (doubled(digit) if after % 2 else digit)) % 10
        groups.append((group, read, which, total))
        complete |= after == 0 and total == 0
    return (tuple(sorted(groups, key=str)), complete) if groups else "part"


def _sixes_gap(state: Any, hyphen: bool) -> State:
    groups = [
        (group + 1, 0, which, total)
        for group, read, which, total in state[0]
        if not isinstance(which, str) and which is not None and group < 2 and read == (4, 6)[group]
    ]
    if hyphen:
        return (tuple(sorted(groups, key=str)), False) if groups else "part"
    return (tuple(sorted([*groups, (0, 0, None, 0)], key=str)), False)
