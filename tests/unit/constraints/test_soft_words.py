"""Soft word lists: the tiers by hand, words off the list, and laws over real vocabularies."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler, Folders
from espalier.constraints.soft.spec import SoftSpec, SoftWordlist
from espalier.constraints.spec import Regex
from espalier.constraints.words.spec import Wordlist
from espalier.errors import SpecError, UnknownName
from espalier.sampling.filters import Priority
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.soft_laws import biases, check_forks_and_rollbacks, compiler_of, over_each_vocabulary, tokenisation
from tests.tokenizers import tekken_vocab

BYTES = Compiler(Vocab.bytes())
WORDS = ("the", "dog", "does", "not", "mind", "lazy", "jumps", "fox")
SOFT = SoftWordlist(Wordlist(WORDS, top=5), tier2_max_rank_multiplier=1.4, tier2_penalty=2.0, tier3_penalty=8.0)
FREE, SECOND, THIRD = 0.0, -2.0, -8.0


def after(text, spec=SOFT, compiler=BYTES):
    """The filter after a text, a token a byte."""
    one = spec.filter(compiler)
    for byte in text.encode() if isinstance(text, str) else text:
        one.on_token(byte)
    return one


def loses(text, following, spec=SOFT):
    """What the bytes of `following` (`""` is EOS) lose after a text, together."""
    one = after(text, spec)
    if not following:
        return float(biases(one, 257)[256])
    total = 0.0
    for byte in following.encode():
        total += float(biases(one, 257)[byte])
        one.on_token(byte)
    return total


# ---------------------------------------------------------------- the tiers


@pytest.mark.parametrize(
    ("text", "following", "bias"),
    [
        ("", "the dog does not mind.", FREE),
        ("", "The dog", FREE),
        ("the ", "The", 3 * THIRD),  # a capital within a sentence
        ("the dog. ", "The", FREE),
        ("the ", "lazy", 4 * SECOND),  # rank 6
        ("the ", "jumps", 5 * SECOND),  # rank 7, the last of the second tier
        ("the ", "do", FREE),
        ("the dog", "", FREE),
        ("the dog ", "", FREE),
        ("the do", "", THIRD),  # in the middle of a word
        ("the lazy", "", FREE),
        ("the laz", "", THIRD),  # a word that only the second tier could end
        ("the laz", " ", THIRD),
        ("the laz", "y ", SECOND),
        ("the lazy", " dog", FREE),
        ("", "fo", 2 * THIRD),  # rank 8 is beyond both
        ("fox", " the", FREE),
        ("the fo", "x", THIRD),  # what goes on with an odd word is off the list as well
        ("the fox", "", FREE),  # and it has been paid for
        ("", "", THIRD),  # no word at all is no text of the list
    ],
)
def test_what_a_text_loses(text, following, bias):
    assert loses(text, following) == bias


def test_a_word_of_the_list_that_only_begins_like_an_odd_one_is_free():
    assert loses("the do", "es") == FREE
    assert loses("the do", "x") == THIRD
    assert loses("the dog", "s") == THIRD


def test_k_times_n_is_exact_and_rounded_up():
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]
    for n, k, last in [(10, 1.1, 11), (10, 1.11, 12), (100, 1.1, 110), (3, 1.0, 3), (7, 1.0000001, 8), (70, 1.7, 119)]:
        assert SoftWordlist(Wordlist(words, top=n), tier2_max_rank_multiplier=k).last_rank == last
    assert math.ceil(1.1 * 10) == 11
    assert math.ceil(1.1 * 100) == 111, "which is why it is not computed with floats"


def test_the_second_tier_ends_where_the_list_does():
    spec = SoftWordlist(Wordlist(WORDS, top=5), tier2_max_rank_multiplier=1e300, tier2_penalty=1.0)
    assert loses("the ", "fox", spec) == -3.0
    assert loses("the ", "x", spec) == THIRD


def test_without_a_second_tier_there_are_two():
    spec = SoftWordlist(Wordlist(WORDS, top=5))
    assert loses("", "the dog", spec) == FREE
    assert loses("the ", "l", spec) == THIRD


def test_extra_words_and_names_are_of_the_first_tier():
    spec = SoftWordlist(Wordlist(WORDS, top=1, extra=["quick"], names=["Ada"]), tier2_max_rank_multiplier=2)
    assert loses("the ", "quick Ada", spec) == FREE
    assert loses("the ", "ada", spec) < 0


# ---------------------------------------------------------------- off the list


def test_a_separator_leads_back_to_the_list():
    for odd in ("fox", "x7z", "año", "日本", "(", "lazyx", "the_", "dog🌳"):
        for separator, word in ((" ", "the"), (".", " The"), ("\n", "The"), ("…", " Dog"), (", ", "dog")):
            assert after(odd).is_on_list is False
            assert after(odd + separator).is_on_list
            assert loses(odd + separator, word) == FREE
        assert loses(odd + " ", "The") == 3 * THIRD
        assert loses(odd, " ") == loses(odd, "") == FREE


def test_off_the_list_only_separators_are_free():
    out = biases(after("fox"), 257)
    assert {bytes([i]) for i in np.flatnonzero(out[:256] == 0)} == {
        b" ",
        b"\n",
        b"\t",
        b"\r",
        b".",
        b",",
        b"!",
        b"?",
        b"\xe2",
    }
    assert set(np.unique(out).tolist()) == {0.0, THIRD}


def test_half_a_character_may_become_a_separator():
    assert loses("fox", "…") == FREE
    assert loses(b"fox\xe2", "") == FREE
    out = biases(after(b"fox\xe2\x80"), 257)
    assert np.flatnonzero(out[:256] == 0).tolist() == [0xA6], "of E2 80 only the ellipsis is a separator"
    assert after(b"fox\xe2\x80\xa6").is_on_list
    assert not after("fox‘").is_on_list
    assert after(b"fox\xe2 ").is_on_list, "half a character, and then a space"
    assert not after(b"fox\x80\xa6").is_on_list


def test_a_run_of_separators_that_is_too_long_costs_and_no_more():
    spec = SoftWordlist(Wordlist(WORDS, top=5, max_run=2))
    assert loses("the  ", " ", spec) == THIRD
    assert loses("the   ", "dog", spec) == FREE


def test_where_words_are_not_apart_any_character_leads_back():
    spec = SoftWordlist(Wordlist(["日本", "本", "人", "好"], lang="zh", top=4))
    assert loses("", "日本人好", spec) == FREE
    assert loses("人", "猫", spec) < 0
    assert loses("人猫", "好", spec) == FREE
    assert loses("人猫", "", spec) == FREE
    assert loses("日人", "好", spec) == FREE, "the character that did not go on is a word of its own"
    assert loses("日", "人", spec) < 0


def test_the_words_that_attach_do():
    spec = SoftWordlist(Wordlist(["l'", "eau", "le", "'s", "dog"], lang="fr", top=5))
    assert loses("xyz ", "l'eau", spec) == FREE
    spec = SoftWordlist(Wordlist(["'s", "dog", "dogs", "I"], lang="en", top=4))
    assert loses("xyz ", "dog's", spec) == FREE


def test_specials_and_ids_that_are_no_token_get_no_bias():
    tokens = [b"the", b" ", b"x", b"", b"", b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[4, 3], special_ids={5: "<user>"}, width=9)
    spec = SoftWordlist(Wordlist(["the"], top=1))
    # Letters of `the` have no token of their own here; the word does.
    one = spec.filter(Compiler(vocab))
    assert biases(one, 9).tolist() == [0, 0, -8, -8, -8, 0, 0, 0, 0]
    one.on_token(0)
    assert biases(one, 9).tolist() == [-8, 0, -8, 0, 0, 0, 0, 0, 0]
    one.on_token(5)
    one.on_token(4)
    assert biases(one, 9).tolist() == [-8, 0, -8, 0, 0, 0, 0, 0, 0], "specials add nothing to the text"


# ---------------------------------------------------------------- laws


TEXTS = st.lists(
    st.sampled_from([*WORDS, "The", "xyz", "año", " ", " ", ". ", "…", "?!", "日", "\n", "‘", "-"]), max_size=8
).map("".join)


@over_each_vocabulary
@given(TEXTS, st.data())
@settings(max_examples=examples(40))
def test_forks_and_rollbacks_restore_the_biases(name, text, data):
    compiler = compiler_of(name)
    random = data.draw(st.randoms(use_true_random=False))
    ids = [*tokenisation(compiler, text.encode(), random.choice), compiler.vocab.eos_ids[0]]
    check_forks_and_rollbacks(SOFT, compiler, ids, data.draw(st.integers(0, len(ids))))


@over_each_vocabulary
@given(TEXTS, st.data())
@settings(max_examples=examples(40))
def test_the_biases_depend_on_the_text_and_not_on_its_tokens(name, text, data):
    compiler = compiler_of(name)
    vocab, random = compiler.vocab, data.draw(st.randoms(use_true_random=False))
    one, other = SOFT.filter(compiler), SOFT.filter(compiler)
    for token in tokenisation(compiler, text.encode(), random.choice):
        one.on_token(token)
    for token in tokenisation(compiler, text.encode(), lambda ids: ids[0]):
        other.on_token(token)
    assert np.array_equal(biases(one, vocab.width), biases(other, vocab.width))


@given(TEXTS)
def test_where_a_text_is_on_the_list_is_as_the_words_say(text):
    """The slow, plain way: the last word, and what stands before it, as text."""
    one = SOFT.filter(BYTES)
    for place, character in enumerate(text):
        for byte in character.encode():
            one.on_token(byte)
        tail = re.split(r"[\s.,!?…]", text[: place + 1])[-1]
        before = text[: place + 1 - len(tail)]
        run = before[len(before.rstrip(" \n.,!?…")) :]
        if len(run) > 8:
            return
        starts = run == before or any(c in ".!?…\n" for c in run)
        forms = [*WORDS[:5], *([w.title() for w in WORDS[:5]] if starts else [])]
        assert one.is_on_list == any(form.startswith(tail) for form in forms), text[: place + 1]


@given(st.binary(max_size=12))
def test_any_bytes_are_followed(data):
    one = after(data)
    assert np.isfinite(biases(one, 257)).all()
    for byte in b" the":
        one.on_token(byte)
    assert one.is_on_list, "a separator leads back from anywhere"


@over_each_vocabulary
@given(
    st.lists(st.sampled_from([*WORDS[:5], "lazy", "jumps"]), min_size=1, max_size=6),
    st.sampled_from([" ", ". ", ", ", "\n"]),
    st.data(),
)
@settings(max_examples=examples(40))
def test_on_the_list_what_is_free_is_what_the_hard_list_allows(name, words, separator, data):
    """The slow, plain way: the matchers of both hard lists."""
    compiler = compiler_of(name)
    vocab, random = compiler.vocab, data.draw(st.randoms(use_true_random=False))
    hard = compiler.compile(Wordlist(WORDS, top=5)).matcher()
    wide = compiler.compile(Wordlist(WORDS, top=7)).matcher()
    one = SOFT.filter(compiler)
    is_narrow = True
    ids = tokenisation(compiler, separator.join(words).encode(), random.choice)
    for token in ids[: data.draw(st.integers(0, len(ids)))]:
        is_narrow = is_narrow and hard.allows(token)
        if is_narrow:
            hard.advance(token)
        if not wide.allows(token):
            return  # a capital was due, or the like
        wide.advance(token)
        one.on_token(token)
    out = biases(one, vocab.width)
    costly = ~masks.unpack(wide.mask(), vocab.width)
    judged = np.array([bool(vocab.bytes_of(i)) or i in vocab.eos_ids for i in range(vocab.width)])
    assert np.all(out[costly & judged] == THIRD)
    assert np.all(out[~judged] == FREE)
    assert np.all(out[~costly] >= SECOND)
    if is_narrow:
        assert np.all(out[masks.unpack(hard.mask(), vocab.width)] == FREE)
        assert np.all(out[~costly & ~masks.unpack(hard.mask(), vocab.width)] == SECOND)


def test_over_a_hundred_thousand_tokens():
    vocab = tekken_vocab()
    one = SOFT.filter(Compiler(vocab))
    for text in (b"the", b" dog", b" x", b"yz"):
        one.on_token(vocab.tokens.index(text))
    out = biases(one, vocab.width)
    free = {vocab.bytes_of(i) for i in np.flatnonzero((out == 0) & vocab.real_ids)} - {b""}
    assert {b" ", b" the", b".", b" d", b"\n\n"} <= free
    assert b"the" not in free
    assert np.all(out[~vocab.real_ids] == 0)


def test_what_is_remembered_is_bounded():
    compiler = Compiler(Vocab.bytes())
    for penalty in range(1, 20):
        loses_now = SoftWordlist(Wordlist(WORDS, top=5), tier3_penalty=penalty).filter(compiler)
        assert biases(loses_now, 257)[ord("x")] == -penalty
    shared = loses_now._tiers._shared
    assert len(shared._kept) == 8
    assert shared.found.limit == 64 * 2**20
    assert shared.found.size > 19 * 257 * 4


def test_a_word_file_that_was_edited_makes_another_list(tmp_path):
    path = tmp_path / "xx.txt"
    path.write_text("the\ndog\n", "utf-8")
    compiler = Compiler(Vocab.bytes(), folders=Folders(wordlists=tmp_path))
    spec = SoftWordlist(Wordlist(lang="xx", top=1), tier2_max_rank_multiplier=2, tier2_penalty=1)
    assert biases(spec.filter(compiler), 257)[ord("d")] == -1
    path.write_text("dog\nthe\nfox\n", "utf-8")
    assert biases(spec.filter(compiler), 257)[ord("d")] == 0
    path.write_text("", "utf-8")
    with pytest.raises(SpecError):
        spec.filter(compiler)
    with pytest.raises(UnknownName):
        SoftWordlist(Wordlist(lang="yy", top=1)).filter(compiler)


def test_rolling_back_more_than_there_was_is_refused():
    one = after("t")
    with pytest.raises(ValueError, match="cannot undo 2 of 1"):
        one.rollback(2)


def test_it_is_a_filter_of_high_priority():
    one = SOFT.filter(BYTES)
    assert (one.name, one.priority) == ("soft_words", Priority.HIGH)


# ---------------------------------------------------------------- the spec


def test_the_spec_round_trips():
    for spec in (SOFT, SoftWordlist(Wordlist(lang="es", top=3000, digits=True, names=["Ana"]), tier3_penalty=4)):
        data = json.loads(json.dumps(spec.to_json()))
        assert SoftSpec.from_json(data) == spec
        assert data["kind"] == "soft_wordlist"
        assert data["wordlist"] == spec.wordlist.to_json()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tier2_max_rank_multiplier": 0.99}, "tier2_max_rank_multiplier"),
        ({"tier2_max_rank_multiplier": math.inf}, "tier2_max_rank_multiplier"),
        ({"tier2_max_rank_multiplier": math.nan}, "tier2_max_rank_multiplier"),
        ({"tier2_max_rank_multiplier": 10**400}, "tier2_max_rank_multiplier"),
        ({"tier2_max_rank_multiplier": "2"}, "tier2_max_rank_multiplier"),
        ({"tier2_penalty": -1}, "tier2_penalty"),
        ({"tier2_penalty": 9}, "tier2_penalty"),
        ({"tier2_penalty": math.nan}, "tier2_penalty"),
        ({"tier3_penalty": 0}, "tier3_penalty"),
        ({"tier3_penalty": -1}, "tier3_penalty"),
        ({"tier3_penalty": math.inf}, "tier3_penalty"),
        ({"tier3_penalty": True}, "tier3_penalty"),
        ({"wordlist": Wordlist(WORDS)}, "top"),
        ({"wordlist": Regex("a")}, "wordlist"),
        ({"wordlist": None}, "wordlist"),
        ({"wordlist": ["the"]}, "wordlist"),
    ],
)
def test_a_field_out_of_its_range_is_named(fields, field):
    with pytest.raises(SpecError) as caught:
        SoftWordlist(**{"wordlist": SOFT.wordlist, **fields})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "soft_wordlist"}, "wordlist"),
        ({"kind": "soft_wordlist", "wordlist": {"kind": "wordlist", "words": ["a"]}}, "top"),
        ({"kind": "soft_wordlist", "wordlist": {"kind": "regex", "pattern": "a"}}, "wordlist"),
        ({"kind": "soft_wordlist", "wordlist": {"kind": "wordlist", "words": ["a"], "top": 1, "most": 2}}, "most"),
        ({"kind": "soft_wordlist", "wordlist": "es"}, "kind"),
        ({"kind": "soft_wordlist", "wordlist": SOFT.wordlist.to_json(), "tier1": 2}, "tier1"),
    ],
)
def test_what_is_no_soft_word_list_names_the_field(data, field):
    with pytest.raises(SpecError) as caught:
        SoftSpec.from_json(data)
    assert caught.value.field == field


def test_a_cut_beyond_the_list_is_an_error_of_the_list(tmp_path):
    (tmp_path / "xx.txt").write_text("the\n", "utf-8")
    with pytest.raises(SpecError) as caught:
        SoftWordlist(Wordlist(lang="xx", top=2)).filter(Compiler(Vocab.bytes(), folders=Folders(wordlists=tmp_path)))
    assert caught.value.field == "top"
