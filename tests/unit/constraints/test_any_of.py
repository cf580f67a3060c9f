"""AnyOf: the texts of any member and no other, over every kind of matcher, and who is said to refuse what."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier import After, AllOf, AnyOf, Ban, Choice, Gbnf, JsonObject, JsonSchema, Regex, Vocab
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.constraints.base import Compiled, Composite, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of_matcher import CompiledAnyOf
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge, parse
from espalier.constraints.words.spec import Wordlist
from espalier.errors import InputError, NotAvailable, SpecError, TokenRefused, UnsupportedError
from espalier.tokens import mask as masks
from tests.laws import check_completion, check_matcher, matcher_after

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
BRACKETS = Gbnf('root ::= "(" root ")" root | [a-c]*')
END = "</think>"
CASES = {
    "regex or regex": (AnyOf(Regex("[a-c]{2}x*"), Regex("ab*y?")), ["a", "abx", "abbby", "cbxx"], ["", "b", "abxy"]),
    "regex or choice": (AnyOf(Regex("[0-9]+"), Choice(["yes", "no", "42!"])), ["yes", "42", "42!"], ["ye", "!", ""]),
    "schema or regex": (
        AnyOf(JsonSchema(USER), Regex('\\{"[a-n]+": [0-9]\\}|nothing')),
        ['{"name": "Zoë"}', '{"name": 5}', "nothing", '{"a": 1}'],
        ['{"name": 55}', '{"names": "x"}', "noth"],
    ),
    "two schemas": (
        AnyOf(JsonSchema(USER), JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}}})),
        ['{"name": "x"}', '{"n": 5, "m": [null]}', "{}"],
        ['{"n": "x"}', "[]"],
    ),
    "schema or grammar or ban": (
        AnyOf(JsonSchema(USER), BRACKETS, Ban(["x", "{", "("])),
        ['{"name":"x"}', "((a))b", "", "no e"],
        ["((a)", "x", "{", ")x"],
    ),
    "thinking or not": (
        AnyOf(After(END, JsonSchema(USER)), JsonSchema(USER)),
        ['hm</think>{"name":"A"}', '{"name":"</think>"}', '{"name":"</think>{"name":"A"}'],
        ["hm", "{}", '{"name":"A"}</think>'],
    ),
    "within one another": (
        AnyOf(AllOf(Regex("[a-f]+"), Ban(["bad"])), Regex("b(a|d)*!"), AllOf(Regex("[x-z]*"), Regex("..?"))),
        ["ba", "dab", "bad!", "xy"],
        ["bad", "xyz", ""],
    ),
}
SPELLINGS = ("name", '":', '{"', '{"na', "</think>", "ab", "abb", "bx", "ye", "es", "42", "2!", "(a", ")b", "é", "ad!")


@cache
def compiler(name: str) -> Compiler:
    return Compiler({**tokenizers.VOCABS, "marked": marked}[name]())


def marked() -> Vocab:
    tokens = [bytes([byte]) for byte in range(256)] + [b"", b"", b""] + [text.encode() for text in SPELLINGS]
    specials = {256: "<eos>", 257: END, 258: "<end>"}
    return Vocab.from_tokens(tokens, eos_ids=[256, 258], special_ids=specials, width=len(tokens) + 5)


# The spec


def test_nested_members_are_flat_and_equal_ones_are_one() -> None:
    one, other, third = Regex("a"), Choice(["a", "b"]), Regex("[ab]")
    assert AnyOf(AnyOf(one, other), third, one, AnyOf([AnyOf(third)])).members == (one, other, third)
    assert AnyOf([one, other]) == AnyOf((one, other)) == AnyOf(one, other)
    assert hash(AnyOf(one)) == hash(AnyOf([one]))
    assert AnyOf(one, other).key() != AnyOf(other, one).key()
    assert AnyOf(AllOf(one), other).members == (AllOf(one), other)
    assert AnyOf(one, other).names() == ["any_of[0].regex", "any_of[1].choice"]


def test_json_and_back() -> None:
    spec = AnyOf(JsonObject(), Regex("a|é"), AllOf(Regex("a"), Ban(["b"])))
    assert spec.to_json() == {"kind": "any_of", "members": [member.to_json() for member in spec.members]}
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_what_is_not_a_member() -> None:
    with pytest.raises(SpecError, match="at least one"):
        AnyOf()
    with pytest.raises(SpecError, match="member 1"):
        AnyOf(Regex("a"), "b")
    deep: Any = {"kind": "regex", "pattern": "a"}
    for _ in range(100_000):
        deep = {"kind": "any_of", "members": [deep]}
    with pytest.raises(SpecError, match="deeply"):
        Spec.from_json(deep)
    for _ in range(100_000):  # taken apart by hand: freeing what is nested as deeply may recurse too
        deep = deep["members"][0]


def test_word_files_of_all_members_are_watched() -> None:
    assert AnyOf(Wordlist(lang="es"), AllOf(Wordlist(lang="en"))).word_languages() == ("es", "en")


# The language


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "sentencepiece", "marked"])
@pytest.mark.parametrize("case", CASES)
def test_laws(case: str, vocab: str) -> None:
    spec, accepted, rejected = CASES[case]
    one = compiler(vocab)
    compiled = one.compile(spec)
    assert isinstance(compiled, Compiled)
    assert isinstance(compiled, CompiledAnyOf)
    assert isinstance(compiled.matcher(), Matcher)
    check_matcher(compiled, trie=one.trie, accepted=accepted, rejected=rejected)


def test_one_member_is_itself() -> None:
    one = compiler("bytes")
    assert one.compile(AnyOf(Regex("a"))).spec == Regex("a")
    assert one.language(AnyOf(Regex("a")), wanted_by="a test").accepts(b"a")


LETTERS = ["a", "b", "(", ")"]
TOKENS = [b"a", b"b", b"(", b")", b"ab", b"a(", b")(", b"(a)", b"b)b", b""]
SMALL = Vocab.from_tokens(TOKENS, eos_ids=[9])
TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product(LETTERS, repeat=n)]
PARTS: list[Spec] = [
    Regex("[ab()]{0,6}"),
    Regex("[^b]*"),
    Regex("(a|b\\)|\\()*"),
    Regex(".*a.*"),
    Regex("(..)*"),
    Regex(r"(\([ab]*\))*"),
    Choice(["a", "ab", "(a)", "()()", "ab(a)", ""]),
    Ban(["ab", "(("]),
    Gbnf('root ::= "(" root ")" root | [ab]{0,2}'),
    Gbnf('root ::= "a" root "b" | "(" root | ")"'),
    After("b", Regex("[ab]?")),
    AllOf(Regex("[ab]*"), Regex("..")),
]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_union(seed: int) -> None:
    """Texts, and along some of them every token of every mask, against what the members say each on its own."""
    rng = random.Random(seed)
    chosen = rng.sample(PARTS, rng.choice([2, 2, 3, 4]))
    one = Compiler(SMALL)
    alone = [one.compile(part) for part in chosen]
    compiled = one.compile(AnyOf(chosen))
    wanted = {text for text in TEXTS if any(part.accepts(text) for part in alone)}
    assert {text for text in TEXTS if compiled.accepts(text)} == wanted
    for _ in range(15):
        matcher, members = compiled.matcher(), [part.matcher() for part in alone]
        seen = [matcher.mask()]
        for _ in range(8):
            united = masks.empty(SMALL.width)
            for member in members:
                united |= member.mask()
            assert np.array_equal(matcher.mask(), united)
            assert matcher.is_accepting == any(member.is_accepting for member in members)
            for token in range(SMALL.width):
                assert matcher.allows(token) == masks.test(united, token)
                if not matcher.allows(token):
                    assert matcher.explain(token).member.startswith("any_of")
            check_completion(matcher)
            forced = matcher.forced()
            for member in members:  # each on its own must take what is forced
                probe = member.fork()
                for token in forced:
                    probe.advance(token)
            choices = [int(token) for token in masks.allowed_ids(united, SMALL.width) if token != 9]
            if not choices:
                break
            token = rng.choice(choices)
            matcher.advance(token)
            members = [member for member in members if member.allows(token)]
            for member in members:
                member.advance(token)
            seen.append(matcher.mask())
        while len(seen) > 1:
            back = rng.randrange(1, len(seen))
            matcher.rollback(back)
            del seen[-back:]
            assert np.array_equal(matcher.mask(), seen[-1])


@pytest.mark.parametrize("seed", range(20))
def test_its_language_is_the_union(seed: int) -> None:
    rng = random.Random(seed)
    chosen = [part for part in rng.sample(PARTS, 3) if not isinstance(part, After)]
    one = compiler("bytes")
    found = one.language(AnyOf(chosen), wanted_by="a test")
    parts = [one.language(part, wanted_by="a test") for part in chosen]
    assert isinstance(found, Dfa) == all(isinstance(part, Dfa) for part in parts)
    alone = [one.compile(part) for part in chosen]
    whole = compile_automaton(found, AnyOf(chosen), one.vocab, one.trie)
    assert [whole.accepts(text) for text in TEXTS] == [any(part.accepts(text) for part in alone) for text in TEXTS]


def test_a_composition_can_hold_it() -> None:
    one = compiler("bytes")
    spec = AllOf(AnyOf(Regex("[0-9]+"), Choice(["yes", "no"])), Ban(["7"]))
    check_matcher(one.compile(spec), trie=one.trie, accepted=["yes", "123"], rejected=["7", "17", "ye"])
    assert isinstance(one.language(AnyOf(Regex("a"), BRACKETS), wanted_by="a test"), Network)


def test_a_member_without_an_automaton_has_no_language() -> None:
    with pytest.raises(UnsupportedError, match="AnyOf cannot hold after"):
        compiler("bytes").language(AnyOf(Regex("a"), After("b", Regex("c"))), wanted_by="a test")


# The matcher


def test_members_are_left_behind_and_come_back() -> None:
    one = compiler("bytes")
    matcher = matcher_after(one.compile(AnyOf(Regex("ab"), Regex("ac+"), Regex("x"))), "a")
    assert [chr(i) for i in masks.allowed_ids(matcher.mask(), 256)] == ["b", "c"]
    fork = matcher.fork()
    matcher.advance(ord("b"))
    assert matcher.is_accepting
    matcher.advance(256)
    assert matcher.is_finished
    with pytest.raises(TokenRefused, match="ended"):
        matcher.advance(ord("b"))
    assert matcher.explain(ord("c")).reason == "the text has ended"
    fork.advance(ord("c"))
    assert fork.is_accepting
    assert fork.allows(ord("c"))
    matcher.rollback(2)
    matcher.advance(ord("c"))
    matcher.rollback(2)
    assert matcher.allows(ord("x"))
    with pytest.raises(ValueError, match="undo"):
        matcher.rollback(1)
    with pytest.raises(ValueError, match="undo"):
        fork.rollback(-1)
    assert fork.is_accepting


def test_only_what_all_say_is_forced() -> None:
    one = compiler("bytes")
    compiled = one.compile(AnyOf(Choice(["abcd", "abce"]), Regex("abx")))
    assert compiled.matcher().forced() == tuple(b"ab")
    assert matcher_after(compiled, "ab").forced() == ()
    assert matcher_after(compiled, "abc").forced() == ()
    assert matcher_after(compiled, "abx").forced() == ()
    assert one.compile(AnyOf(Regex("ab"), Regex("(ab)?c"))).matcher().forced() == ()
    ends = one.compile(AnyOf(Regex("ab"), Regex("a")))
    assert ends.matcher().forced() == (ord("a"),)
    assert matcher_after(ends, "a").forced() == ()


def test_what_is_forced_is_spelled_anew() -> None:
    """One member's spelling may go past the border of what all have in common."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"", b"abc", b"abx", b"ab"]
    one = Compiler(Vocab.from_tokens(tokens, eos_ids=[256]))
    compiled = one.compile(AnyOf(Regex("abc"), Regex("abx")))
    assert [one.compile(Regex(text)).matcher().forced() for text in ("abc", "abx")] == [(257,), (258,)]
    assert compiled.matcher().forced() == (259,)


