import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.tokenizers as tokenizers
from espalier.constraints.ban import Ban
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge, parse
from espalier.errors import SpecError
from espalier.tokens.vocab import Vocab
from tests.laws import check_matcher, matcher_after


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
def test_laws(vocab):
    one = Compiler(tokenizers.VOCABS[vocab]())
    check_matcher(
        one.compile(Ban(["lazy", "ñandú", "日", "rm -rf", " dog"])),
        trie=one.trie,
        accepted=["", "The quick brown fox jumps over the", "laz ñand 本 🌳", "rm -r f", "dog", b"a\x00b\n"],
        rejected=["the lazy dog", "ñandú", "x日", "rm -rf /", "the dog", b"\xff", b"\xc3"],
    )


@given(st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=8), st.text("abé", max_size=10))
def test_what_is_dropped_changes_nothing(phrases, text):
    spec = Ban(phrases)
    assert set(spec.phrases) <= set(phrases)
    assert not any(one in other for one in spec.phrases for other in spec.phrases if one != other)
    assert any(p in text for p in phrases) == any(p in text for p in spec.phrases)
    assert judge(spec, text).valid is not any(p in text for p in phrases)


def test_phrases_that_hold_another_are_dropped_either_way():
    few_lengths = [f"{i:04}" for i in range(200)] + ["x0007y"]
    assert Ban(few_lengths).phrases == tuple(few_lengths[:-1])
    many_lengths = ["x" * n for n in range(40, 2, -1)]
    assert Ban(many_lengths).phrases == ("xxx",)


def test_a_ban_survives_json():
    spec = Ban(["a b", "é", "a b", "x é"])
    assert spec.phrases == ("a b", "é")
    back = Spec.from_json(json.loads(json.dumps(spec.to_json())))
    assert back == spec
    assert back.key() == spec.key()
    assert spec.to_json() == {"kind": "ban", "phrases": ["a b", "é"]}


@pytest.mark.parametrize(
    ("phrases", "words"),
    [
        ("abc", "list of strings"),
        (7, "list of strings"),
        ([], "nothing to ban"),
        (["a", ""], "phrase 1 is empty"),
        (["a", 3], "phrase 1 is a string, not int"),
        (["\ud800"], "not valid Unicode"),
    ],
)
def test_what_is_no_ban_is_refused(phrases, words):
    with pytest.raises(SpecError, match=words) as caught:
        Ban(phrases)
    assert caught.value.field == "phrases"


def test_a_refusal_names_the_phrase_and_the_place():
    tokens = [bytes([b]) for b in range(256)] + [b"", b"rf", b"f /", b"rm -rf", b"xrm -rfy", "日本".encode()]
    vocab = Vocab.from_tokens(tokens, eos_ids=[256])
    compiled = Compiler(vocab).compile(Ban(["rm -rf", "日本", "日é"]))
    start, begun = matcher_after(compiled, "ls; "), matcher_after(compiled, "rm -")
    first = begun.explain(257)
    assert first.reason == 'after "rm -", "rf" would complete the banned "rm -rf"'
    assert (first.member, first.offset) == ("ban", 1)
    assert matcher_after(compiled, "rm -r").explain(258).reason.startswith('after "rm -r", "f" would ')
    assert matcher_after(compiled, "rm -r").explain(258).offset == 0
    assert start.explain(259).reason == '"rm -rf" would complete the banned "rm -rf"'
    assert (start.explain(260).reason, start.explain(260).offset) == (start.explain(259).reason, 6)
    assert start.explain(261).reason == '"日本" would complete the banned "日本"'
    assert "the bytes ff" in start.explain(255).reason
    half = matcher_after(compiled, "日")
    half.advance(0xC3)
    assert half.explain(256).reason == "the text is not complete, so it cannot end here"
    assert half.explain(0xA9).reason.endswith('would complete the banned "日é"')
    assert half.shortest_completion()[-1] == 256


def test_the_verdict_names_what_occurs():
    verdict = judge(Ban(["a", "bc"]), "xbcxa")
    assert verdict.valid is False
    assert verdict.errors == ('the banned "a" occurs at character 4', 'the banned "bc" occurs at character 1')
    assert judge(Ban(["a"]), "A").valid is True
    assert parse(Ban(["a"]), "A") == "A"


def test_a_ban_is_a_language():
    compiler = Compiler(Vocab.bytes())
    dfa = compiler.language(Ban(["ab"]), wanted_by="a test")
    assert dfa.accepts(b"a b")
    assert not dfa.accepts(b"xab")
