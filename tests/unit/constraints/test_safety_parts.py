"""The parts a filter is made of: which characters are equal, numbers that check themselves, lists, phrases."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler
from espalier.constraints.safety import folding as safety_fold
from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.automaton import smallest
from espalier.constraints.safety.cards import card_automata, card_sets, find_cards, is_card
from espalier.constraints.safety.folding import fold_of, folded, representatives
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.lists import MAX_PHRASES, parse_list, read_list
from espalier.constraints.safety.phrases import phrase_automaton, phrase_sets
from espalier.constraints.safety.spec import Safety
from espalier.errors import InputError, LimitExceeded
from espalier.tokens.vocab import Vocab
from tests.examples import examples


@pytest.mark.slow
def test_characters_are_equal_exactly_where_their_folds_are():
    heads = representatives.__wrapped__()  # built anew
    assert not [point for point, head in heads.items() if head in heads]
    assert all(fold_of(chr(point)) == fold_of(chr(head)) for point, head in heads.items())
    groups = {}
    for point in range(0x110000):
        if not 0xD800 <= point < 0xE000:
            groups.setdefault(fold_of(chr(point)), set()).add(heads.get(point, point))
    assert all(len(group) == 1 for group in groups.values())
    assert not any(low <= point <= high for point in heads for low, high in safety_fold.PLAIN)


def test_a_character_is_no_several():
    assert folded("ｒＭ 𝐫ⓜ K") == "rm rm k"
    assert folded("ß ẞ ﬁ") == "ß ß ﬁ"
    assert len(folded("ﬁẞ…‥")) == 4


def luhn(digits):
    return sum(sum(divmod(int(c) * (1 + i % 2), 10)) for i, c in enumerate(reversed(digits))) % 10


class Walked:
    """Automata over characters, walked one by one."""

    def __init__(self, automata, alphabet):
        self._automata = [smallest(one) for one in automata]
        self._alphabet = alphabet

    def accepts(self, text):
        letters = [self._alphabet.class_of(one) for one in text]
        return all(self._ends(one, letters) for one in self._automata)

    def _ends(self, automaton, letters):
        state = 0
        for letter in letters:
            state = automaton.table[state, letter]
            if state < 0:
                return False
        return bool(automaton.ends[state])


@pytest.fixture(scope="module")
def cards():
    alphabet = Alphabet(card_sets())
    return Walked(card_automata(alphabet), alphabet)


@settings(max_examples=examples(300), deadline=None)
@given(text=st.text(alphabet="0123456789 -.x", max_size=26))
def test_cards_are_found_by_the_automaton_as_by_arithmetic(cards, text):
    assert cards.accepts(text) == (not list(find_cards(text)))


GROUPS = [(16,), (14,), (15,), (19,), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 5), (3, 4, 4, 4)]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_cards_in_groups_and_after_other_numbers_are_found_as_by_arithmetic(cards, data):
    pieces = []
    for _ in range(data.draw(st.integers(1, 3))):
        shape = data.draw(st.sampled_from(GROUPS))
        digits = data.draw(st.sampled_from(["4", "51", "34", "37", "30", "36", "60", "1"]))
        digits += data.draw(st.text("0123456789", min_size=20, max_size=20))
        digits = digits[: sum(shape)]
        digits = next((d for d in (digits[:-1] + last for last in "0123456789") if is_card(d)), digits)
        cut = [digits[sum(shape[:i]) : sum(shape[: i + 1])] for i in range(len(shape))]
        pieces.append(data.draw(st.sampled_from([" ", "-"])).join(cut))
    text = data.draw(st.sampled_from(["", "4000 ", "x", "1 ", "12-"])) + data.draw(st.sampled_from(" -x")).join(pieces)
    assert cards.accepts(text) == (not list(find_cards(text)))


@settings(max_examples=examples(200), deadline=None)
@given(digits=st.text(alphabet="0123456789", min_size=12, max_size=19))
def test_the_sum_of_a_card_is_valid(digits):
    assert not is_card(digits) or luhn(digits) == 0


def test_a_card_after_another_number_is_found():
    assert list(find_cards("2024 4111 1111 1111 1111")) == [(5, 24)]
    assert list(find_cards("1234 5678 4111 1111 1111 1111")) == [(10, 29)]
    assert list(find_cards("4111111111111111 4242424242424242")) == [(0, 16), (17, 33)]


def test_of_ten_last_digits_one_makes_a_card(cards):
    for start in ("4" + "0" * 14, "37" + "0" * 12, "36" + "0" * 11):
        kept = [d for d in "0123456789" if cards.accepts(f"{start}{d}")]
        assert len(kept) == 9


def test_a_list_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff# a comment\r\nDarn It # why\n\n  smeg\nＳＭＥＧ\n#x\n".encode())
    assert read_list(path) == ("darn it", "smeg")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"ok\nb\xff\n", "not UTF-8 at line 2, byte 4"),
        (b"# only\n\n", "has no phrases"),
        (b"", "has no phrases"),
        (b"a\x00b", "line 1 of .* holds a control character"),
    ],
)
def test_a_list_that_is_none_is_refused_with_its_line(tmp_path, data, words):
    path = tmp_path / "words.txt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=words):
        read_list(path)
    with pytest.raises(InputError, match="cannot read the list"):
        read_list(tmp_path / "none.txt")


def test_a_million_words_are_refused_with_the_limit():
    data = "\n".join(f"word{i}" for i in range(1_000_000)).encode()
    with pytest.raises(LimitExceeded, match=f"at most {MAX_PHRASES} phrases"):
        parse_list(data)
    with pytest.raises(LimitExceeded, match=f"at most {MAX_PHRASES} phrases"):
        Safety(categories=["hate"], lists={"hate": data.decode().split("\n")})
    with pytest.raises(LimitExceeded, match="more than 1000 characters"):
        parse_list(b"x" * 1001)


LETTERS = "abé -_Ａ"


@settings(max_examples=examples(20), deadline=None)
@given(
    phrases=st.lists(st.text("abé -", min_size=1, max_size=5).filter(lambda p: p.strip() == p), min_size=1, max_size=5),
    texts=st.lists(st.text(LETTERS, max_size=12), min_size=5, max_size=20),
    whole=st.booleans(),
)
def test_phrases_are_found_as_re_finds_them(phrases, texts, whole):
    alphabet = Alphabet(phrase_sets([(phrase, 0) for phrase in phrases]))
    pairs = [(phrase, number) for number, phrase in enumerate(phrases)]
    automaton = Walked([phrase_automaton(pairs, alphabet, whole=whole)], alphabet)
    for text in texts:
        low = folded(text)
        found = False
        for phrase in phrases:
            edge = [
                r"(?<!\w)" if whole and re.match(r"\w", phrase) else "",
                r"(?!\w)" if whole and re.match(r"\w", phrase[-1]) else "",
            ]
            found |= re.search(edge[0] + re.escape(phrase) + edge[1], low) is not None
        assert (not automaton.accepts(text)) == found, (phrases, text)


BYTES = Compiler(Vocab.bytes())
EXPRESSIONS = ["ab+c", "(?:a|bc)d?é", "[^a]b", r"^ab|cd$", r"\d{2,3}x", "a.c", r"(?s)a.c", "É", "[à-ü]k", r"\s-\s"]


@pytest.mark.parametrize("pattern", EXPRESSIONS)
@settings(max_examples=examples(10), deadline=None)
@given(texts=st.lists(st.text("abcdxéÉＡ1２ \n-kKｋ", max_size=8), min_size=10, max_size=30))
def test_expressions_are_found_as_re_finds_them(pattern, texts):
    spec = Safety(patterns=[{"regex": pattern}])
    compiled = BYTES.compile(spec)
    for text in texts:
        assert compiled.accepts(text) == (not find(spec, text)), (pattern, text)


def test_every_utf8_text_is_spelled_right():
    compiled = BYTES.compile(Safety(patterns=["x"]))
    rng = np.random.default_rng(1)
    borders = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)
    for point in (*borders, *rng.integers(0, 0xD800, 200).tolist()):
        character = chr(point)
        assert compiled.accepts(character) == (unicodedata.normalize("NFKC", character).casefold() != "x")
    for wrong in ("c080", "e08080", "eda080", "f0808080", "f4908080", "80", "ff"):
        assert not compiled.accepts(bytes.fromhex(wrong))
