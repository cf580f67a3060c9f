"""Intersections, of automata with one another and with grammars that are not regular."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from espalier.automata.ends.closing import Ends
from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.languages.network import build_network
from espalier.automata.languages.product import intersect_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.errors import GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.parser import parse
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import SHORT_TEXTS, small_grammars

BYTES = Vocab.bytes()
TRIE = build_trie(BYTES.tokens)
EVEN = 'root ::= ([a-b] [a-b])* | "a" "b"*'


def regular(source: str) -> Dfa:
    return Dfa.of_grammar(parse(source))


@settings(deadline=None, max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(small_grammars)
def test_a_random_grammar_and_a_regular_one(grammar):
    oracle = Recogniser(grammar)
    other = regular(EVEN)
    both = {text for text in SHORT_TEXTS if oracle.accepts(text) and other.accepts(text.encode())}
    try:
        network = intersect_network(build_network(grammar), other)
    except GrammarError:
        assert not both
        return
    machine = PushdownMachine(network, BYTES, TRIE)
    for text in SHORT_TEXTS:
        state = machine.start
        for byte in text.encode():
            state = None if state is None else machine.step(state, byte)
        assert (state is not None and machine.accepts(state)) == (text in both)
        if state is not None:
            # No dead end: from wherever it gets, a text that both accept is reached.
            ending = BYTES.decode(Ends(machine, TRIE, BYTES).shortest(state))
            whole = text + ending.decode()
            assert oracle.accepts(whole)
            assert other.accepts(whole.encode())


def test_brackets_of_even_length_without_a_word():
    network = build_network(parse('root ::= "(" root ")" root | [a-c]*'))
    no_abc = regular("root ::= ([^a] | [a]+ ([^ab] | [b] [^ca]))* ([a]+ [b]?)?")
    machine = PushdownMachine(intersect_network(network, no_abc), BYTES, TRIE)
    state = machine.start
    for byte in b"(cab":
        state = machine.advance(state, byte)
    assert bytes(masks.allowed_ids(machine.mask(state), 257).tolist()) == b")b"


def test_intersections_of_regular_automata_are_exact_and_have_no_dead_end():
    one, other = regular('root ::= [a-c]{2,5} "x"*'), regular('root ::= ("a" | "bc")* "xx"?')
    both = intersect(one, other)
    for text in ("aa", "bc", "abcxx", "aaaaaxx", "bcbc"):
        assert both.accepts(text.encode())
    for text in ("a", "ab", "aax", "aaaaaa", "cc", ""):
        assert not both.accepts(text.encode())
    machine = RegularMachine(both, BYTES, TRIE)
    for state in range(len(both)):
        assert both.accepting[state] or Ends(machine, TRIE, BYTES).shortest(state)
    assert len(intersect(one, one).minimised()) == len(one.minimised())


def test_what_cannot_be_intersected():
    with pytest.raises(GrammarError, match="contradict"):
        intersect(regular('root ::= "a"'), regular('root ::= "b"'))
    network = build_network(parse('root ::= "(" root ")" | "a"'))
    with pytest.raises(GrammarError, match="contradict"):
        intersect_network(network, regular('root ::= "(("+'))
    with pytest.raises(LimitExceeded):
        intersect_network(network, regular("root ::= [()a]{0,50}"), max_pairs=20)
    with pytest.raises(LimitExceeded):
        intersect(regular("root ::= [ab]{0,50}"), regular("root ::= [a]{0,50}"), max_states=20)
    with pytest.raises(UnsupportedError, match="tokens"):
        intersect_network(build_network(parse("root ::= <x> root | [a]")), regular("root ::= [a]*"))
