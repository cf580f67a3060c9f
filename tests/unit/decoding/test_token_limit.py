"""`TokenLimitMatcher`: its mask is the definition, token by token; the laws hold under it; there is always a way on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier import After, AllOf, AnyOf, Ban, Choice, Free, Gbnf, JsonObject, JsonSchema, Regex, ToolCalls, Wordlist
from espalier.automata.ends.closing import Ends
from espalier.automata.languages.network import build_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_grammar
from espalier.constraints.matching.closing import Closing, known
from espalier.constraints.spec import Spec
from espalier.decoding.text.token_limit import TokenLimitMatcher
from espalier.errors import GrammarError, InputError, LimitExceeded, NotAvailable, TokenRefused, VocabError
from espalier.grammar.parser import parse
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_matcher, check_state, check_walk
from tests.tokenizers import byte_level_vocab
from tests.unit.grammar.trees import small_grammars

FEW = Vocab.from_tokens([b"a", b"b", b"c", b"ab", b"ba", b"bbb", b"aaa", b"bab", b"", b"ccc"], eos_ids=[8])
LACKING = Vocab.from_tokens([b"ab", b"abc", b"c", b"cc", b"bc", b"a", b""], eos_ids=[6])
SOME = [b'"', b'{"', b'":', b'"}', b"{", b"}", b"[", b"]", b",", b'","', b'["', b'"]', b":", b"a", b"b", b"ab", b"1"]
SOME += [b"0", b"2", b"-", b".", b"e", b" ", b"x", b"xx", b"</", b"think", b">", b"</think>", b"<", b"<think", b'>{"a']
SOME += [b"true", b"t", b"rue", b"null", b"n", b"ull", b"false", b"fals", b"/", b"k", b"<", b"yes", b"no", b"y", b"[[["]


@cache
def compiler(name: str) -> Compiler:
    made = {"bytes": Vocab.bytes, "byte-level": byte_level_vocab, "pieces": pieces}[name]()
    return Compiler(made)


def pieces() -> Vocab:
    """A token for each byte, and longer ones that JSON and thoughts are made of."""
    tokens = [bytes([byte]) for byte in range(256)] + [one for one in SOME if len(one) > 1]
    return Vocab.from_tokens([*tokens, b""], eos_ids=[len(tokens)])


USER = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}},
    "required": ["a"],
    "additionalProperties": False,
}
UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2}
TOOLS = {
    "f": {
        "type": "object",
        "properties": {"a": {"enum": ["x", "yes"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
}
SPECS: dict[str, Spec] = {
    "regex": Regex("a{2,5}b|b{3,40}"),
    "choice": Choice(["yes", "no", "no way", "none of them, ever"]),
    "words": Wordlist(lang="en", top=300),
    "grammar": Gbnf('root ::= "(" root* ")" | "x" [0-9]{3}'),
    "schema": JsonSchema(USER),
    "object": JsonObject(),
    "all of": AllOf([Regex("[a-z]{2,12}"), Ban(["ab", "yes"])]),
    "any of": AnyOf([Regex("a{3,9}"), JsonSchema(USER), Choice(["abab"])]),
    "after": After("</think>", JsonSchema(USER)),
    "after, hurried": After("</think>", Regex("x{2,6}"), max_before=4),
    "after words": After("=>", Choice(["yes", "no", " yes yes"])),
    "thinking": Thinking(JsonSchema(USER), max_tokens=6),
    "thinking free": Thinking(Regex("(?s:.*)")),
    "thinking or so": Thinking(Regex("<think>[a-z]*|<[a-z]{3,5}")),
    "free": Free({"<<": Regex("[0-9]{2,4}>")}),
    "tools": ToolCalls(TOOLS, format="args"),
    "unique": JsonSchema(UNIQUE),
}


def defined(matcher: Matcher, left: int, width: int) -> Mask:
    """The allowed tokens after which the shortest completion takes no more than what is left: the definition."""
    found = []
    for token in masks.allowed_ids(matcher.mask(), width).tolist():
        ahead = matcher.fork()
        ahead.advance(token)
        way = known(ahead)
        if way is not None and len(way) <= left - 1:
            found.append(token)
    return masks.from_ids(found, width)


def walked(inner: Matcher, left: int, vocab: Vocab, rng: random.Random, *, exact: bool = True) -> Iterator[Matcher]:
    """Every state of a random walk to the end, the mask compared with the definition on the way."""
    matcher = TokenLimitMatcher(inner.fork(), left, vocab, name="inner")
    plain = inner.fork()
    while not matcher.is_finished:
        assert left > 0
        mask, expected = matcher.mask(), defined(plain, left, vocab.width)
        if exact:
            assert np.array_equal(mask, expected), (
                left,
                [vocab.text_of(i) for i in masks.allowed_ids(mask & ~expected, vocab.width)],
                [vocab.text_of(i) for i in masks.allowed_ids(expected & ~mask, vocab.width)],
            )
        assert len(matcher.shortest_completion()) <= left
        yield matcher
        token = rng.choice(masks.allowed_ids(mask, vocab.width).tolist())
        matcher.advance(token)
        plain.advance(token)
        left -= 1


@settings(deadline=None, max_examples=examples(120), suppress_health_check=list(HealthCheck))
@given(small_grammars, st.integers(0, 8), st.randoms(use_true_random=False))
def test_in_small_languages_the_mask_is_the_definition(grammar, more, rng):
    for vocab in (FEW, LACKING):
        try:
            compiled = compile_grammar(grammar, Regex("a"), vocab, build_trie(vocab.tokens))
        except (GrammarError, VocabError):
            continue
        inner = compiled.matcher()
        for _ in walked(inner, len(inner.shortest_completion()) + more, vocab, rng):
            pass


@pytest.mark.parametrize("vocab", ["pieces", "byte-level"])
@pytest.mark.parametrize("name", SPECS)
def test_under_every_kind_of_constraint_the_mask_is_the_definition(name, vocab):
    one = compiler(vocab)
    inner = one.compile(SPECS[name]).matcher()
    least = len(inner.shortest_completion())
    assert isinstance(inner, Closing)
    for more in (0, 1, 2, 5):
        for matcher in walked(inner, least + more, one.vocab, random.Random(more)):
            check_state(matcher, one.vocab, random.Random(0))


@pytest.mark.parametrize("name", SPECS)
def test_every_random_walk_ends_in_time(name):
    one = compiler("pieces")
    compiled = one.compile(SPECS[name])
    least = len(compiled.matcher().shortest_completion())
    for more in (0, 3, 20, 60):
        for seed in range(3):
            rng, data = random.Random(seed), b""
            matcher = TokenLimitMatcher(compiled.matcher(), least + more, one.vocab, name=name)
            for _ in range(least + more):
                token = rng.choice(masks.allowed_ids(matcher.mask(), one.vocab.width).tolist())
                matcher.advance(token)
                data += one.vocab.bytes_of(token)
                if matcher.is_finished:
                    break
            assert matcher.is_finished
            assert compiled.accepts(data)


class Budgeted:
    """A compiled constraint whose texts have a limit: what `check_matcher` asks for."""

    def __init__(self, compiled, left):
        self.spec, self.vocab, self.spelled = compiled.spec, compiled.vocab, compiled.spelled
        self._compiled, self._left = compiled, left

    def matcher(self, *, before=""):
        return TokenLimitMatcher(self._compiled.matcher(before=before), self._left, self.vocab, name="inner")

    def accepts(self, text):
        return self._compiled.accepts(text)


@pytest.mark.parametrize("vocab", ["pieces", "bytes"])
@pytest.mark.parametrize(
    ("spec", "left", "text"),
    [
        (Regex("a{2,5}b|b{3,40}"), 8, "aab"),
        (JsonSchema(USER), 24, '{"a":"b","b":[1,0]}'),
        (Thinking(JsonSchema(USER)), 30, '<think>x</think>{"a":""}'),
        (JsonSchema(UNIQUE), 16, '["a","b","ab"]'),
        (AnyOf([Regex("a{3,9}"), Choice(["abab"])]), 6, "abab"),
        (Gbnf('root ::= "(" root* ")"'), 9, "(()())"),
    ],
)
def test_laws(spec, left, text, vocab):
    one = compiler(vocab)
    made = Budgeted(one.compile(spec), left)
    check_matcher(made, trie=one.trie, accepted=[], walks=6)
    check_walk(made, one.trie.segment(text.encode()), random.Random(1))
    check_walk(made, tuple(one.trie.segment(bytes([b]))[0] for b in text.encode()), random.Random(1))


def test_a_start_that_cannot_fit_is_an_error_that_says_how_much_is_needed():
    one = compiler("bytes")
    inner = one.compile(Regex("a{4}")).matcher()
    assert TokenLimitMatcher(inner.fork(), 5, one.vocab, name="regex").shortest_completion() == (97, 97, 97, 97, 256)
    with pytest.raises(InputError, match="fits in 4 tokens: the shortest known takes 5") as told:
        TokenLimitMatcher(inner, 4, one.vocab, name="regex")
    assert told.value.field == "max_tokens"


def test_a_refusal_is_blamed_on_the_budget_with_the_numbers():
    one = compiler("bytes")
    matcher = TokenLimitMatcher(one.compile(Choice(["no", "nothing"])).matcher(), 4, one.vocab, name="choice")
    for byte in b"no":
        matcher.advance(byte)
    blame = matcher.explain(ord("t"))
    assert blame.member == "budget"
    assert blame.reason == "after it the text takes 5 more tokens, its end counted, and 1 would be left"
    assert matcher.explain(ord("x")).member == "choice"
    with pytest.raises(TokenRefused, match="takes 5 more tokens"):
        matcher.advance(ord("t"))
    with pytest.raises(TokenRefused, match="choice forbids it"):
        matcher.advance(ord("x"))
    with pytest.raises(ValueError, match="is allowed"):
        matcher.explain(256)
    names = [name for name, _ in matcher.member_masks()]
    assert names == ["choice", "budget"]


def test_it_says_that_it_decided_only_where_it_refused_and_takes_that_back():
    one = compiler("bytes")
    matcher = TokenLimitMatcher(one.compile(Regex("x*")).matcher(), 4, one.vocab, name="regex")
    for _ in range(3):
        matcher.advance(ord("x"))
        assert not matcher.decided
    assert masks.allowed_ids(matcher.mask(), one.vocab.width).tolist() == [256]
    ended = matcher.fork()
    ended.advance(256)
    assert ended.decided
    assert not matcher.decided
    ended.rollback(1)
    assert not ended.decided
    far = TokenLimitMatcher(one.compile(Regex("x*")).matcher(), 5, one.vocab, name="regex")
    for token in (*b"xxx", 256):
        far.advance(token)
    assert not far.decided


def test_what_is_forced_and_does_not_fit_is_left_out():
    vocab = Vocab.from_tokens([b"a", b"b", b"c", b"d", b"ab", b"bcc", b""], eos_ids=[6])
    inner = Compiler(vocab).compile(Regex("ab(cc|dd)")).matcher()
    assert inner.forced() == (4,)
    assert TokenLimitMatcher(inner.fork(), 4, vocab, name="regex").forced() == (4,)
    assert TokenLimitMatcher(inner.fork(), 3, vocab, name="regex").forced() == ()  # "a", "bcc" and the end


def test_a_plain_matcher_is_asked_token_by_token():
    class Plain:
        """A matcher that knows nothing of `Closing`."""

        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            if name in ("is_loose", "closing", "within"):
                raise AttributeError(name)
            return getattr(self._inner, name)

        def fork(self):
            return Plain(self._inner.fork())

    one = compiler("bytes")
    inner = Plain(one.compile(SPECS["regex"]).matcher())
    assert not isinstance(inner, Closing)
    for _ in walked(inner, 7, one.vocab, random.Random(3)):
        pass


def test_a_matcher_that_knows_no_completion_is_refused():
    class Mute:
        def __init__(self, inner):
            self.mask, self.is_finished = inner.mask, False

        def shortest_completion(self):
            raise NotAvailable("who knows")

    one = compiler("bytes")
    with pytest.raises(NotAvailable, match="who knows"):
        TokenLimitMatcher(Mute(one.compile(Regex("a")).matcher()), 5, one.vocab, name="mute")


def test_where_the_search_is_given_up_the_way_that_is_held_stays_open():
    grammar = parse("root ::= (a | b){6}\na ::= [ab]{5}\nb ::= [bc]{7}")
    trie = build_trie(FEW.tokens)
    machine = PushdownMachine(build_network(grammar), FEW, trie)
    ends = Ends(machine, trie, FEW, max_walks=1)
    exact = Ends(machine, trie, FEW, max_walks=10_000, deep=100)
    for most in range(40):
        assert exact.fits(machine.start, most) or not ends.fits(machine.start, most)
    compiled = compile_grammar(grammar, Regex("a"), FEW, trie)
    compiled._ends = Ends(compiled.machine, trie, FEW, max_walks=1)
    inner = compiled.matcher()
    for more in range(4):
        for _ in walked(inner, len(inner.shortest_completion()) + more, FEW, random.Random(more), exact=False):
            pass


def test_without_room_nothing_is_allowed_and_it_says_so():
    one = compiler("bytes")
    matcher = TokenLimitMatcher(one.compile(Regex("x*")).matcher(), 1, one.vocab, name="regex")
    matcher._left = 0  # no strategy comes here: each stops at its last token
    with pytest.raises(LimitExceeded, match="no completion of at most 0 tokens"):
        matcher.mask()