def test_tokens_without_bytes_are_forced_together_or_not_at_all() -> None:
    one = compiler("marked")
    same = one.compile(AnyOf(Gbnf('root ::= "a" <[257]> "b"'), Gbnf('root ::= "a" <[257]> "c"')))
    assert same.matcher().forced() == (ord("a"), 257)
    other = one.compile(AnyOf(Gbnf('root ::= "a" <[257]> "b"'), Regex("a</think>b")))
    assert other.matcher().forced() == (ord("a"),)


def test_the_shortest_completion_is_that_of_any_member() -> None:
    one = compiler("bytes")
    compiled = one.compile(AnyOf(Regex("abcdef"), Regex("ab.?z"), Regex("a{9}")))
    assert compiled.matcher().shortest_completion() == (*b"abz", 256)
    assert matcher_after(compiled, "abc").shortest_completion() == (ord("z"), 256)
    assert matcher_after(compiled, "abcd").shortest_completion() == (*b"ef", 256)


class Silent:
    """A matcher that cannot tell."""

    def __init__(self, inner: Matcher) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def shortest_completion(self) -> tuple[int, ...]:
        raise NotAvailable("not here")

    def explain(self, token: int) -> Any:
        raise NotAvailable("not here")

    def fork(self) -> Silent:
        return Silent(self.inner.fork())


