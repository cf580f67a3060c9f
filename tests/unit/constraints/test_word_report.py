"""The out-of-vocabulary report: everything that does not fit is counted, with its place, and nothing that does."""

import json

import pytest

from espalier.constraints.words.report import oov_report
from espalier.constraints.words.spec import Wordlist
from espalier.lexicon.files import WordFiles

FILES = WordFiles([])
ES = ("el", "perro", "come", "y", "bebe", "agua")


def report(text, words=ES, lang="es", **options):
    return oov_report(Wordlist(words, lang=lang, **options), text, FILES)


def rows(found):
    return [(entry.text, entry.count, entry.line, entry.column) for entry in found]


def test_all_unknown_words_are_counted_not_only_the_first():
    found = report("El gato come.\nUn gato, un pez y el Gato.")
    assert rows(found.unknown) == [("gato", 3, 1, 4), ("un", 2, 2, 1), ("pez", 1, 2, 13)]
    assert (found.words, found.known, found.distinct) == (10, 4, 6)
    assert found.share == pytest.approx(0.4)
    assert not found.fits


def test_a_text_that_fits_has_no_findings():
    found = report("El perro come, y bebe agua.\n")
    assert found.fits
    assert (found.unknown, found.capitals, found.characters, found.problems) == ((), (), (), ())
    assert (found.words, found.known, found.share) == (6, 6, 1.0)


def test_a_text_without_words_has_no_share():
    for text in ("", " ... "):
        found = report(text)
        assert (found.words, found.share, found.largest_rank, found.fits) == (0, None, None, False)
        assert set(found.enough.values()) == {None}


def test_known_words_whose_capitals_are_refused_are_not_unknown():
    found = report("El Perro COME. Come el Perro.")
    assert rows(found.capitals) == [("Perro", 2, 1, 4), ("COME", 1, 1, 10)]
    assert found.unknown == ()
    assert report("el Perro", capitals="anywhere").capitals == ()
    assert rows(report("El", capitals="never").capitals) == [("El", 1, 1, 1)]


def test_characters_that_are_neither_are_counted():
    found = report('el "perro" come 50 % y 5€')
    assert {(c.text, c.count) for c in found.characters} == {('"', 2), ("%", 1), ("€", 1), ("5", 2), ("0", 1)}
    assert found.unknown == ()


def test_numbers_are_no_words():
    found = report("el 10:30 y 50 perro", digits=True)
    assert (found.numbers, found.words, found.characters, found.fits) == (2, 3, (), True)
    assert report("el 50", digits=True).fits


def test_ranks_say_which_top_would_be_enough():
    words = tuple(f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100))
    text = " ".join([words[0]] * 5 + [words[9]] * 4 + [words[49]])
    found = report(text, words, None, top=20)
    assert found.enough == {50: 1, 90: 10, 95: 50, 99: 50}
    assert found.largest_rank == 50
    assert (found.known, found.words, found.listed) == (9, 10, 20)
    assert [(entry.text, entry.rank) for entry in found.unknown] == [(words[49], 50)]
    assert report(text + " nope", words, None).enough[99] is None


def test_extra_words_and_names_need_no_rank():
    found = report("el gato Ana", extra=["gato"], names=["Ana"], top=1)
    assert (found.known, found.enough[99], found.fits) == (3, 1, True)
    assert rows(report("el ana", names=["Ana"]).capitals) == [("ana", 1, 1, 4)]


def test_words_that_stand_together_are_counted_one_by_one():
    found = report("l'eau d'un l'ami", ("l'", "d'", "eau", "un"), "fr")
    assert (found.words, found.known) == (5, 4)
    assert rows(found.unknown) == [("l'ami", 1, 1, 12)]
    english = report("the dog's tail. 'the dog'", ("the", "dog", "'s"), "en")
    assert (english.words, english.known) == (6, 5)
    assert rows(english.unknown) == [("tail", 1, 1, 11)]
    assert rows(english.characters) == [("'", 2, 1, 17)]


def test_a_hyphen_parts_words_where_it_joins_them():
    assert rows(report("el-gato", hyphens=True).unknown) == [("gato", 1, 1, 4)]
    assert report("el-perro", hyphens=True).fits


def test_a_word_that_holds_a_separator_is_one_word():
    found = report("mr. dog", ("mr.", "dog"), "en")
    assert (found.words, found.fits, found.unknown) == (2, True, ())
    assert rows(report("mr dog", ("mr.", "dog"), "en").unknown) == [("mr", 1, 1, 1)]


def test_without_spaces_unknown_stretches_are_found_between_words():
    words = ("我", "我们", "喜欢")
    found = report("我们喜欢小狗。我喜欢小狗和我", words, "zh")
    assert rows(found.unknown) == [("小狗", 1, 1, 5), ("小狗和", 1, 1, 11)]
    assert (found.words, found.known) == (7, 5)
    cut = report("我们喜欢", ("我", "们", "喜欢", "我们"), "zh", top=3)
    assert (cut.fits, cut.unknown, cut.known) == (True, (), 3)  # 我们 is beyond the top, its parts are not


def test_a_letter_that_grows_in_lower_case_moves_no_place():
    found = report("İ el gato", ES, "es")
    assert ("gato", 1, 1, 6) in rows(found.unknown)


def test_it_is_json():
    found = json.loads(json.dumps(report("el gato %").to_json()))
    assert found["fits"] is False
    assert found["unknown"] == [{"text": "gato", "count": 1, "offset": 3, "line": 1, "column": 4, "rank": None}]
    assert found["enough"]["50"] == 1
    assert found["problems"][0]["offset"] == 3
