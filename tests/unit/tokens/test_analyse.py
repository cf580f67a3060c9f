"""What is in a vocabulary: categories, searches and unreachable tokens, each held against a plain count."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache

import pytest
import regex

import espalier
from espalier.errors import InputError, NotAvailable, UnknownName
from espalier.tokens.analyse import VocabReport, analyse_vocab, read_bytes
from espalier.tokens.categories import CATEGORIES, SCRIPTS, category_of, kind_of
from espalier.tokens.vocab import Vocab
from espalier.wiring import demo_model
from tests.tokenizers import (
    byte_level_spec,
    byte_level_vocab,
    sentencepiece_processor,
    spm_vocab,
    tekken_vocab,
    tokenizer_from,
)


@cache
def demo() -> Vocab:
    return Vocab.from_tokenizer(demo_model())


@cache
def spm_model_vocab() -> Vocab:
    return Vocab.from_tokenizer(sentencepiece_processor())


VOCABS = [Vocab.bytes, byte_level_vocab, spm_vocab, spm_model_vocab, demo, tekken_vocab]
every_vocab = pytest.mark.parametrize("made", VOCABS, ids=lambda made: made.__name__)


def hand_made(**changes: object) -> Vocab:
    tokens = [b"the", b" the", b"The", b"other", b"\xe2\x80", b"\xe2\x80\xa6", b"\xff", b"", b"a\xc3", b"", b" "]
    options: dict[str, object] = {"eos_ids": [7], "special_ids": {7: "<|the_end|>"}, "width": 12, **changes}
    return Vocab.from_tokens(tokens, **options)  # type: ignore[arg-type]


def hand_split(text: str) -> list[int]:
    """Whole words only; the ellipsis is changed first, and a space is not kept."""
    return {"the": [0], " the": [10, 0], "The": [2], "other": [0, 0], "…": [0], " ": []}.get(text, [2])


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("word", "latin"),
        (" word", "latin"),
        ("été", "latin"),
        ("x1)", "latin"),
        ("ﬁ", "latin"),
        ("Ａ", "latin"),
        ("ª", "latin"),
        ("λόγος", "greek"),
        ("µ", "greek"),
        ("мир", "cyrillic"),
        ("漢字", "han"),
        ("時々", "han"),
        ("かな", "hiragana"),
        ("カナー", "katakana"),
        ("ｶﾅ", "katakana"),
        ("한국", "hangul"),
        ("عربي", "arabic"),
        ("עברית", "hebrew"),
        ("हिन्दी", "devanagari"),
        ("\u093e", "devanagari"),
        ("ไทย", "thai"),
        ("\U00010330", "other_script"),  # Gothic
        ("食べる", "mixed"),
        ("aλ", "mixed"),
        ("12.", "mixed"),
        (" 12", "digits"),
        ("½Ⅳ٣", "digits"),
        ("…", "punctuation"),
        ("<=$`~", "punctuation"),
        ("\n}\n", "punctuation"),
        ("≤€", "symbols"),
        ("👩\u200d👩\ufe0f", "symbols"),
        (" \n\t\u3000", "whitespace"),
        ("\x00", "other"),
        ("\u200b ", "other"),
        ("\u0301", "other"),
        ("\ue000", "other"),
    ],
)
def test_a_text_has_the_category_of_its_letters_or_of_its_only_kind(text: str, category: str) -> None:
    assert category_of(text.encode()) == category


def test_bytes_that_are_not_whole_characters_have_categories_of_their_own() -> None:
    assert [category_of(data) for data in (b"\xff", b"\xc3", b"a\xc3", b"\x80a")] == [
        "byte",
        "byte",
        "partial",
        "partial",
    ]


NAMED_OTHERWISE = set("ᴯᴻᵎℲⅎↃ〻\U00010780\U00010781\U00010782\U00016fe3")
"""Letters whose names do not say their script, and that are in no text but phonetics' and scholars'."""


@pytest.mark.slow
def test_scripts_are_those_of_the_unicode_property() -> None:
    patterns = {name: regex.compile(rf"\p{{Script={name}}}") for name in SCRIPTS - {"other_script"}}
    no_script = regex.compile(r"[\p{Script=Common}\p{Script=Inherited}]")
    named = regex.compile("|".join(pattern.pattern for pattern in patterns.values()))
    # Tables of two libraries may be of different versions of Unicode.
    letters = [c for c in map(chr, range(0x110000)) if unicodedata.category(c)[0] == "L" and regex.match(r"\p{L}", c)]
    wrong = set()
    for char in letters:
        kind = kind_of(char)
        right = patterns[kind].match(char) if kind in patterns else not named.match(char)
        if not right and not no_script.match(char):
            wrong.add(char)
    assert wrong <= NAMED_OTHERWISE


@every_vocab
def test_categories_part_the_ids(made: Callable[[], Vocab]) -> None:
    vocab = made()
    report = analyse_vocab(vocab)
    parts = [report.ids_in(name) for name in CATEGORIES]
    assert sorted(i for part in parts for i in part) == list(range(vocab.width))
    assert report.counts == {name: len(part) for name, part in zip(CATEGORIES, parts, strict=True) if part}
    assert set(report.ids_in("special")) == vocab.special_ids
    assert len(report.ids_in("unused")) == vocab.padding_count


def test_each_token_is_in_its_category() -> None:
    report = analyse_vocab(hand_made())
    assert report.categories == (
        *("latin", "latin", "latin", "latin", "partial", "punctuation", "byte", "special", "partial", "unused"),
        *("whitespace", "unused"),
    )
    assert report.texts[4] == "\udce2\udc80"
    assert report.texts[7] == "<|the_end|>"


def test_byte_fallback_is_told_from_the_tokens_that_it_stands_in_for() -> None:
    vocab = spm_vocab()
    report = analyse_vocab(vocab)
    letters = [i for i, token in enumerate(vocab.tokens) if token == b"a"]
    assert [report.categories[i] for i in letters] == ["byte", "latin"]
    only = [i for i, token in enumerate(vocab.tokens) if token == b"Z"]
    assert [report.categories[i] for i in only] == ["latin"]  # there is no other that it could stand in for


@every_vocab
@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("term", ["a", "The", " ", "é", "end", "<|im_end|>", "日本", '"', "no such text"])
def test_a_search_is_what_looking_at_every_token_finds(made: Callable[[], Vocab], term: str, ignore_case: bool) -> None:
    vocab = made()
    found = analysed(made).search(term, ignore_case=ignore_case)

    def fold(text: str) -> str:
        return text.casefold() if ignore_case else text

    texts = {i: fold(vocab.text_of(i)) for i in range(vocab.width)}
    assert found.containing == tuple(i for i, text in texts.items() if fold(term) in text)
    assert found.exact == tuple(i for i, text in texts.items() if text == fold(term))
    assert found.spaced == tuple(i for i, text in texts.items() if text == " " + fold(term))
    assert found.encoding == (None if vocab.encoder is None else tuple(vocab.encoder(term)))


@cache
def analysed(made: Callable[[], Vocab]) -> VocabReport:
    return analyse_vocab(made())


def test_a_search_tells_the_token_from_the_one_with_a_space_and_from_others() -> None:
    found = analyse_vocab(hand_made(), hand_split).search("the")
    assert (found.exact, found.spaced, found.containing, found.encoding) == ((0,), (1,), (0, 1, 3, 7), (0,))
    loose = analyse_vocab(hand_made()).search("the", ignore_case=True)
    assert (loose.exact, loose.containing, loose.encoding) == ((0, 2), (0, 1, 2, 3, 7), None)
    assert json.loads(json.dumps(found.to_json()))["spaced"] == [1]


@every_vocab
@pytest.mark.parametrize("data", [b"a", b"\xc3", b"\xe2\x80", b"the", b"\x00"])
def test_bytes_are_found_wherever_characters_begin(made: Callable[[], Vocab], data: bytes) -> None:
    vocab = made()
    assert analysed(made).containing(data) == tuple(i for i in range(vocab.width) if data in vocab.bytes_of(i))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("0xE2 0x80", b"\xe2\x80"),
        ("0xe280  0x00", b"\xe2\x80\x00"),
        ("é", b"\xc3\xa9"),
        (" 0x41", b" 0x41"),
        ("x0", b"x0"),
    ],
)
def test_bytes_are_read_as_text_or_hexadecimal(text: str, data: bytes) -> None:
    assert read_bytes(text) == data


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0x", "'0x' at offset 0"),
        ("0xE2 0x8", "'0x8' at offset 5"),
        ("0xE2 80", "'80' at offset 5"),
        ("0xE2  0xGG", "'0xGG' at offset 6"),
        ("", "empty"),
        ("\udcff", "not valid Unicode at character 0"),
    ],
)
def test_what_is_no_byte_is_named_with_its_offset(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_bytes(text)
    assert caught.value.field == "contains"


def test_what_cannot_be_looked_for_is_refused() -> None:
    report = analyse_vocab(hand_made())
    with pytest.raises(InputError, match="empty"):
        report.search("")
    with pytest.raises(InputError, match="character 1"):
        report.search("a\udc80")
    with pytest.raises(InputError, match="no bytes"):
        report.containing(b"")
    with pytest.raises(UnknownName, match="'lettin'") as caught:
        report.ids_in("lettin")
    assert "latin" in (caught.value.hint or "")
    with pytest.raises(UnknownName) as caught:
        report.ids_in("qqqqqq")
    assert all(name in (caught.value.hint or "") for name in CATEGORIES)


@pytest.mark.parametrize("made", [byte_level_vocab, spm_vocab, spm_model_vocab, demo], ids=lambda made: made.__name__)
def test_glitch_candidates_are_what_splitting_every_text_finds(made: Callable[[], Vocab]) -> None:
    vocab = made()
    assert vocab.encoder is not None
    expected = {}
    for i in range(vocab.width):
        text = vocab.bytes_of(i).decode("utf-8", "ignore")
        whole = text.encode() == vocab.bytes_of(i)
        if text and whole and vocab.encoder(text) != [i]:
            expected[i] = tuple(vocab.encoder(text))
    spare = set(analysed(made).ids_in("byte"))
    found = {one.id: one.encoding for one in analysed(made).glitches()}
    assert found == {i: ids for i, ids in expected.items() if i not in spare}


def test_a_token_that_no_merge_makes_is_a_glitch_candidate() -> None:
    spec = byte_level_spec()
    extra = len(spec["model"]["vocab"]) + len(spec["added_tokens"])
    spec["model"]["vocab"] |= {"ĠSolidGoldMagikarp": extra}
    vocab = Vocab.from_tokenizer(tokenizer_from(spec))
    [found] = [one for one in analyse_vocab(vocab).glitches() if one.id == extra]
    assert found.text == " SolidGoldMagikarp"
    assert vocab.decode(found.encoding) == found.text.encode()
    assert found.reason == f"its text is split into {len(found.encoding)} tokens"


def test_the_reason_says_what_became_of_the_text() -> None:
    vocab = Vocab.from_tokens([b"a", b"b", b"a", b"ab", b"c", b"d", b""], eos_ids=[6])
    split = {"a": [0], "b": [1], "ab": [0, 1], "c": [], "d": [1]}
    assert {one.id: one.reason for one in analyse_vocab(vocab, split.__getitem__).glitches()} == {
        2: "another token has the same text",
        3: "its text is split into 2 tokens",
        4: "its text is split into nothing",
        5: "its text is changed before it is split",
    }


def test_without_a_way_to_split_text_nothing_is_guessed() -> None:
    with pytest.raises(NotAvailable, match="bytes splits a text"):
        analyse_vocab(Vocab.bytes()).glitches()


def test_the_summary_is_json_and_the_function_is_public() -> None:
    found = json.loads(json.dumps(espalier.analyse_vocab(hand_made()).to_json()))
    assert (found["tokens"], found["ids"], found["width"], found["eos_ids"]) == (10, 11, 12, [7])
    assert found["specials"] == [{"id": 7, "text": "<|the_end|>"}]
    assert found["categories"]["latin"] == 4
    assert 0x61 in found["missing_bytes"]
    assert 0x20 not in found["missing_bytes"]