def test_members_that_cannot_tell_are_passed_over() -> None:
    one = compiler("bytes")
    compiled = one.compile(AnyOf(Regex("ab"), Regex("abcd")))
    assert isinstance(compiled, CompiledAnyOf)
    matcher = compiled.matcher()
    first = matcher._members[0]
    assert first is not None
    matcher._members[0] = Silent(first)
    assert matcher.shortest_completion() == (*b"abcd", 256)
    assert matcher.explain(ord("x")).member == "any_of[1].regex"
    second = matcher._members[1]
    assert second is not None
    matcher._members[1] = Silent(second)
    with pytest.raises(NotAvailable):
        matcher.shortest_completion()
    assert matcher.explain(ord("x")).reason == "it refuses this token and cannot say why"


def test_the_member_that_goes_furthest_explains() -> None:
    one = compiler("marked")
    matcher = one.compile(AnyOf(Choice(["yes"]), Regex("ab[0-9]"), Regex("abc"))).matcher()
    (token,) = one.trie.segment(b"abb") or ()
    told = matcher.explain(token)
    assert (told.member, told.offset) == ("any_of[1].regex", 2)
    assert told.expected is not None
    assert "any_of[2].regex" in told.expected
    assert matcher.explain(ord("z")).member == "any_of[0].choice"  # the first of equal ones
    assert matcher.explain(one.vocab.width).reason == "there is no such token"
    with pytest.raises(ValueError, match="allowed"):
        matcher.explain(ord("a"))
    with pytest.raises(TokenRefused, match="any_of forbids"):
        matcher.advance(ord("z"))
    matcher.advance(ord("y"))
    alone = matcher.explain(ord("z"))
    assert (alone.member, alone.expected) == ("any_of[0].choice", '"e"')


