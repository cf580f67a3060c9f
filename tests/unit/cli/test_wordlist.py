"""`espalier wordlist`: lists are made of words with their licence, and a text is held against one."""

import json
import sys
from functools import partial

import pytest

from espalier.errors import InputError, MissingDependency, SpecError, UnknownName
from espalier.lexicon import build as word_build
from espalier.lexicon.build import build_words, finish, is_word, list_text
from espalier.lexicon.files import parse_words, read_words


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    monkeypatch.delenv("ESPALIER_WORDLIST_DIR", raising=False)
    (tmp_path / "own.txt").write_text("el\nperro\ncome\nagua\n", encoding="utf-8")
    (tmp_path / "good.txt").write_text("El perro come.\n", encoding="utf-8")
    (tmp_path / "bad.txt").write_text("El perro bebe.\nEl Perro come un %.\n", encoding="utf-8")
    return partial(run, "wordlist")


@pytest.fixture
def wordfreq():
    return pytest.importorskip("wordfreq", reason="wordfreq is not installed")


def test_a_text_of_listed_words_passes(run):
    code, out, err = run("check", "good.txt", "--words", "own.txt")
    assert (code, err) == (0, "in the list's language\n")
    assert "3 (100.0%) of the top 4" in out
    assert run("check", "-", "--words", "own.txt", stdin="el perro")[0] == 0


def test_a_text_with_other_words_fails_and_each_is_named(run):
    code, out, err = run("check", "bad.txt", "--words", "own.txt")
    assert (code, err) == (1, "not in the list's language\n")
    assert [line.split() for line in out.splitlines() if "bebe" in line or "U+" in line] == [
        ["1", "1:10", "bebe"],
        ["1", "2:18", "%", "U+0025"],
        ["1:10", "'bebe'", "is", "not", "in", "the", "list"],
    ]
    assert "but not with these capitals" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_long_or_wide_word_leaves_the_table_80_columns_wide(run, tmp_path):
    (tmp_path / "long.txt").write_text(f"{'x' * 300} {'漢' * 300}", encoding="utf-8")
    (tmp_path / "list.txt").write_text(f"el\n{'x' * 300}\n", encoding="utf-8")
    out = run("check", "long.txt", "--words", "list.txt", "-n", "1")[1]
    assert "rank 2" in out
    assert all(len(line) + line.count("漢") <= 80 for line in out.splitlines())


def test_many_unknown_words_are_cut_on_the_terminal_and_whole_as_json(run):
    text = " ".join(f"x{'y' * n}" for n in range(40))
    assert "and 25 more" in run("check", "-", "--words", "own.txt", stdin=text)[1]
    found = json.loads(run("check", "-", "--words", "own.txt", "--json", stdin=text)[1])
    assert len(found["unknown"]) == found["words"] == found["problem_count"] == 40


def test_the_report_as_json_says_what_the_exit_code_says(run):
    code, out, err = run("check", "bad.txt", "--words", "own.txt", "--json")
    found = json.loads(out)
    assert (code, found["fits"], err) == (1, False, "")
    assert [entry["text"] for entry in found["unknown"]] == ["bebe", "un"]
    assert json.loads(run("check", "good.txt", "--words", "own.txt", "--json")[1])["fits"] is True


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("el 12", ["--digits"]),
        ("«el»", ["--quotes"]),
        ("el-perro", ["--hyphens"]),
        ("el: perro", ["--colons"]),
        ("el Perro", ["--capitals", "anywhere"]),
        ("el gato", ["--extra", "gato"]),
        ("el pez come y", ["--extra", "pez", "--extra", "y"]),
        ("el Ana", ["--name", "Ana"]),
        ("el/perro", ["--separators", "/"]),
        ("el" + "." * 9, ["--max-run", "9"]),
        ("l'agua", ["--lang", "fr", "--extra", "l'"]),
    ],
)
def test_flags_allow_what_they_say(run, text, flags):
    assert run("check", "-", "--words", "own.txt", stdin=text)[0] == 1
    assert run("check", "-", "--words", "own.txt", *flags, stdin=text)[0] == 0


def test_a_language_is_checked_against_the_shipped_list(run):
    assert run("check", "-", "--lang", "es", "-n", "3000", stdin="¿Qué hora es? No, gracias.")[0] == 0
    assert run("check", "-", "--lang", "en", stdin="The dog's name isn't here, I think.")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "good.txt"], "there is no list"),
        (["check", "good.txt", "--lang", "xx"], "no word list for 'xx'"),
        (["check", "good.txt", "--lang", "../es"], "not a language code"),
        (["check", "none.txt", "--words", "own.txt"], "cannot read the text none.txt"),
        (["check", "good.txt", "--words", "none.txt"], "cannot read the word list none.txt"),
        (["check", "good.txt", "--words", "own.txt", "-n", "5"], "more than the list has: 4 words"),
        (["check", "good.txt", "--words", "own.txt", "-n", "0"], "at least 1"),
        (["check", "good.txt", "--words", "own.txt", "--capitals", "some"], "never, sentence, anywhere"),
        (["check", "good.txt", "--words", "own.txt", "--max-run", "0"], "max_run"),
    ],
)
def test_what_was_asked_wrongly_is_one_line_and_exit_2(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_lists_are_named_with_their_counts_and_paths(run, tmp_path, monkeypatch):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "es.txt").write_text("uno\ndos\n")
    (folder / "qq.txt").write_bytes(b"\xff")
    monkeypatch.setenv("ESPALIER_WORDLIST_DIR", str(folder))
    code, out, err = run("list")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["en", "10,000"], ["es", "2"], ["qq", "unusable"]]
    assert str(folder / "es.txt") in out
    assert "not UTF-8 at byte 0" in err
    found = {entry["lang"]: entry["words"] for entry in json.loads(run("list", "--json")[1])}
    assert found == {"en": 10_000, "es": 2, "qq": None}


