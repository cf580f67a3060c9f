"""The word list's judge: each rule by example, against a regular expression, and where it says a text goes wrong."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.constraints.verdict import judge
from espalier.constraints.words.judge import check_text, line_and_column
from espalier.constraints.words.report import oov_report
from espalier.constraints.words.spec import Wordlist
from espalier.errors import SpecError, UnknownName
from espalier.lexicon.files import WordFiles
from espalier.lexicon.languages import LANGUAGES, language

FILES = WordFiles([])
ES = ("el", "perro", "come", "y", "bebe", "agua", "canción")
EN = ("i", "i'm", "the", "dog", "'s", "'ll", "o'clock", "mr.", "sleeps")
FR = ("l'", "d'", "eau", "un", "il", "aujourd'hui", "jusqu'")


def spec(words, lang=None, **options):
    return Wordlist(words, lang=lang, **options)


def fits(one, text):
    """Whether the text fits; its verdict and its report must say the same."""
    found = check_text(one, text, FILES)
    verdict = judge(one, text, FILES)
    assert verdict.judge == "words"
    assert verdict.valid is (not found)
    assert oov_report(one, text, FILES).fits is (not found)
    return not found


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("el perro come", True),
        (" el perro.\n", True),
        ("el\tperro\r\ncome…", True),
        ("el perro gato", False),
        ("elperro", False),
        ("", False),
        (" ...", False),
        ("el perr", False),
        ("el-perro", False),
        ("«el»", False),
        ("el: perro", False),
        ("el 3", False),
    ],
)
def test_only_words_and_separators_fit(text, good):
    assert fits(spec(ES, "es"), text) is good


def test_a_run_of_separators_is_no_longer_than_allowed():
    assert fits(spec(ES, max_run=3), "...el, \nperro...")
    for text in ("....el", "el    perro", "el...."):
        assert not fits(spec(ES, max_run=3), text)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("quotes", "“el «perro»”"),
        ("colons", "el: perro; come"),
        ("hyphens", "el – perro — come -y"),
        ("digits", "el 3"),
    ],
)
def test_marks_fit_where_they_are_allowed_only(option, text):
    assert fits(spec(ES, **{option: True}), text)
    assert not fits(spec(ES), text)


def test_own_separators_stand_between_words_and_attach_nothing():
    assert fits(spec(ES, separators="/|"), "el/perro |come")
    assert not fits(spec(ES, separators="/"), "el|perro")


def test_top_cuts_the_list_but_not_the_extra_words_nor_the_names():
    one = spec(ES, top=2, extra=["Gato"], names=["Ana"])
    assert fits(one, "el perro gato Ana")
    assert not fits(one, "el perro come")


def test_a_list_shorter_than_top_is_refused(tmp_path):
    (tmp_path / "es.txt").write_text("el\nperro\n")
    with pytest.raises(SpecError, match="2 words"):
        check_text(Wordlist(lang="es", top=3), "el", WordFiles([tmp_path]))


def test_a_list_that_is_not_there_leaves_the_text_unjudged():
    assert judge(Wordlist(lang="xx"), "el", FILES).valid is None
    with pytest.raises(UnknownName):
        check_text(Wordlist(lang="xx"), "el", FILES)


@pytest.mark.parametrize(
    ("text", "never", "sentence", "anywhere"),
    [
        ("el perro", True, True, True),
        ("El perro", False, True, True),
        ("el Perro", False, False, True),
        ("el perro. Come", False, True, True),
        ("el perro, Come", False, False, True),
        ("el perro\nCome", False, True, True),
        ("el perro\rCome", False, True, True),
        ("el perro. , Come", False, True, True),  # separators that follow keep the start
        ("el perro ,. Come", False, True, True),
        (", El perro", False, True, True),
        ("¿El perro?", False, True, True),
        ("el, ¡Perro!", False, True, True),
        ("EL perro", False, False, False),
        ("el pErro", False, False, False),
        ("3 El", False, False, True),
        ("el. 3 Perro", False, False, True),
    ],
)
def test_capitals_stand_where_they_may(text, never, sentence, anywhere):
    for capitals, good in (("never", never), ("sentence", sentence), ("anywhere", anywhere)):
        assert fits(spec(ES, "es", capitals=capitals, digits=True), text) is good, capitals


def test_names_and_words_that_are_capital_by_rule_are_written_exactly_anywhere():
    one = spec(EN, "en", names=["McAdam", "O’Neill"], capitals="never")
    assert fits(one, "the dog, I, I'm, I’m, i, McAdam, O'Neill and".removesuffix(" and"))
    for text in ("mcadam", "Mcadam", "MCADAM", "I've"):
        assert not fits(one, text)
    assert not fits(spec(("the",), "en"), "the I")  # its lower case is not listed


def test_both_apostrophes_fit_and_others_do_not():
    one = spec(EN, "en")
    assert fits(one, "o'clock o’clock")
    assert not fits(one, "oʼclock")
    assert not fits(one, "o`clock")


def test_a_text_in_nfd_does_not_fit_and_is_said_to_be():
    one = spec(ES, "es")
    assert fits(one, "canción")
    (problem,) = check_text(one, unicodedata.normalize("NFD", "el canción"), FILES)
    assert "NFC" in problem.reason
    assert problem.offset == 3


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("l'eau", True),
        ("l’eau", True),
        ("L'eau", True),
        ("l'Eau", False),
        ("L'Eau", False),
        ("il. D'un", True),
        ("il D'un", False),
        ("d'l'eau", True),
        ("D'L'eau", False),
        ("l'Ana", True),
        ("d'aujourd'hui", True),
        ("l' eau", False),
        ("l'", False),
        ("l'.", False),
        ("l'l'", False),
        ("eau l'", False),
        ("l'12", False),
        ("eaul'", False),
        ("leau", False),
    ],
)
def test_elided_forms_stand_directly_before_a_word_in_languages_that_have_them(text, good):
    assert fits(spec(FR, "fr", names=["Ana"], digits=True), text) is good


def test_an_elided_form_is_a_word_like_any_other_elsewhere():
    assert fits(spec(("dogs'", "tails"), "es"), "dogs' tails")
    assert not fits(spec(("dogs'", "tails"), "fr"), "dogs' tails")


def test_capitals_anywhere_hold_for_each_word_of_a_chain():
    assert fits(spec(FR, "fr", capitals="anywhere"), "il, L'Eau d'Un D'L'eau")
    assert not fits(spec(EN, "en", capitals="anywhere"), "dog'S")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("the dog's", True),
        ("the dog’s", True),
        ("dog's'll", True),
        ("Rex's dog", True),
        ("the 's dog", False),
        ("'s dog", False),
        ("dog 's", False),
        ("12's", False),
        ("dog'S", False),
        ("dog's'", False),
        ("dogs", False),
    ],
)
def test_clitics_stand_directly_after_a_word_in_languages_that_have_them(text, good):
    assert fits(spec(EN, "en", names=["Rex"], digits=True), text) is good


def test_a_clitic_is_a_word_like_any_other_elsewhere():
    assert fits(spec(("dog", "'s"), "nl"), "'s dog 's")
    assert not fits(spec(("dog", "'s"), "nl"), "dog's")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("el-perro", True),
        ("el‐perro", True),
        ("El-perro", True),
        ("El-Perro", False),
        ("el-perro-come", True),
        ("el--perro", True),  # two dashes
        ("el‐‐perro", False),
        ("el‐", False),
        ("‐el", False),
        ("el-", True),  # a dash
        ("el-3", True),
        ("el‐3", False),
    ],
)
def test_a_hyphen_joins_two_words(text, good):
    assert fits(spec(ES, "es", hyphens=True, digits=True), text) is good


def test_a_hyphen_joins_chains():
    assert fits(spec(FR, "fr", hyphens=True), "l'eau‐d'un")
    assert not fits(spec(FR, "fr", hyphens=True), "l'‐eau")
    assert fits(spec(EN, "en", hyphens=True), "dog's‐dog'll")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("12", True),
        ("1.5 el 10:30, 1,000.", True),
        ("1" * 12, True),
        ("1" * 13, False),
        ("1:2:3:4:5", True),
        ("1:2:3:4:5:6", False),
        ("1::2", False),
        ("1:", False),
        ("el3", False),
        ("3el", False),
        ("1.2.3.4.5.6", True),  # a full stop also separates
        ("٣", False),
    ],
)
def test_numbers_are_groups_of_digits(text, good):
    assert fits(spec(ES, "es", digits=True), text) is good


def test_a_separator_may_be_part_of_a_word():
    one = spec(EN, "en", separators="'")
    assert fits(one, "mr. dog o'clock. 'the' dog's")
    assert fits(spec(("mr.",), "en"), "mr. mr... mr.")
    assert not fits(spec(("mr.",), "en"), "mr mr")
    assert fits(spec(("e-mail",), "en", hyphens=True), "E-mail-e-mail")
    # The full stop of a word ends no sentence.
    assert not fits(one, "mr. Dog")
    assert fits(one, "mr.. Dog")


@pytest.mark.parametrize("lang", sorted({*LANGUAGES, "de", "es-MX"}))
def test_each_language_has_its_marks_digits_and_ends(lang):
    rules = language(lang)
    one = spec(("ab", "cd"), lang, digits=True, quotes=True)
    assert fits(one, "ab cd")
    assert not fits(one, "ab ef")
    assert fits(one, "abcd") is (not rules.spaced)
    assert fits(one, "12ab") is (not rules.spaced)
    for mark in rules.punctuation:
        assert fits(one, f"ab{mark} cd"), mark
        assert fits(one, f"ab{mark} Cd") is (mark in rules.ends), mark
    for mark in rules.quotes:
        assert fits(one, f"ab{mark}cd")
        assert not fits(spec(("ab", "cd"), lang), f"ab{mark}cd")
    for digit in rules.digits:
        assert fits(one, f"{digit}.{digit} ab")
        assert not fits(spec(("ab",), lang), f"ab {digit}")


def test_without_spaces_words_follow_one_another_in_any_order():
    one = spec(("我", "我们", "喜欢", "abc"), "zh", digits=True, max_run=2)
    for text in ("我喜欢我们", "我们。喜欢", "，我", "我 我", "我12喜欢", "12", "Abc", "我。Abc", "１２我"):
        assert fits(one, text), text
    for text in ("", "。", "我狗", "们", "我。。。我", "我Abc"):
        assert not fits(one, text), text


@pytest.mark.parametrize(
    ("words", "lang", "text", "offset", "there", "reason"),
    [
        (ES, "es", "el gato come", 3, "gato", "'gato' is not in the list"),
        (ES, "es", "el perrito come", 3, "perrito", "'perrito' is not in the list"),
        (ES, "es", "el Perro come", 3, "Perro", "not with capitals here"),
        (ES, "es", "el perro%", 8, "%", "the character '%' is neither"),
        (ES, "es", "el 12", 3, "12", "numbers are not allowed"),
        (ES, "es", "el" + " " * 9 + "perro", 10, " ", "more than 8 separators"),
        (ES, "es", " ", 1, "", "there is no word"),
        (FR, "fr", "il l' eau", 5, " ", "an elided form stands directly before a word"),
        (FR, "fr", "il l'", 5, "", "ends after an elided form"),
        (EN, "en", "the 's", 4, "'s", "stands directly after a word"),
        (("我", "喜欢"), "zh", "我喜狗", 1, "喜狗", "is not in the list"),
    ],
)
def test_the_furthest_place_is_reported_and_what_is_there(words, lang, text, offset, there, reason):
    first = check_text(spec(words, lang), text, FILES)[0]
    assert (first.offset, first.text) == (offset, there)
    assert reason in first.reason


def test_reading_goes_on_after_a_word_that_does_not_fit():
    found = check_text(spec(ES, "es"), "el gato come.\nLa cosa Perro,", FILES)
    assert [problem.text for problem in found] == ["gato", "La", "cosa", "Perro"]


def test_a_verdict_has_at_most_five_errors_with_line_and_column():
    verdict = judge(spec(ES, "es"), "el perro\n" + "x " * 9, FILES)
    assert len(verdict.errors) == 5
    assert verdict.errors[0] == "line 2, column 1: 'x' is not in the list"
    assert line_and_column("a\nbc", 3) == (2, 2)


def test_a_long_text_is_judged_in_time_that_grows_with_it():
    one = spec(("a", "aa", "aaa", "aaaa"), "zh")
    assert not fits(one, "a" * 20_000 + "b")
    assert fits(spec(ES, "es"), "el perro come. " * 5_000)
    assert len(check_text(spec(ES, "es"), "gato " * 5_000, FILES)) == 5_000


PIECES = ("ab", "ba", "Ab", "l'", "L'", "'s", "b.", "Zo", ".", ",", " ", "\n", "-", "‐", "1", "23", ":", "’", "x", "B.")


def language_of(one, lang):
    """The same texts as a regular expression, for the words of the test below."""
    rules = LANGUAGES[lang]
    sep = r"[ \n\t\r.,!?…–—\-]"
    end = r"[.!?…\n\r]"
    n = one.max_run
    elided = "l['’]" if rules.elisions else None
    elided_capital = "[lL]['’]" if rules.elisions else None
    clitic = "(?:['’]s)*" if rules.clitics else ""
    words = ["ab", "ba", "b\\.", *([] if rules.elisions else ["l['’]"]), *([] if rules.clitics else ["['’]s"])]
    capital = [word[0].upper() + word[1:] for word in words]

    def core(capitals):
        return "(?:" + "|".join([*words, "Zo", *(capital if capitals else [])]) + ")"

    def chain(first):
        """first: a capital may begin it."""
        everywhere = one.capitals == "anywhere"
        first = everywhere or (first and one.capitals == "sentence")
        if not elided:
            return core(first) + clitic
        rest = f"(?:{elided_capital if everywhere else elided})*{core(everywhere)}"
        opening = f"{elided_capital if first else elided}{rest}"
        return f"(?:{opening}|{core(first)}){clitic}"

    def unit(first):
        number = r"\d{1,12}(?:[.,:]\d{1,12}){0,4}"
        return f"(?:{chain(first)}(?:[-‐]{chain(False)})*|{number})"

    ending = "|".join(f"{sep}{{{i}}}{end}{sep}{{0,{n - 1 - i}}}" for i in range(n))
    follow = f"(?:(?:{ending}){unit(True)}|{sep}{{1,{n}}}{unit(False)})"
    if rules.spaced:
        return f"{sep}{{0,{n}}}{unit(True)}{follow}*{sep}{{0,{n}}}"
    return f"{sep}{{0,{n}}}{unit(True)}(?:{follow}|{unit(False)})*{sep}{{0,{n}}}"


@given(
    st.lists(st.sampled_from(PIECES), max_size=9).map("".join),
    st.sampled_from(["fr", "en", "hi", "th"]),
    st.sampled_from(["never", "sentence", "anywhere"]),
)
def test_it_says_what_a_regular_expression_of_the_same_language_says(text, lang, capitals):
    words = ("ab", "ba", "l'", "'s", "b.")
    one = spec(words, lang, names=["Zo"], digits=True, hyphens=True, capitals=capitals, max_run=3)
    assert fits(one, text) is (re.fullmatch(language_of(one, lang), text) is not None)