def test_members_of_members_are_told_where_one_is_left() -> None:
    one = compiler("bytes")
    matcher = one.compile(AnyOf(AllOf(Regex("a[bc]*"), Ban(["cc"])), Regex("x"))).matcher()
    assert isinstance(matcher, Composite)
    assert [name for name, _ in matcher.member_masks()] == ["any_of"]
    matcher.advance(ord("a"))
    names = [name for name, _ in matcher.member_masks()]
    assert names[0] == "any_of[0].all_of.all_of[0].regex"
    assert np.array_equal(matcher.member_masks()[-1][1], matcher.mask())
    matcher.advance(256)
    assert [name for name, _ in matcher.member_masks()] == ["any_of"]


def test_what_the_prompt_holds_is_passed_on() -> None:
    one = compiler("bytes")
    spec = AnyOf(After("</a>", Regex("[0-9]+")), After("</b>", Regex("[x-z]+")))
    compiled = one.compile(spec)
    both = compiled.matcher(before="</a>1")
    assert both.allows(ord("2"))
    assert both.allows(ord("x"))  # the other still waits for its marker
    with pytest.raises(InputError):  # the answer would be `y` for the first and `</a>y` for the second
        compiled.matcher(before="</b></a>y")
    assert spec.begun("</b>") == "</b>"
    assert spec.begun("</a></b>") == "</a></b>"
    assert spec.begun("") == ""


