"""The parts a filter is made of: which characters are equal, numbers that check themselves, lists, phrases."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.safety import folding as safety_fold
from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.automaton import byte_dfa, smallest
from espalier.constraints.safety.cards import card_automaton, card_sets, find_cards, is_card
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.folding import fold_of, folded, representatives
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.lists import MAX_PHRASES, parse_list, read_list
from espalier.constraints.safety.phrases import phrase_automaton, phrase_sets
from espalier.constraints.safety.spec import Safety
from espalier.errors import InputError, LimitExceeded
from tests.examples import examples


@pytest.mark.slow
def test_characters_are_equal_exactly_where_their_folds_are():
    heads = representatives()
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


@pytest.fixture(scope="module")
def cards():
    alphabet = Alphabet(card_sets())
    return byte_dfa(smallest(card_automaton(alphabet, 0)), alphabet).avoiding


@settings(max_examples=examples(300), deadline=None)
@given(text=st.text(alphabet="0123456789 -.x", max_size=26))
def test_cards_are_found_by_the_automaton_as_by_arithmetic(cards, text):
    assert cards.accepts(text.encode()) == (not list(find_cards(text)))


@settings(max_examples=examples(200), deadline=None)
@given(digits=st.text(alphabet="0123456789", min_size=12, max_size=19))
def test_the_digit_that_makes_the_sum_valid_is_the_one_that_is_caught(cards, digits):
    first = next((n for n in range(13, len(digits) + 1) if luhn(digits[:n]) == 0), None)
    assert is_card(digits) == (len(digits) >= 13 and luhn(digits) == 0)
    assert list(find_cards(f"n {digits}")) == ([] if first is None else [(2, 2 + first)])
    if first is not None:
        assert cards.accepts(f"n {digits[: first - 1]}".encode())
        assert not cards.accepts(f"n {digits[:first]}".encode())


def test_of_ten_last_digits_one_makes_a_card(cards):
    for length in range(13, 20):
        start = "4" + "0" * (length - 2)
        kept = [d for d in "0123456789" if cards.accepts(f"{start}{d}".encode())]
        assert len(kept) == 9 or any(is_card(start[:n]) for n in range(13, length))


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
    dfa = byte_dfa(smallest(phrase_automaton(pairs, alphabet, whole=whole)), alphabet).avoiding
    for text in texts:
        low = folded(text)
        found = False
        for phrase in phrases:
            edge = [r"(?<!\w)" if whole and re.match(r"\w", phrase) else "",
                    r"(?!\w)" if whole and re.match(r"\w", phrase[-1]) else ""]  # fmt: skip
            found |= re.search(edge[0] + re.escape(phrase) + edge[1], low) is not None
        assert (dfa is None or not dfa.accepts(text.encode())) == found, (phrases, text)


EXPRESSIONS = ["ab+c", "(?:a|bc)d?é", "[^a]b", r"^ab|cd$", r"\d{2,3}x", "a.c", r"(?s)a.c", "É", "[à-ü]k", r"\s-\s"]


@pytest.mark.parametrize("pattern", EXPRESSIONS)
@settings(max_examples=examples(10), deadline=None)
@given(texts=st.lists(st.text("abcdxéÉＡ1２ \n-kKｋ", max_size=8), min_size=10, max_size=30))
def test_expressions_are_found_as_re_finds_them(pattern, texts):
    spec = Safety(patterns=[{"regex": pattern}])
    dfa = filter_of(spec).dfa
    for text in texts:
        assert dfa.accepts(text.encode()) == (not find(spec, text)), (pattern, text)


def test_every_utf8_text_is_spelled_right():
    dfa = filter_of(Safety(patterns=["x"])).dfa
    rng = np.random.default_rng(1)
    borders = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)
    for point in (*borders, *rng.integers(0, 0xD800, 200).tolist()):
        character = chr(point)
        assert dfa.accepts(character.encode()) == (unicodedata.normalize("NFKC", character).casefold() != "x")
    for wrong in ("c080", "e08080", "eda080", "f0808080", "f4908080", "80", "ff"):
        assert not dfa.accepts(bytes.fromhex(wrong))
