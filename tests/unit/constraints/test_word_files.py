"""Word lists on disk: what is read, in which order, from which folder, and what is said of a file that is not one."""

import os
import unicodedata
from pathlib import Path

import pytest

from espalier.errors import SpecError, UnknownName
from espalier.lexicon.files import WordFiles, parse_words, read_words
from espalier.lexicon.languages import fold

SHIPPED = Path(__file__).resolve().parents[3] / "wordlists"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "es.txt").write_text("de\nla\n", encoding="utf-8")
    return tmp_path


def listed(tmp_path, data: bytes):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    return read_words(path)


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    assert listed(tmp_path, b"\xef\xbb\xbfcasa\nsol\n") == ("casa", "sol")


def test_comments_and_blank_lines_are_no_words(tmp_path):
    assert listed(tmp_path, b"# a list\n\n  \ncasa\n  # more\nsol") == ("casa", "sol")


def test_a_file_with_windows_line_ends_has_no_carriage_returns_in_words(tmp_path):
    assert listed(tmp_path, b"casa\r\nsol\r\n") == ("casa", "sol")


def test_a_word_that_comes_again_keeps_its_first_rank(tmp_path):
    assert listed(tmp_path, b"sol\ncasa\nSol\nluz\ncasa\n") == ("sol", "casa", "luz")


def test_words_in_nfd_and_capitals_are_the_same_words(tmp_path):
    decomposed = unicodedata.normalize("NFD", "Canción\ncanción\nÁrbol\n")
    assert listed(tmp_path, decomposed.encode()) == ("canción", "árbol")
    assert fold("  ÁRBOL ") == "árbol"


def test_both_apostrophes_are_the_same_letter(tmp_path):
    assert listed(tmp_path, "l’\nl'\naujourd’hui\n".encode()) == ("l'", "aujourd'hui")


def test_a_file_that_is_not_utf8_is_refused_at_its_byte(tmp_path):
    with pytest.raises(SpecError, match=r"x\.txt is not UTF-8 at byte 5"):
        listed(tmp_path, b"casa\n\xff\n")


def test_words_with_spaces_are_refused_with_their_line(tmp_path):
    with pytest.raises(SpecError, match=r"line 3 of .*x\.txt is not one word: 'por favor'"):
        listed(tmp_path, b"# list\ncasa\npor favor\n")


@pytest.mark.parametrize("data", [b"", b"# nothing\n\n"])
def test_a_list_without_words_is_refused(tmp_path, data):
    with pytest.raises(SpecError, match=r"x\.txt has no words"):
        listed(tmp_path, data)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"cannot read the word list .*none\.txt"):
        read_words(tmp_path / "none.txt")


def test_a_language_without_a_list_names_those_there_are(folder):
    (folder / "en.txt").write_text("the\n")
    with pytest.raises(UnknownName, match="no word list for 'xx'") as raised:
        WordFiles([folder]).words("xx")
    assert "there are: en, es" in raised.value.hint
    with pytest.raises(UnknownName) as raised:
        WordFiles([]).words("es")
    assert "none" in raised.value.hint


def test_a_region_falls_back_to_its_language_and_wins_where_it_has_a_list(folder):
    files = WordFiles([folder])
    assert files.words("es-MX") == files.words("es_mx") == files.words("ES") == ("de", "la")
    (folder / "es-ES.txt").write_text("vosotros\n")
    assert files.words("es-ES") == ("vosotros",)
    assert files.words("es-MX") == ("de", "la")


def test_the_first_folder_wins(folder, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "es.txt").write_text("mío\n", encoding="utf-8")
    assert WordFiles([own, folder]).words("es") == ("mío",)
    assert WordFiles([folder, own]).words("es") == ("de", "la")


def test_a_file_that_was_edited_is_read_again(folder):
    files = WordFiles([folder])
    before = files.stamp("es")
    assert files.words("es") == ("de", "la")
    path = folder / "es.txt"
    path.write_text("de\nsol\n")  # as long as before
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    assert files.words("es") == ("de", "sol")
    assert files.stamp("es") != before


@pytest.mark.parametrize("lang", ["../es", "/etc/passwd", "a/b", "es.txt", "", "e s", "..", "es\n"])
def test_a_path_is_no_language(folder, lang):
    with pytest.raises(SpecError, match="not a language code"):
        WordFiles([folder]).words(lang)


def test_other_files_in_the_folder_are_no_lists(folder):
    (folder / "README.md").write_text("x")
    (folder / "two words.txt").write_text("x")
    assert WordFiles([folder, folder / "none"]).languages() == ("es",)


@pytest.mark.parametrize("lang", ["es", "en"])
def test_the_shipped_lists_are_whole_normal_and_say_whose_they_are(lang):
    words = WordFiles.standard().words(lang)
    assert len(words) == len(set(words)) == 10_000
    assert all(fold(word) == word for word in words)
    text = (SHIPPED / f"{lang}.txt").read_text(encoding="utf-8")
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert len(text.splitlines()) == len(header) + len(words)  # nothing is listed twice
    assert any("wordfreq" in line for line in header)
    assert any("CC BY-SA 4.0" in line for line in header)
    assert parse_words(text.splitlines(), lang) == words
