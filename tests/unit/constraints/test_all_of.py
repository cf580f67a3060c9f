"""AllOf: the texts of every member and no other, without dead ends, and who of the members refuses what."""

from __future__ import annotations

import itertools
import json
import random
import re

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex, SamplingConfig, Vocab
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.base import Compiled, Composite, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose import joint
from espalier.constraints.compose.all_of import AllOf, all_of_language
from espalier.constraints.compose.all_of_matcher import TOGETHER
from espalier.constraints.compose.stranding import CompiledStrandingAllOf
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge, parse
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import Watch
from espalier.errors import LimitExceeded, NotAvailable, RegexError, SpecError, UnsupportedError, VocabError
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext, Priority
from espalier.tokens import mask as masks
from espalier.trace.records import StepRecord
from tests.laws import check_matcher, matcher_after

NO_X = Regex("[^x]*")
LINE = Regex(r"[^\n]{2,12}")
BRACKETS = Gbnf('root ::= "(" root ")" root | [a-c]*')
CASES = {
    "regex x regex": (AllOf(Regex("[a-c]{2,5}x*"), Regex("(a|bc)*(xx)?")), ["aa", "bcxx", "abcxx"], ["a", "aax", "cc"]),
    "regex x choice": (AllOf(Choice(["yes", "no", "sí", "may"]), Regex("[a-z]+")), ["yes", "may"], ["sí", "ye", ""]),
    "regex x JSON": (AllOf(JsonObject(), LINE), ["{}", '{"é": [1,2]}'], ['{"a": "xxxxx"}', "[]", "{"]),
    "three": (AllOf(JsonObject(kinds=["array"]), LINE, Regex(r"[^\\]*")), ["[]", '["a", 1]'], ['["\\n"]', "{}"]),
    "gbnf x ban": (AllOf(BRACKETS, Ban(["ab", ")("]), Ban(["cc"])), ["", "(ba)", "((a))c"], ["ab", "()()", "cc", "("]),
    "gbnf x regex": (AllOf(BRACKETS, NO_X, Regex("(..)*")), ["", "()", "(ab)"], ["(a)", "(", "a"]),
}


def compiler(vocab: Vocab | None = None) -> Compiler:
    return Compiler(vocab or Vocab.bytes())


BYTES = compiler()


# The spec


def test_nested_members_are_flat_and_equal_ones_are_one():
    one, other, third = Regex("a"), Choice(["a", "b"]), Regex("[ab]")
    assert AllOf(AllOf(one, other), third, one, AllOf([AllOf(third)])).members == (one, other, third)
    assert AllOf([one, other]) == AllOf((one, other)) == AllOf(one, other)
    assert hash(AllOf(one)) == hash(AllOf([one]))
    assert AllOf(one, other).key() != AllOf(other, one).key()  # the order of blame


