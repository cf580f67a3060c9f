"""Card numbers as an automaton and by arithmetic, against ISO/IEC 7812 written out a third time: no issuer, length or
group is taken from what is tested."""

import random
from collections.abc import Iterator

import pytest

from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.automaton import smallest
from espalier.constraints.safety.cards import card_automata, card_sets, find_cards, is_card
from espalier.constraints.safety.folding import folded, representatives
from espalier.errors import Cancelled
from espalier.time_limit import time_limit

SHAPES = [(14,), (15,), (16,), (19,), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4)]
BEFORE = "abcxyzABCXYZ0123456789_.@-éß中．＠－７ａ"
"""Characters directly after which no card begins."""


def lengths_of(start: str) -> set[int]:
    """The lengths of an issuer's numbers, by the two digits that they start with."""
    two, one = int(start), int(start[0])
    lengths = set[int]()
    if one == 4 or two in (50, 56, 57, 58, 60, 62, 63, 64, 65, 67):
        lengths |= {16, 19}
    if 51 <= two <= 55 or 22 <= two <= 27 or two == 35:
        lengths |= {16}
    if two in (34, 37):
        lengths |= {15}
    if two in (30, 36, 38, 39):
        lengths |= {14, 16}
    return lengths


def luhn(digits: str) -> int:
    """The checksum: 0 for a valid number."""
    return sum(sum(divmod(int(digit) * (1 + place % 2), 10)) for place, digit in enumerate(reversed(digits))) % 10


def cards_in(text: str) -> list[tuple[int, int]]:
    """Every card: each begin is tried with each shape."""
    return [
        (begin, end)
        for begin in range(len(text))
        if not begin or text[begin - 1] not in BEFORE
        for end in ends_of(text, begin)
    ]


def ends_of(text: str, begin: int) -> Iterator[int]:
    for shape in [(length,) for length in range(14, 20)] + SHAPES[4:]:
        at, digits = begin, ""
        for number, size in enumerate(shape):
            if number and text[at : at + 1] not in (" ", "-"):
                break
            at += number > 0
            digits, at = digits + text[at : at + size], at + size
        else:
            is_all = len(digits) == sum(shape) and digits.isdigit() and not text[at : at + 1].isdigit()
            if is_all and len(digits) in lengths_of(digits[:2]) and luhn(digits) == 0:
                yield at


def valid(start: str, length: int, rng: random.Random) -> str:
    """Digits of a length with a valid checksum."""
    digits = start + "".join(rng.choices("0123456789", k=length - len(start) - 1))
    return next(digits + last for last in "0123456789" if luhn(digits + last) == 0)


def in_groups(digits: str, shape: tuple[int, ...], gaps: str) -> str:
    pieces, at = [digits[: shape[0]]], shape[0]
    for size, gap in zip(shape[1:], gaps, strict=False):
        pieces.append(gap + digits[at : at + size])
        at += size
    return "".join(pieces)


class CardFinder:
    """The automata, walked over characters."""

    def __init__(self) -> None:
        self._alphabet = Alphabet(card_sets())
        self._automata = [smallest(one) for one in card_automata(self._alphabet)]
        self._tables = [one.table.tolist() for one in self._automata]

    def has_card(self, text: str) -> bool:
        """Whether an automaton does not let the text pass."""
        letters = [self._alphabet.class_of(character) for character in text]
        return not all(self._passes(number, letters) for number in range(len(self._tables)))

    def _passes(self, number: int, letters: list[int]) -> bool:
        state = 0
        for letter in letters:
            state = self._tables[number][state][letter]
            if state < 0:
                return False
        return bool(self._automata[number].ends[state])


def compare(texts: list[str]) -> None:
    finder = CardFinder()
    for text in texts:
        found = cards_in(text)
        assert list(find_cards(folded(text))) == found, text
        assert finder.has_card(text) == bool(found), text


def test_a_number_in_one_piece_is_a_card_with_the_issuer_the_length_and_the_sum_of_one() -> None:
    rng = random.Random(1)
    numbers = [valid(f"{start:02}", length, rng) for start in range(100) for length in (13, 14, 15, 16, 17, 18, 19, 20)]
    for digits in numbers:
        assert is_card(digits) == (len(digits) in lengths_of(digits[:2])), digits
    wrong = [digits[:-1] + str((int(digits[-1]) + rng.randrange(1, 10)) % 10) for digits in numbers[::3]]
    compare([*numbers, *wrong])


