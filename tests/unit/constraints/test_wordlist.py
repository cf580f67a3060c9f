"""Word lists: the laws, the plain checker as an oracle, brute force, and what users get wrong."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import espalier
from espalier import Vocab
from espalier.constraints.compiler import Compiler, Folders
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from espalier.constraints.words.compile import separator_characters
from espalier.constraints.words.judge import check_text
from espalier.constraints.words.spec import Wordlist
from espalier.errors import SpecError, UnknownName
from espalier.lexicon.files import WordFiles
from espalier.lexicon.languages import LANGUAGES
from espalier.tokens import mask as masks
from tests.laws import check_matcher
from tests.tokenizers import byte_level_vocab, spm_vocab

BYTES = Compiler(Vocab.bytes())
FILES = WordFiles.standard()


def accepts(text, *args, **options):
    return BYTES.compile(Wordlist(*args, **options)).accepts(text)


CASES = {
    "plain": (
        Wordlist(["el", "perro", "perros", "come", "árbol"], lang="es"),
        ["El perro come.", "el perro, come", "¿Come? ¡Perros!", "Árbol", "…el. El"],
        ["", " ", "El Perro", "perr", "perros perr", "EL", "elperro", "el" + " " * 9 + "perro", "el; perro"],
    ),
    "French": (
        Wordlist(["l'", "d'", "eau", "un", "homme"], lang="fr", names=["Anne"]),
        ["L'eau d'un homme.", "l’eau", "Un homme d'Anne"],
        ["l' eau", "l'", "eau l'", "l'Eau"],
    ),
    "English": (
        Wordlist(["i", "i'm", "dog", "'s", "don't", "the"], lang="en"),
        ["I'm the dog's dog.", "the dog I", "I don't", "the dog’s"],
        ["dog 's", "'s", "the Dog"],
    ),
    "Chinese": (Wordlist(["你", "你好", "好", "世界"], lang="zh"), ["你好世界。", "好，你好"], ["你们", "，"]),
    "Hindi": (Wordlist(["नमस्ते", "दुनिया"], lang="hi"), ["नमस्ते दुनिया।"], ["नमस्त"]),
    "all options": (
        Wordlist(["uno", "dos"], digits=True, quotes=True, hyphens=True, colons=True, separators="()", names=["NASA"]),
        ['Uno: "dos" (NASA) 10:30 uno-dos – 1.000,5', "12"],
        ["nasa", "unodos", "1234567890123", "uno@dos"],
    ),
    "capitals anywhere": (Wordlist(["uno"], capitals="anywhere"), ["uno Uno"], ["UNO"]),
    "capitals never": (Wordlist(["uno"], capitals="never"), ["uno. uno"], ["Uno"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("make", [Vocab.bytes, byte_level_vocab, spm_vocab])
def test_laws(name, make):
    spec, accepted, rejected = CASES[name]
    compiler = Compiler(make())
    check_matcher(compiler.compile(spec), trie=compiler.trie, accepted=accepted, rejected=rejected)


def test_a_rare_word_that_begins_a_frequent_one_is_not_let_through():
    words = ["hola", "perro", "ho", "perr"]
    assert accepts("hola perro", words, top=2)
    assert not accepts("ho", words, top=2)
    assert not accepts("perr hola", words, top=2)
    assert accepts("ho", words, top=3)


def test_a_text_ends_only_after_a_whole_word():
    compiled = BYTES.compile(Wordlist(["hola", "holanda"]))
    matcher = compiled.matcher()
    ends = []
    for byte in b"holanda. ":
        matcher.advance(byte)
        ends.append(matcher.is_accepting)
    assert ends == [False, False, False, True, False, False, True, True, True]


def test_the_shipped_lists_write_sentences():
    assert accepts("El perro come en la casa. ¿Y tú?", lang="es", top=3000)
    assert accepts("I think it's the dog's house, isn't it?", lang="en", top=3000)
    assert not accepts("El murciélago", lang="es", top=3000)


@st.composite
def specs(draw):
    lang = draw(st.sampled_from([None, *LANGUAGES]))
    letters = draw(st.sampled_from(["abc", "aéß", "你好", "دم", "aİ", "नम"]))
    word = st.text(letters + "'", min_size=1, max_size=4)
    return Wordlist(
        draw(st.lists(word, min_size=1, max_size=8)),
        lang=lang,
        extra=draw(st.lists(word, max_size=2)),
        names=draw(st.lists(st.text(letters.upper() + letters, min_size=1, max_size=3), max_size=2)),
        capitals=draw(st.sampled_from(["never", "sentence", "anywhere"])),
        digits=draw(st.booleans()),
        quotes=draw(st.booleans()),
        hyphens=draw(st.booleans()),
        colons=draw(st.booleans()),
        separators=draw(st.sampled_from(["", "()", "'"])),
        max_run=draw(st.integers(1, 4)),
    )


def language_of(spec):
    try:
        return Compiler(Vocab.bytes()).compile(spec)
    except SpecError:  # only elided forms or clitics
        return None


@pytest.mark.slow
@given(specs(), st.randoms(use_true_random=False))
def test_the_plain_checker_agrees_on_random_texts(spec, random):
    compiled = language_of(spec)
    words = [*(spec.words or ()), *spec.extra, *spec.names]
    pieces = [
        *words,
        *(w[0].title() + w[1:] for w in words),
        *separator_characters(spec),
        "’",
        "1",
        "23",
        ".",
        "-",
        " ",
    ]
    for _ in range(15):
        text = "".join(random.choices(pieces, k=random.randint(1, 6)))
        fits = not check_text(spec, text, FILES)
        assert (compiled is not None and compiled.accepts(text)) == fits, text


@pytest.mark.parametrize("lang", ["es", "en"])
def test_random_texts_of_every_shipped_language_pass_the_checker(lang):
    spec = Wordlist(lang=lang, top=5000, quotes=True, hyphens=True, digits=True, colons=True)
    vocab = byte_level_vocab()
    compiled = Compiler(vocab).compile(spec)
    for seed in range(12):
        random, matcher, text = Random(seed), compiled.matcher(), b""
        for _ in range(60):
            ids = [int(i) for i in masks.allowed_ids(matcher.mask(), vocab.width) if i not in vocab.eos_ids]
            token = random.choice(ids)
            matcher.advance(token)
            text += vocab.bytes_of(token)
        for token in matcher.shortest_completion():
            text += vocab.bytes_of(token)
            matcher.advance(token)
        assert matcher.is_finished
        assert check_text(spec, text.decode(), FILES) == []


def test_the_masks_are_those_of_brute_force():
    """A token is allowed exactly when some text of the language goes on with it."""
    spec = Wordlist(["a", "ab", "bab"], names=["B"], max_run=2, separators=",")
    tokens = [b"a", b"b", b"B", b"A", b" ", b",", b"ab", b"b ", b" a", b"ba", b"  ", b" ,a", b"A b", b"bab a", b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1])
    compiled = Compiler(vocab).compile(spec)
    dfa = compiled.machine.dfa
    for prefix in (b"", b"a", b"ab ", b"b", b"a ,", b"B", b"A", b"ba"):
        matcher = compiled.matcher()
        for byte in prefix:
            matcher.advance(tokens.index(bytes([byte])))
        expected = [bool(t) and alive(dfa, prefix + t) for t in tokens[:-1]]
        expected.append(dfa.accepts(prefix))
        assert masks.unpack(matcher.mask(), vocab.width).tolist() == expected, prefix


def alive(dfa, data):
    """Every state leads to acceptance, so a text can be gone on with exactly if the automaton survives it."""
    state = dfa.start
    for byte in data:
        state = dfa.step(state, byte)
        if state < 0:
            return False
    return True


def test_what_follows_a_whole_word_is_walked_once_for_all_words():
    vocab = byte_level_vocab()
    compiled = Compiler(vocab).compile(Wordlist(lang="es", top=3000))
    random = Random(3)
    for word in random.choices(FILES.words("es")[:3000], k=40):
        matcher = compiled.matcher()
        for token in compiled.trie.segment(word.encode()):
            matcher.advance(token)
        after = masks.unpack(matcher.mask(), vocab.width)
        for token in np.flatnonzero(after):
            assert matcher.allows(int(token))
    assert len(compiled.machine._shared) <= 4


def test_explain_names_the_list():
    matcher = BYTES.compile(Wordlist(lang="es", top=100)).matcher()
    blame = matcher.explain(ord("#"))
    assert blame.member == "wordlist"
    assert blame.rule == "the list es"


@pytest.mark.parametrize(
    ("before", "token", "reason"),
    [
        ("", "fox", "“fox” is not in the list"),
        ("the", " fox", "“fox” is not in the list"),
        ("the ca", "r", "“r” continues no word of the list"),
    ],
)
def test_a_word_that_the_list_lacks_is_named(before, token, reason):
    tokens = (*(bytes([byte]) for byte in range(256)), b" fox", b"fox", b"")
    vocab = Vocab(tokens=tokens, eos_ids=(258,), special_texts={258: "<end>"}, width=259)
    matcher = Compiler(vocab).compile(Wordlist(["the", "cat"])).matcher()
    for byte in before.encode():
        matcher.advance(byte)
    number = {" fox": 256, "fox": 257}.get(token, ord(token[0]))
    assert matcher.explain(number).reason == reason


def test_an_edited_list_counts_without_a_restart(tmp_path):
    (tmp_path / "xx.txt").write_text("uno\n", encoding="utf-8")
    compiler = Compiler(Vocab.bytes(), folders=Folders(wordlists=tmp_path))
    spec = Wordlist(lang="xx")
    assert not compiler.compile(spec).accepts("dos")
    (tmp_path / "xx.txt").write_text("uno\ndos\n", encoding="utf-8")
    assert compiler.compile(spec).accepts("dos")


def test_round_trip():
    spec = Wordlist(lang="es", top=3000, names=["NASA"], digits=True, capitals="anywhere", separators="()")
    assert Spec.from_json(spec.to_json()) == spec
    assert Spec.from_json({"kind": "wordlist", "words": ["a"]}) == Wordlist(["A"])


def test_the_verdict_is_the_checkers():
    spec = Wordlist(lang="es", top=3000)
    assert judge(spec, "El perro come.").valid is True
    verdict = judge(spec, "El murciélago vuela.")
    assert verdict.valid is False
    assert "murciélago" in verdict.errors[0]


def test_turkish_keeps_its_two_letters_i():
    words = ["iyi", "ılık", "İstanbul"]
    for text in ("İyi ılık.", "Ilık iyi", "istanbul iyi", "İstanbul"):
        assert accepts(text, words, lang="tr"), text
    assert not accepts("Iyi", words, lang="tr")
    assert accepts("Istanbul", ["İstanbul"]), "elsewhere the dot is no other letter"


def test_dutch_writes_ij_as_one_letter():
    assert accepts("IJs. Ijs ijs", ["ijs"], lang="nl")
    assert not accepts("iJs", ["ijs"], lang="nl")


def test_direct_speech_begins_with_a_capital():
    assert accepts('Dijo: "Hola"', ["dijo", "hola"], lang="es", quotes=True, colons=True)
    assert not accepts("Dijo: Hola", ["dijo", "hola"], lang="es", quotes=True, colons=True)


def test_no_break_spaces_and_wide_marks_where_they_are_written():
    assert accepts("Oui\u202f?", ["oui"], lang="fr")
    assert accepts("你\u3000好：", ["你", "好"], lang="zh", colons=True)


FAULTS = {
    "a mark alone": ({"words": ["\u0301a"]}, "not a word"),
    "nothing that is seen": ({"words": ["\u200b"]}, "not a word"),
    "no words": ({}, "needs words"),
    "an empty list": ({"words": []}, "empty"),
    "a string for a list": ({"words": "hola"}, "list of strings"),
    "a word with a space": ({"words": ["dos palabras"]}, "not one word"),
    "an empty word": ({"words": ["a", " "]}, "word 1 of words is empty"),
    "no text": ({"words": [3]}, "is a string"),
    "half a character": ({"words": ["\ud800"]}, "not valid Unicode"),
    "n beyond the list": ({"words": ["a", "b"], "top": 3}, "2 words"),
    "n below 1": ({"words": ["a"], "top": 0}, "at least 1"),
    "n that is no number": ({"words": ["a"], "top": True}, "at least 1"),
    "a path for a language": ({"lang": "../es"}, "not a language code"),
    "unknown capitals": ({"words": ["a"], "capitals": "yes"}, "never, sentence, anywhere"),
    "a letter as separator": ({"words": ["a"], "separators": "x"}, "part of words"),
    "no run": ({"words": ["a"], "max_run": 0}, "at least 1"),
    "digits that are no flag": ({"words": ["a"], "digits": 1}, "true or false"),
    "names with a space": ({"words": ["a"], "names": ["Buenos Aires"]}, "not one word"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_typed_error(name):
    options, message = FAULTS[name]
    with pytest.raises(SpecError) as caught:
        Wordlist(**options)
    assert message in str(caught.value)
    assert caught.value.field


def test_a_cut_beyond_a_shipped_list_says_how_many_there_are():
    with pytest.raises(SpecError, match="the list es has: 10000 words"):
        BYTES.compile(Wordlist(lang="es", top=50_000))


def test_an_unknown_language_says_what_is_available():
    with pytest.raises(UnknownName, match="en, es"):
        BYTES.compile(Wordlist(lang="tlh", top=10))


def test_words_that_never_stand_alone_are_nothing_to_say():
    with pytest.raises(SpecError, match="no text can be made"):
        BYTES.compile(Wordlist(["l'"], lang="fr"))


def test_too_many_apostrophes_are_refused():
    with pytest.raises(SpecError, match="apostrophes"):
        BYTES.compile(Wordlist(["a'b'c'd'e'f'g'h"]))


def test_it_is_public():
    assert espalier.Wordlist is Wordlist