def test_json_and_back():
    spec = AllOf(JsonObject(), Regex("a|é"))
    assert spec.to_json() == {"kind": "all_of", "members": [JsonObject().to_json(), Regex("a|é").to_json()]}
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "at least one"),
        ({"members": []}, "at least one"),
        ({"members": "abc"}, "list"),
        ({"members": ["abc"]}, "`kind`"),
        ({"members": [{"kind": "regex"}]}, "Regex"),
        ({"member": []}, "no field 'member'"),
    ],
)
@pytest.mark.parametrize("kind", ["all_of", "any_of"])
def test_json_that_is_not_well_formed(kind, data, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_json({"kind": kind, **data})


def test_what_is_not_a_member():
    with pytest.raises(SpecError, match="at least one"):
        AllOf()
    with pytest.raises(SpecError, match="member 1"):
        AllOf(Regex("a"), "b")
    deep = {"kind": "regex", "pattern": "a"}
    for _ in range(100_000):
        deep = {"kind": "all_of", "members": [deep]}
    with pytest.raises(SpecError, match="deeply"):
        Spec.from_json(deep)
    for _ in range(100_000):  # taken apart by hand: freeing what is nested as deeply may recurse too
        deep = deep["members"][0]


# The language


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
@pytest.mark.parametrize("case", CASES)
def test_laws(case, vocab):
    spec, accepted, rejected = CASES[case]
    one = compiler(tokenizers.VOCABS[vocab]())
    compiled = one.compile(spec)
    assert isinstance(compiled, Compiled)
    assert isinstance(compiled.matcher(), Matcher)
    check_matcher(compiled, trie=one.trie, accepted=accepted, rejected=rejected)


@pytest.mark.slow
def test_laws_on_a_large_vocabulary():
    one = compiler(tokenizers.tekken_vocab())
    spec, accepted, rejected = CASES["regex x JSON"]
    check_matcher(one.compile(spec), trie=one.trie, accepted=accepted[1:], rejected=rejected, walks=1)


@pytest.mark.parametrize("case", CASES)
def test_what_is_walked_is_the_product_that_could_be_built(case, monkeypatch):
    """The masks of the members as they are walked against those of their intersection as one automaton."""
    monkeypatch.setattr(joint, "MERGED", 0)
    one = compiler(tokenizers.byte_level_vocab())
    spec, accepted, _ = CASES[case]
    built = compile_automaton(all_of_language(spec, one), spec, one.vocab, one.trie)
    for text in accepted:
        walked, known = one.compile(spec).matcher(), built.matcher()
        for token in (*(one.trie.segment(text.encode()) or ()), one.vocab.eos_ids[0]):
            assert np.array_equal(walked.mask(), known.mask())
            assert walked.forced() == known.forced()
            assert len(walked.shortest_completion()) >= len(known.shortest_completion())
            walked.advance(token)
            known.advance(token)


LETTERS = ["a", "b", "(", ")"]
TOKENS = [b"a", b"b", b"(", b")", b"ab", b"a(", b")(", b"(a)", b"b)b", b""]
SMALL = Vocab.from_tokens(TOKENS, eos_ids=[9])
TEXTS = ["".join(letters) for n in range(7) for letters in itertools.product(LETTERS, repeat=n)]
PARTS = [
    Regex("[ab()]{0,6}"),
    Regex("[^b]*"),
    Regex("(a|b\\)|\\()*"),
    Regex(".*a.*"),
    Regex("(..)*"),
    Regex(r"(\([ab]*\))*"),
    Choice(["a", "ab", "(a)", "()()", "ab(a)", ""]),
]
NESTED = [None, Gbnf('root ::= "(" root ")" root | [ab]{0,2}'), Gbnf('root ::= "a" root "b" | "(" root | ")"')]


@pytest.mark.parametrize("seed", range(25))
def test_brute_force(seed):
    rng = random.Random(seed)
    one = compiler(SMALL)
    nested = rng.choice(NESTED)
    members = [PARTS[0], *rng.sample(PARTS[1:], rng.choice([1, 2])), *([nested] if nested else [])]
    rng.shuffle(members)  # the first of PARTS keeps every text short
    alone = [one.compile(member) for member in members]
    both = {text for text in TEXTS if all(member.accepts(text) for member in alone)}
    if not both:
        with pytest.raises(SpecError, match=r"all_of\["):
            one.compile(AllOf(members))
        return
    compiled = one.compile(AllOf(members))
    assert {text for text in TEXTS if compiled.accepts(text)} == both
    begun = {text[:n].encode() for text in both for n in range(len(text) + 1)}
    matcher, text = compiled.matcher(), b""
    while not matcher.is_finished:
        allowed = [i for i, token in enumerate(TOKENS) if token and text + token in begun]
        allowed += [9] if text.decode() in both else []
        assert masks.allowed_ids(matcher.mask(), SMALL.width).tolist() == allowed
        shares = dict(matcher.member_masks())
        assert list(shares)[-1] == "all_of"
        assert np.array_equal(shares["all_of"], matcher.mask())
        for token in range(SMALL.width):
            refusing = [name for name, mask in shares.items() if not masks.test(mask, token)]
            if refusing:
                assert matcher.explain(token).member == refusing[0]
        token = rng.choice(allowed)
        matcher.advance(token)
        text += TOKENS[token]


def test_a_single_member_compiles_as_itself():
    for spec in (Regex("a+"), JsonSchema({"type": "object"})):
        assert BYTES.compile(AllOf(spec)) is BYTES.compile(spec)


@pytest.mark.parametrize("pattern", ["[ab]*a[ab]{9}", "[^z]*x[^z]{11}", r"[^\n]*x[^\n]{10}"])
def test_an_expression_that_is_large_as_one_automaton_is_regular_all_the_same(pattern):
    compiled = BYTES.compile(AllOf(Regex(pattern), Regex("[abx]*")))
    for text in ("ab" * 8, "x" * 12, "axbabababababa", "b" * 12):
        assert compiled.accepts(text) == (re.fullmatch(pattern, text) is not None), text


def test_an_automaton_that_would_fill_the_memory_is_walked_instead():
    compiled = BYTES.compile(AllOf(Regex(".*a.{25}"), Regex("[^x]*")))
    assert compiled.accepts("ba" + "b" * 25)
    assert not compiled.accepts("ba" + "b" * 24)
    assert not compiled.accepts("xa" + "b" * 25)


def test_members_that_contradict_one_another_are_named():
    with pytest.raises(SpecError, match=r"all_of\[0\].regex and all_of\[2\].choice at once"):
        BYTES.compile(AllOf(Regex("a*"), Regex("[ab]*"), Choice(["b"])))
    with pytest.raises(SpecError, match=r"all_of\[0\].json_object and all_of\[1\].regex at once"):
        BYTES.compile(AllOf(JsonObject(), Regex(r"\{*")))
    with pytest.raises(SpecError, match=r"\[0\].regex and all_of\[1\].regex and all_of\[2\].regex at once .*together"):
        BYTES.compile(AllOf(Regex("[ab]"), Regex("[bc]"), Regex("[ca]")))


def test_what_cannot_be_combined_says_why():
    with pytest.raises(UnsupportedError, match=r"all_of\[0\].after cannot be joined without dead ends"):
        BYTES.compile(AllOf(After("!", Regex("a")), Regex(".*"), dead_ends="refuse"))
    with pytest.raises(UnsupportedError, match="/pattern"):
        BYTES.compile(AllOf(JsonSchema({"type": "string", "pattern": r"^(a*)b\1$"}), Regex(".*")))
    with pytest.raises(VocabError, match="<x>"):
        BYTES.compile(AllOf(Gbnf("root ::= <x> root | [a]"), Regex(".*")))
    with pytest.raises(RegexError, match="offset 1"):
        BYTES.compile(AllOf(Regex("a("), Regex(".*")))


def test_what_is_too_large_as_one_automaton_is_walked_as_two(monkeypatch):
    spec, text = AllOf(Regex("[ab]{0,30}"), Regex("[ac]{2,31}")), "a" * 12
    as_one = compiler().compile(spec)
    monkeypatch.setattr(joint, "MERGED", 20)
    as_two = compiler().compile(spec)
    assert isinstance(as_two, CompiledStrandingAllOf)
    assert not isinstance(as_one, CompiledStrandingAllOf)
    for n in range(len(text)):
        assert np.array_equal(matcher_after(as_one, text[:n]).mask(), matcher_after(as_two, text[:n]).mask())
        assert matcher_after(as_one, text[:n]).explain(ord("b")) == matcher_after(as_two, text[:n]).explain(ord("b"))


def test_what_is_too_large_is_named():
    with pytest.raises(LimitExceeded, match=r"all_of\[1\].regex: "):
        BYTES.compile(AllOf(Choice(["a"]), Regex("([ab]{0,999}){0,999}[ab]{1,9}")))


# Who refuses


def test_explain_names_the_first_member_that_refuses():
    matcher = matcher_after(BYTES.compile(AllOf(Regex("[a-c]{2,5}x*"), Regex("(a|bc)*(xx)?"))), "bc")
    told = matcher.explain(ord("d"))
    assert (told.member, told.rule, told.offset, told.position) == ("all_of[0].regex", "root", 0, "line 1, column 1")
    told = matcher.explain(ord("c"))
    assert told.member == "all_of[1].regex"
    assert told.expected == '"a", "b", "x" or the end of the text'
    assert (
        matcher_after(BYTES.compile(AllOf(Regex("aab"), Regex("a+b"))), "aa").explain(256).member == "all_of[0].regex"
    )
    with pytest.raises(ValueError, match="allowed"):
        matcher.explain(ord("a"))


def test_explain_where_only_the_members_together_refuse():
    # Each could go on by either letter, and never by the same text.
    matcher = BYTES.compile(AllOf(Regex("ab|ba|c"), Regex("aa|ba|c"))).matcher()
    told = matcher.explain(ord("a"))
    assert (told.member, told.reason, told.expected) == ("all_of", TOGETHER, '"b" or "c"')


def test_explain_follows_the_sequence_back_and_apart():
    compiled = BYTES.compile(AllOf(JsonObject(), LINE))
    matcher = compiled.matcher()
    assert matcher.explain(ord("x")).member == "all_of[0].json_object"
    for byte in b'{"a": "bc':
        matcher.advance(byte)
    assert matcher.explain(10).member == "all_of[0].json_object"
    fork = matcher.fork()
    matcher.advance(ord('"'))
    assert matcher.explain(ord(" ")).member == "all_of[0].json_object"
    assert matcher.explain(ord(",")).member == "all_of"
    matcher.rollback(9)
    assert (
        matcher.explain(ord("a")).expected == matcher_after(BYTES.compile(JsonObject()), "{").explain(ord("a")).expected
    )
    for byte in b'"b": true}':
        matcher.advance(byte)
    assert matcher.explain(ord("}")).member == "all_of[0].json_object"
    matcher.advance(256)
    assert matcher.explain(256).reason == "the text has ended"
    assert [name for name, mask in matcher.member_masks() if mask.any()] == []
    matcher.rollback(2)
    assert matcher.explain(ord("x")).member == "all_of[0].json_object"
    assert fork.explain(10).member == "all_of[0].json_object"
    assert fork.member_masks()[1][0] == "all_of[1].regex"


def test_members_that_cannot_be_had_alone_leave_the_rest_working():
    # "q" has no token: the member alone would need it, both together do not.
    vocab = Vocab.from_tokens([b"a", b"(", b")", b""], eos_ids=[3])
    one = compiler(vocab)
    matcher = one.compile(AllOf(Gbnf('root ::= "(" root ")" | "a" | "q"'), Regex("[a()]*"))).matcher()
    assert isinstance(matcher, Composite)
    assert masks.allowed_ids(matcher.mask(), 4).tolist() == [0, 1]
    for _ in range(2):
        with pytest.raises(NotAvailable, match="'q'"):
            matcher.explain(2)
        with pytest.raises(NotAvailable, match="'q'"):
            matcher.member_masks()


CONTEXT = FilterContext(step=0, prompt=(), generated=())


def record(matcher: Matcher, row: np.ndarray, filters=()) -> StepRecord:
    done = decide(
        row,
        matcher.mask(),
        vocab=tokenizers.byte_level_vocab(),
        chain=Chain(SamplingConfig(temperature=1.0), filters),
        stream=RandomStream(1),
        context=CONTEXT,
        watch=Watch("full", 3),
        questions=MatcherQuestions(matcher),
    )
    assert done.record is not None
    return done.record


def test_removed_mass_is_shared_out_exactly():
    vocab = tokenizers.byte_level_vocab()
    one = compiler(vocab)
    rng, numbers = random.Random(3), np.random.default_rng(3)
    for spec, accepted, _ in CASES.values():
        matcher = one.compile(spec).matcher()
        alone = [one.compile(member).matcher() for member in spec.members]
        for token in one.trie.segment(max(accepted, key=len).encode()) or ():
            row = numbers.normal(0, rng.choice([1, 8]), vocab.width).astype(np.float32)
            found = record(matcher, row)
            weights = np.exp(row.astype(np.float64) - row.max())
            plain = dict.fromkeys([*spec.names(), "all_of"], 0.0)
            seen = [(name, member.mask()) for name, member in zip(spec.names(), alone, strict=True)]
            whole = matcher.mask()
            for v in range(vocab.width):
                if not masks.test(whole, v):
                    refusing = [name for name, mask in seen if not masks.test(mask, v)] or ["all_of"]
                    plain[refusing[0]] += weights[v] / weights.sum()
            assert list(dict(found.removed_by)) == list(plain)
            assert dict(found.removed_by) == pytest.approx(plain, abs=1e-9)
            assert sum(dict(found.removed_by).values()) == pytest.approx(found.removed_mass, abs=1e-9)
            assert StepRecord.from_json(json.loads(json.dumps(found.to_json()))) == found
            for one_matcher in (matcher, *alone):
                one_matcher.advance(token)


class Banned:
    """A filter that bans one token."""

    name, priority = "banned", Priority.NORMAL

    def __init__(self, token: int) -> None:
        self.token = token

    def apply(self, logits, context):
        out = logits.copy()
        out[self.token] = -np.inf
        return out


def test_what_a_filter_bans_is_not_a_member_s_doing():
    vocab = tokenizers.byte_level_vocab()
    one = compiler(vocab)
    matcher = one.compile(CASES["regex x choice"][0]).matcher()
    (token,) = one.trie.segment(b"y") or ()
    row = np.zeros(vocab.width, dtype=np.float32)
    free, banned = record(matcher, row), record(matcher, row, [Banned(token)])
    assert dict(banned.removed_by) == dict(free.removed_by) | {"banned": pytest.approx(1 / vocab.width)}
    assert sum(dict(banned.removed_by).values()) == pytest.approx(banned.removed_mass, abs=1e-9)


def test_only_compositions_share_it_out_and_a_summary_has_it_too():
    vocab = tokenizers.byte_level_vocab()
    assert not isinstance(compiler(vocab).compile(Regex("a")).matcher(), Composite)
    matcher = compiler(vocab).compile(CASES["regex x choice"][0]).matcher()
    done = decide(
        np.zeros(vocab.width, dtype=np.float32),
        matcher.mask(),
        vocab=vocab,
        chain=Chain(SamplingConfig()),
        stream=RandomStream(1),
        context=CONTEXT,
        watch=Watch("summary"),
        questions=MatcherQuestions(matcher),
    )
    assert done.record is not None
    assert sum(mass for _, mass in done.record.removed_by) == pytest.approx(done.record.removed_mass)


# Verdicts


@pytest.mark.parametrize(
    ("text", "valid"), [('{"a": 1}', True), ('{"a": "' + "b" * 40 + '"}', False), ("[1]", False), ("", False)]
)
def test_the_verdict_is_that_of_every_member(text, valid):
    found = judge(AllOf(JsonObject(), LINE), text)
    assert found.valid is valid
    assert found.judge == "json and re"
    if text == "[1]":
        assert found.errors == ("all_of[0].json_object: array is none of: object",)


def test_what_nobody_can_judge_is_not_judged():
    assert judge(AllOf(Regex(r"\p{L}*"), Regex(".*")), "a").valid is None
    assert judge(AllOf(Regex(r"\p{L}*"), Regex("b*")), "a").valid is False


def test_the_value_is_that_of_a_json_member():
    assert parse(AllOf(Regex(".*"), JsonObject()), '{"a": 1}') == {"a": 1}
    assert parse(AllOf(Regex(".*"), Regex(r"\d*")), "12") == "12"


def test_a_schema_joins_what_is_regular():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    compiled = BYTES.compile(AllOf(JsonSchema(schema), Ban(["secret"])))
    assert compiled.accepts('{"a": "open"}')
    assert not compiled.accepts('{"a": "a secret"}')
    matcher = matcher_after(compiled, '{"a": "secre')
    assert matcher.explain(ord("t")).member == "all_of[1].ban"
    assert matcher.explain(ord("\n")).member == "all_of[0].json_schema"