@pytest.mark.parametrize("shape", SHAPES[4:])
def test_a_number_in_groups_is_a_card_with_the_issuer_the_length_and_the_sum_of_one(shape: tuple[int, ...]) -> None:
    rng = random.Random(sum(shape))
    texts = []
    for start in range(100):
        digits = valid(f"{start:02}", sum(shape), rng)
        texts.append(in_groups(digits, shape, rng.choice(["   ", "---", " - "])))
        wrong = digits[:-1] + str((int(digits[-1]) + rng.randrange(1, 10)) % 10)
        texts.append(in_groups(wrong, shape, "   "))
    compare(texts)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_card_is_found_after_other_groups_of_digits_and_before_them(shape: tuple[int, ...]) -> None:
    rng = random.Random(sum(shape) * len(shape))
    starts = [start for start in map(str, range(10, 100)) if sum(shape) in lengths_of(start)]
    befores = [
        "1234",
        "4000",
        "4000 5100",
        "3400 123456",
        "36",
        "12 3456 4111",
        "1234 5678 9012",
        "4000 1234 5678 9012",
    ]
    texts = []
    for before in befores:
        for gap in (" ", "-", "  ", "- ", ", ", ""):
            card = in_groups(valid(rng.choice(starts), sum(shape), rng), shape, rng.choice(["   ", "---"]))
            texts += [before + gap + card, before + gap + card + gap + before]
    compare(texts)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_card_is_seen_across_a_wrong_gap_or_a_group_that_is_too_short_or_too_long(shape: tuple[int, ...]) -> None:
    rng = random.Random(sum(shape) + len(shape))
    starts = [start for start in map(str, range(10, 100)) if sum(shape) in lengths_of(start)]
    texts = []
    for _ in range(40):
        card = in_groups(valid(rng.choice(starts), sum(shape), rng), shape, rng.choice(["   ", "---"]))
        at = rng.randrange(len(card) + 1)
        texts += [card[:at] + more + card[at:] for more in (" ", "-", "  ", "x", ".", "0", "7")]
        texts += [card[:at] + card[at + 1 :], f"{card} {card}", f"{card}-{card}", f"{card[: at or 1]} {card}"]
    compare(texts)


@pytest.mark.parametrize(
    "shape", [(4, 6, 6), (4, 6, 9), (4, 6, 3), (4, 5, 5), (6, 4, 4), (4, 4, 4, 5), (3, 4, 4, 4), (4, 4, 6)]
)
def test_groups_of_other_sizes_are_no_card(shape: tuple[int, ...]) -> None:
    rng = random.Random(sum(shape) * len(shape))
    cards = [in_groups(valid(str(start), sum(shape), rng), shape, "   ") for start in range(10, 100)]
    compare(cards)
    compare([card[:-1] + last for card in cards[::4] for last in "0123456789"])
    assert not [card for card in cards if card.startswith("4") and cards_in(card)]


@pytest.mark.parametrize("before", list('aZ_.@-09é中 ,:(\n"'))
def test_a_card_begins_after_a_space_or_a_bracket_and_not_within_a_word(before: str) -> None:
    cards = ["4111111111111111", "4111 1111 1111 1111", "3782-822463-10005", "3056 930902 5904"]
    compare(
        [before + card for card in cards] + [f"{before} {card}" for card in cards] + [card + before for card in cards]
    )
    assert [bool(cards_in(card)) for card in cards] == [True] * 4


def test_a_card_does_not_begin_within_a_word_of_full_width() -> None:
    cards = ["4111111111111111", "4111 1111 1111 1111", "3782-822463-10005"]
    compare([before + gap + card for before in BEFORE for gap in ("", " ") for card in cards])


def test_eight_groups_joined_by_hyphens_are_not_summed_as_one_card() -> None:
    compare(["4000 5100-4247-5900-3895-6731-4000 5100"])


def test_a_request_that_was_cancelled_ends_while_characters_are_folded() -> None:
    with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: True):
        representatives.__wrapped__()  # type: ignore[attr-defined]  # not what is remembered
