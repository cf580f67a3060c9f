"""The joint machine: exact masks by enumeration, dead ends found, searches that are given up, tokens without bytes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier import Vocab
from espalier.automata.joint.ends import JointEnds
from espalier.automata.joint.lengths import ENDLESS, Lengths, needs_no_wide_characters
from espalier.automata.joint.machine import JointMachine
from espalier.automata.languages.algebra import language
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import build_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.errors import LimitExceeded, VocabError
from espalier.grammar.json_mode import json_grammar
from espalier.grammar.parser import parse
from espalier.grammar.regex.parse import parse_regex
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from tests.examples import examples

LETTERS = "ab()"
ENOUGH = 7
"""Texts of more letters are not enumerated; the languages below have none that matter."""
TEXTS = ["".join(letters) for n in range(ENOUGH + 1) for letters in itertools.product(LETTERS, repeat=n)]
FULL = Vocab.from_tokens([b"a", b"b", b"(", b")", b"ab", b"a(", b")(", b"(a)", b"b)b", b"aa", b""], eos_ids=[10])
LACKING = Vocab.from_tokens([b"a", b"(", b")", b"ab", b"a(", b")(", b"(b)", b"b)b", b""], eos_ids=[8])
"""`b` has no token of its own."""
REGULAR = [
    "[ab()]{0,6}",
    "[^b]*",
    "(a|b\\)|\\()*",
    ".*a.*",
    "(..)*",
    r"(\([ab]*\))*",
    "a|ab|\\(a\\)|\\(\\)\\(\\)",
    "(aab?)*",
]
NESTED = [
    'root ::= "(" root ")" root | [ab]{0,2}',
    'root ::= "a" root "b" | "(" root | ")"',
    'root ::= "a" root "a" | "b"',
    'root ::= "(" root ")" | "a" root | ""',
    'root ::= "()" root | root2 \nroot2 ::= "a" root2 "b" | "ab"',
]
BOUND = "[ab()]{0,6}"


def machine(source: str, vocab: Vocab):
    trie = build_trie(vocab.tokens)
    if "::=" in source:
        return PushdownMachine(build_network(parse(source)), vocab, trie, needs_bytes=False)
    return RegularMachine(language(parse_regex(source)), vocab, trie)


def made(sources: list[str], vocab: Vocab) -> JointMachine | None:
    """None where tokens spell no text of a regular member."""
    try:
        return JointMachine([machine(source, vocab) for source in sources], vocab)
    except VocabError:
        return None


def texts_of(source: str) -> set[str]:
    one = machine(source, Vocab.bytes())
    found = set()
    for text in TEXTS:
        at = one.start
        for byte in text.encode():
            at = one.step(at, byte)
            if at is None:
                break
        if at is not None and one.accepts(at):
            found.add(text)
    return found


def spellable(texts: set[str], vocab: Vocab) -> dict[bytes, set[int]]:
    """By text before it: the tokens after which the token spelling of some text goes on, by trying all spellings."""
    found: dict[bytes, set[int]] = {}
    tokens = [(i, data) for i, data in enumerate(vocab.tokens) if data]
    for text in {text.encode() for text in texts}:
        # Positions that are reached by tokens from the start, and those from which tokens reach the end.
        ends = {len(text)}
        for at in range(len(text) - 1, -1, -1):
            if any(text.startswith(data, at) and at + len(data) in ends for _, data in tokens):
                ends.add(at)
        for at in range(len(text)):
            for i, data in tokens:
                if text.startswith(data, at) and at + len(data) in ends:
                    found.setdefault(text[:at], set()).add(i)
    return found


@pytest.mark.parametrize("vocab", [FULL, LACKING], ids=["bytes", "lacking"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_token_is_allowed_exactly_where_a_common_text_goes_on_by_enumeration(seed, vocab):
    rng = random.Random(seed)
    sources = [BOUND, *rng.sample(REGULAR[1:], rng.choice([0, 1, 2])), *rng.sample(NESTED, rng.choice([1, 2]))]
    rng.shuffle(sources)
    joint = made(sources, vocab)
    if joint is None:
        return
    common = set.intersection(*(texts_of(source) for source in sources))
    ways = spellable(common, vocab)
    alive = bool(ways.get(b"")) or "" in common
    assert joint.is_dead(joint.start) == (not alive), (sources, common)
    if not alive:
        return
    for _ in range(6):
        state, text = joint.start, b""
        while True:
            allowed = sorted(ways.get(text, ()))
            assert masks.allowed_ids(joint.mask(state), vocab.width).tolist() == allowed, (sources, text)
            assert joint.accepts(state) == (text.decode() in common)
            told = joint.landings(state)
            assert told.ids.tolist() == allowed
            for token in range(vocab.width):
                after = joint.advance(state, token)
                assert (after is not None) == (token in allowed)
                if after is not None:
                    place = told.ids.tolist().index(token)
                    assert told.states[told.which[place]] == after
            assert {after for _, after in joint.successors(state)} == set(told.states)
            if not allowed:
                break
            token = rng.choice(allowed)
            state = joint.advance(state, token)
            text += vocab.tokens[token]


@pytest.mark.parametrize("vocab", [FULL, LACKING], ids=["bytes", "lacking"])
@pytest.mark.parametrize("seed", range(examples(20)))
def test_completions_end_the_text_and_fit_the_limit(seed, vocab):
    rng = random.Random(seed)
    trie = build_trie(vocab.tokens)
    sources = [BOUND, rng.choice(REGULAR[1:]), *rng.sample(NESTED, 2)]
    joint = made(sources, vocab)
    if joint is None or joint.is_dead(joint.start):
        return
    ends = JointEnds(joint, trie, vocab)
    state = joint.start
    for _ in range(5):
        shortest = ends.shortest(state)
        at = state
        for token in shortest:
            at = joint.advance(at, token)
            assert at is not None
        assert joint.accepts(at)
        assert not ends.stays_near(state, -1) or not masks.allowed_ids(joint.mask(state), vocab.width).size
        for most in range(4):
            near = ends.within(state, most)
            assert near is None or len(near) <= most
            closing = masks.allowed_ids(ends.closing(state, most), vocab.width).tolist()
            for token in closing:
                assert ends.within(joint.advance(state, token), most) is not None
            if ends.stays_near(state, most):
                assert closing == masks.allowed_ids(joint.mask(state), vocab.width).tolist()
        allowed = masks.allowed_ids(joint.mask(state), vocab.width).tolist()
        if not allowed:
            break
        state = joint.advance(state, rng.choice(allowed))


def test_many_tokens_are_judged_in_groups_as_few_are_one_by_one(monkeypatch):
    vocab = tokenizers.byte_level_vocab()
    trie = build_trie(vocab.tokens)
    line = RegularMachine(Dfa.of_grammar(parse(r"root ::= [^\n]{2,30}")), vocab, trie)
    quiet = RegularMachine(Dfa.of_grammar(parse(r"root ::= ([^x] | [x] [^y])*")), vocab, trie)
    json = PushdownMachine(build_network(json_grammar()), vocab, trie)
    text = trie.segment(b'{"name": [1, "xa"]')
    monkeypatch.setattr("espalier.automata.joint.machine.FEW", 0)
    grouped = JointMachine([json, line, quiet], vocab)
    monkeypatch.setattr("espalier.automata.joint.machine.MAX_CODES", 0)
    sorted_ = JointMachine([json, line, quiet], vocab)
    at = [grouped.start, sorted_.start]
    for token in text:
        monkeypatch.setattr("espalier.automata.joint.machine.FEW", 0)
        monkeypatch.setattr("espalier.automata.joint.machine.MAX_CODES", 4_000_000)
        found = grouped.mask(at[0])
        monkeypatch.setattr("espalier.automata.joint.machine.MAX_CODES", 0)
        assert np.array_equal(found, sorted_.mask(at[1]))
        monkeypatch.setattr("espalier.automata.joint.machine.FEW", 10**9)
        alone = JointMachine([json, line, quiet], vocab)
        assert np.array_equal(found, alone.mask(at[0]))
        at = [grouped.advance(at[0], token), sorted_.advance(at[1], token)]


# Searches that are given up


ENDLESS_ONES = ('root ::= "(" root ")" | "a"', 'root ::= "(" root | "b"')
"""Each could go on for ever by `(`, and none ends as the other does."""


def test_a_search_that_is_given_up_strands_or_raises():
    machines = [machine(source, FULL) for source in ENDLESS_ONES]
    bounds = {"max_expanded": 20}
    strict = JointMachine(machines, FULL, search=bounds)
    assert not strict.is_sure(strict.start)
    assert not strict.is_dead(strict.start)
    with pytest.raises(LimitExceeded, match="bounds of the search"):
        strict.mask(strict.start)
    with pytest.raises(LimitExceeded):
        strict.way(strict.start)
    loose = JointMachine(machines, FULL, may_strand=True, search=bounds)
    assert [FULL.tokens[i] for i in masks.allowed_ids(loose.mask(loose.start), FULL.width)] == [b"("]
    assert not loose.stays_near(loose.start, 1000)
    assert loose.advance(loose.start, 2) is not None


def test_what_was_allowed_stays_allowed_when_all_is_forgotten():
    joint = JointMachine([machine(BOUND, FULL), machine(NESTED[0], FULL)], FULL, search={"max_judged": 3})
    state = joint.start
    first = joint.mask(state)
    for token in (2, 0, 3):
        state = joint.advance(state, token)
        joint.mask(state)
    assert np.array_equal(joint.mask(joint.start), first)
    assert joint.size > 0


# Lengths


def test_the_longest_text_is_told_in_bytes_and_characters():
    trie = build_trie(Vocab.bytes().tokens)
    lengths = Lengths.of(RegularMachine(Dfa.of_grammar(parse("root ::= [^\\n]{2,5}")), Vocab.bytes(), trie))
    assert lengths.most(0) == (20, 5)
    mixed = RegularMachine(Dfa.of_grammar(parse('root ::= "a" [b]* | "c" "d"')), Vocab.bytes(), trie)
    told = Lengths.of(mixed)
    assert told.most(mixed.start) == (ENDLESS, ENDLESS)
    assert told.most(mixed.step(mixed.start, ord("c"))) == (1, 1)
    assert Lengths.of(machine("[ab]*", FULL)).most(0) == (ENDLESS, ENDLESS)


def test_a_grammar_that_needs_wide_characters_is_told():
    assert needs_no_wide_characters(build_network(json_grammar()))
    assert needs_no_wide_characters(build_network(parse('root ::= "(" root ")" | [a-é]')))
    assert not needs_no_wide_characters(build_network(parse('root ::= "(" root ")" | "é"')))


def test_a_text_that_could_not_be_closed_in_the_characters_left_is_seen_without_a_search():
    vocab = Vocab.bytes()
    trie = build_trie(vocab.tokens)
    line = RegularMachine(Dfa.of_grammar(parse(r"root ::= [^\n]{2,40}")), vocab, trie)
    joint = JointMachine([PushdownMachine(build_network(json_grammar()), vocab, trie), line], vocab)
    state = joint.start
    for byte in b'{"a": [' + b"[" * 12:
        state = joint.advance(state, byte)
    joint._search.begin()
    for byte in b"[" * 20:
        after = joint.advance(state, byte)
        assert joint._search._work < 20
        if after is None:
            break
        state = after
    assert after is None
    assert joint.way(state) == list(b"]" * (len(joint.way(state)) - 1) + b"}")