def test_members_that_the_prompt_does_not_fit_are_left_out() -> None:
    one = compiler("bytes")
    compiled = one.compile(AnyOf(After("</a>", Regex("[0-9]+")), Regex("[x-z]+")))
    matcher = compiled.matcher(before="</a>nothing")
    assert {chr(i) for i in masks.allowed_ids(matcher.mask(), 256)} == {"x", "y", "z"}
    fork = matcher.fork()
    fork.advance(ord("x"))
    fork.rollback(1)
    assert not fork.allows(ord("1"))
    none = one.compile(AnyOf(After("</a>", Regex("[0-9]+")), After("</a>", Regex("[a-b]"))))
    with pytest.raises(InputError, match="refuses what follows"):
        none.matcher(before="</a>nothing")


def test_special_tokens_are_spelled_by_any_member() -> None:
    one = compiler("marked")
    assert one.compile(AnyOf(After(END, Regex("x")), Regex("y"))).spelled == {257: b"</think>"}

    other = SimpleNamespace(spelled={257: b"?"}, vocab=one.vocab)
    with pytest.raises(SpecError, match="token 257"):
        CompiledAnyOf(Regex("x"), ["a", "b"], [one.compile(After(END, Regex("x"))), other], one.trie)


# The verdict


def test_one_valid_member_is_enough() -> None:
    spec = AnyOf(JsonObject(), Choice(["yes"]), Regex("[0-9]+"))
    for text in ("{}", "yes", "12"):
        assert judge(spec, text).valid is True
    wrong = judge(spec, "[]")
    assert wrong.valid is False
    assert wrong.judge == "json and list and re"
    assert wrong.errors == ("any_of[0].json_object: array is none of: object",)


def test_what_nobody_can_judge() -> None:
    spec = AnyOf(Choice(["yes"]), Regex("\\p{L}+"))
    assert judge(spec, "yes").valid is True
    assert judge(spec, "no").valid is None
    assert parse(spec, "no") == "no"


def test_the_first_valid_member_parses() -> None:
    spec = AnyOf(Choice(['{"a": 1}', "x"]), JsonObject())
    assert parse(spec, '{"a": 1}') == '{"a": 1}'
    assert parse(AnyOf(JsonObject(), Choice(['{"a": 1}'])), '{"a": 1}') == {"a": 1}
    assert parse(spec, '{"b": 1}') == {"b": 1}
    assert parse(AnyOf(After("=", JsonObject()), JsonObject()), "hm={}") == {}
    assert parse(spec, "neither") == "neither"


def test_the_nearest_member_says_what_is_wrong() -> None:
    many = JsonSchema({"type": "object", "required": ["a", "b", "c"]})
    spec = AnyOf(many, JsonSchema({"type": "object", "required": ["a"]}))
    assert judge(spec, "{}").errors == ("any_of[1].json_schema: $: 'a' is a required property",)