def test_a_list_is_built_with_its_source_and_read_back(run, tmp_path, wordfreq):
    code, out, err = run("build", "es", "-n", "50")
    assert (code, out) == (0, "")
    path = tmp_path / "wordlists" / "es.txt"
    assert "50 words in wordlists/es.txt" in err
    assert "ESPALIER_WORDLIST_DIR=" in err
    assert read_words(path) == build_words("es", 50)
    header = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert header[0].startswith("# es: the 50 most frequent words")
    assert any("wordfreq 3" in line for line in header)
    assert any("CC BY-SA 4.0" in line for line in header)


def test_the_shipped_lists_are_what_the_command_builds(run, wordfreq):
    code, out, _ = run("build", "es", "-o", "-")
    assert code == 0
    listed = json.loads(run("list", "--json")[1])
    shipped = next(entry["path"] for entry in listed if entry["lang"] == "es")
    with open(shipped, encoding="utf-8") as file:
        assert parse_words(file, "es") == parse_words(out.splitlines(), "es")


def test_a_list_goes_to_the_configured_folder(run, tmp_path, monkeypatch, wordfreq):
    monkeypatch.setenv("ESPALIER_WORDLIST_DIR", str(tmp_path / "mine"))
    code, _, err = run("build", "es", "-n", "3")
    assert code == 0
    assert err == f"3 words in {tmp_path / 'mine' / 'es.txt'}\n"


def test_a_file_that_is_there_is_kept_unless_forced(run, tmp_path, wordfreq):
    before = (tmp_path / "own.txt").read_text()
    code, _, err = run("build", "es", "-n", "3", "-o", "own.txt")
    assert (code, (tmp_path / "own.txt").read_text()) == (2, before)
    assert "own.txt exists already" in err
    assert "--force" in err
    assert run("build", "es", "-n", "3", "-o", "own.txt", "--force")[0] == 0
    assert len(read_words(tmp_path / "own.txt")) == 3


def test_a_file_that_cannot_be_written_is_named(run, wordfreq):
    code, _, err = run("build", "es", "-n", "3", "-o", "none/x.txt")
    assert code == 1
    assert "cannot write none/x.txt" in err


def test_an_unknown_language_names_those_there_are_and_takes_none_near_it(run, wordfreq):
    with pytest.raises(UnknownName, match="no words for 'gl'") as raised:
        build_words("gl", 10)
    assert "ca, cs" in raised.value.hint
    code, _, err = run("build", "gl")
    assert code == 2
    assert "it has: ar, bg" in err
    with pytest.raises(SpecError):
        build_words("../es", 10)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "words"), [(0, "at least 1"), (-1, "at least 1"), (10**9, r"there are: \d+ words")])
def test_a_count_that_cannot_be_met_says_how_many_there_are(count, words, wordfreq):
    with pytest.raises(InputError, match=words):
        build_words("is", count)  # a short list


def test_a_missing_package_is_named_with_the_line_that_installs_it(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    for call in (word_build.languages, lambda: build_words("es", 5), lambda: list_text("es", ["de"])):
        with pytest.raises(MissingDependency, match="wordfreq is not installed"):
            call()
    code, _, err = run("build", "es")
    assert code == 1
    assert "[wordlists]'" in err


@pytest.mark.parametrize(
    ("lang", "raw", "word"),
    [
        ("es", "Canción", "canción"),
        ("es", "5", None),
        ("es", "3d", None),
        ("es", "😂", None),
        ("es", "_", None),
        ("es", "t.co", None),
        ("es", "p.m", None),
        ("es", "º", None),
        ("es", "https", None),
        ("es", "y", "y"),
        ("es", "q", None),  # a letter, no word of the language
        ("en", "i", "i"),
        ("en", "don’t", "don't"),
        ("en", "s", "'s"),  # cut off at its apostrophe
        ("fr", "l", "l'"),
        ("fr", "aujourd'hui", "aujourd'hui"),
        ("fr", "'", None),
        ("it", "dell", "dell'"),
        ("ca", "col·laboració", "col·laboració"),
        ("el", "τησ", "της"),  # folded by wordfreq
        ("fa", "می\u200cشود", "می\u200cشود"),
        ("fa", "\u200c", None),
        ("he", 'צה"ל', 'צה"ל'),
        ("hi", "में", "में"),
        ("ja", "\u0301", None),  # a mark alone
        ("ja", "ー", None),
        ("zh", "的", "的"),
    ],
)
def test_only_words_are_kept_and_written_as_people_do(lang, raw, word):
    assert finish(raw, lang) == word


@pytest.mark.parametrize("word", ["a--b", "a'", "-a", "'s", "", " ", "a b", "a.b", "1ª"])
def test_marks_stand_between_letters_only(word):
    assert not is_word(word)
