"""Completions: truly shortest in tokens, and forced beginnings that hold for every completion."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.automata.ends.closing import Ends
from espalier.automata.ends.forced import forced
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import build_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.errors import GrammarError
from espalier.grammar.parser import parse
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.unit.grammar.trees import small_grammars

WORDS = [b"a", b"b", b"c", b"ab", b"ba", b"bbb", b"aaa", b"bab", b""]
VOCAB = Vocab.from_tokens(WORDS, eos_ids=[8])
TRIE = build_trie(VOCAB.tokens)


MOST_STATES = 20_000


def fewest(machine, state, found: int) -> int:
    """How many tokens to acceptance, level by level over every token. Where the levels grow past `MOST_STATES`, those
    before them say only that it takes more: then it is `found`, if that is more."""
    level, seen, count = [state], {state}, 0
    while not any(machine.accepts(s) for s in level):
        following = []
        for current in level:
            for token in range(VOCAB.width):
                after = machine.advance(current, token)
                if after is not None and after not in seen:
                    seen.add(after)
                    following.append(after)
            if len(seen) > MOST_STATES:
                return max(found, count + 1)
        level, count = following, count + 1
        assert level, "no completion"
    return count


@settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(small_grammars, st.randoms(use_true_random=False))
def test_the_shortest_completion_is_shortest(grammar, rng):
    try:
        network = build_network(grammar)
    except GrammarError:
        return
    machines = [PushdownMachine(network, VOCAB, TRIE, needs_bytes=False)]
    if network.is_regular:
        machines.append(RegularMachine(Dfa.of_network(network), VOCAB, TRIE))
    for machine in machines:
        state = machine.start
        for _ in range(5):
            found = Ends(machine, TRIE, VOCAB).shortest(state, max_walks=10_000)
            assert len(found) == fewest(machine, state, len(found))
            at = state
            for token in found:
                at = machine.advance(at, token)
            assert machine.accepts(at)
            begun = forced(machine, TRIE, state)
            text = VOCAB.decode(found)
            assert text.startswith(VOCAB.decode(begun))
            options = [s for t in range(VOCAB.width) if (s := machine.advance(state, t)) is not None]
            if not options:
                break
            state = rng.choice(options)


def test_a_longer_text_of_fewer_tokens_is_preferred():
    vocab = Vocab.from_tokens([*(bytes([b]) for b in range(256)), b"hello!", b""], eos_ids=[257])
    trie = build_trie(vocab.tokens)
    for source in ('root ::= "xq" | "hello!"', 'root ::= "xq" | "hello!" | "(" root ")"'):
        network = build_network(parse(source))
        regular = network.is_regular
        machine = (
            RegularMachine(Dfa.of_network(network), vocab, trie) if regular else PushdownMachine(network, vocab, trie)
        )
        ends = Ends(machine, trie, vocab)
        assert ends.shortest(machine.start) == (256,)
        assert ends.shortest(machine.start, max_walks=0) == (ord("x"), ord("q"))


def test_the_search_for_a_short_completion_ends_early_in_an_ambiguous_grammar():
    """Expanding the 300 states that it may takes 50 seconds where each has a dozen stacks."""
    vocab = Vocab.from_tokens([*(bytes([b]) for b in range(256)), b"z" * 20, b""], eos_ids=[257])
    source = """root ::= (a{0,3} b | b a{1,3} | [^z]{1,3}) .{6}
        a ::= "a"+ | [a-c]+ "c" | root{1,3} "b"{1,3}
        b ::= "a"{0,2} (([^c]* [0-9] | ","? [a]{0,2} | "b"{1,3} a{0,2}))"""
    trie = build_trie(vocab.tokens)
    machine = PushdownMachine(build_network(parse(source)), vocab, trie)
    state = machine.advance(machine.start, ord("a"))
    assert len(state.items) > 4
    expanded = []

    class StateWatch:
        """Notes which states are expanded; methods of a compiled class cannot be replaced."""

        def __getattr__(self, name):
            return getattr(machine, name)

        def successors(self, state):
            expanded.append(state)
            return machine.successors(state)

    whole = Ends(StateWatch(), trie, vocab, max_work=10**9).shortest(state, max_walks=100)
    most = len(expanded)
    expanded.clear()
    found = Ends(StateWatch(), trie, vocab, max_work=30).shortest(state, max_walks=100)
    assert len(expanded) < most / 5
    assert len(whole) <= len(found) <= machine.least(state)
    for token in found:
        state = machine.advance(state, token)
    assert machine.accepts(state)


def test_deep_nesting_is_closed():
    vocab = Vocab.bytes()
    trie = build_trie(vocab.tokens)
    machine = PushdownMachine(build_network(parse('root ::= "(" root ")" | "[" root "]" | "x"')), vocab, trie)
    rng = random.Random(0)
    opened = bytes(rng.choice(b"([") for _ in range(2_000))
    state = machine.start
    for byte in opened:
        state = machine.advance(state, byte)
    closing = bytes(Ends(machine, trie, vocab).shortest(state, max_walks=0))
    assert closing == b"x" + opened[::-1].translate(bytes.maketrans(b"([", b")]"))
    state = machine.advance(state, ord("x"))
    assert len(forced(machine, trie, state)) == 512


@pytest.mark.parametrize(
    ("source", "begun"),
    [
        ('root ::= "abc" | "abd"', b"ab"),
        ('root ::= "abc"?', b""),
        ('root ::= "ab" ("c" root)?', b"ab"),
        ("root ::= [a-b]", b""),
        ('root ::= "é" [éü]', "é".encode() + b"\xc3"),
    ],
)
def test_forced(source, begun):
    vocab = Vocab.bytes()
    trie = build_trie(vocab.tokens)
    machine = PushdownMachine(build_network(parse(source)), vocab, trie)
    assert bytes(forced(machine, trie, machine.start)) == begun
