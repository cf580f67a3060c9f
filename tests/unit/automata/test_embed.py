"""An automaton that was taken apart and put into a larger network says what it said before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.automata.languages.dfa import Dfa, fragment_of_dfa
from espalier.automata.languages.embed import Assembly, fragments_of_network
from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.network import assemble, build_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.phrases.triggers import watched
from espalier.errors import GrammarError
from espalier.grammar.ast import TokenRef
from espalier.grammar.parser import parse
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import SHORT_TEXTS, small_grammars

BYTES = Vocab.bytes()
TRIE = build_trie(BYTES.tokens)


def accepts(network, text: str) -> bool:
    machine = PushdownMachine(network, BYTES, TRIE)
    state = machine.start
    for byte in text.encode():
        state = None if state is None else machine.step(state, byte)
    return state is not None and machine.accepts(state)


def between(automaton):
    """`<`, the automaton, `>`."""
    made = Assembly()
    root = Fragment(
        edges=[[(1 << ord("<"), (1,))], [], [(1 << ord(">"), (3,))], []],
        symbols=[[], [], [], []],
        final=[False, False, False, True],
        leaf=[None] * 4,
    )
    made.rule(root, "root")
    root.symbols[1].append((made.embed(automaton, "inside"), (2,)))
    return made.network()


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(small_grammars)
def test_a_random_grammar_says_the_same_taken_apart_and_embedded(grammar):
    oracle = Recogniser(grammar)
    try:
        network = build_network(grammar)
    except GrammarError:
        return  # no text at all
    again = assemble(fragments_of_network(network), [""] * len(fragments_of_network(network)), network.refs)
    assert (again.moves, again.calls, again.final, again.least) == (
        network.moves,
        network.calls,
        network.final,
        network.least,
    )
    embedded = PushdownMachine(between(network), BYTES, TRIE)
    for text in SHORT_TEXTS:
        state = embedded.start
        for byte in f"<{text}>".encode():
            state = None if state is None else embedded.step(state, byte)
        assert (state is not None and embedded.accepts(state)) == oracle.accepts(text)


def test_a_dfa_whose_start_is_not_its_first_state():
    dfa = Dfa.of_words(["", "a", "abc", "bc", "é"])
    order = np.roll(np.arange(len(dfa)), 1)  # old number by new
    number = np.append(np.argsort(order), -1).astype(np.int32)  # new by old, the last for none
    turned = Dfa(
        classes=dfa.classes,
        table=number[dfa.table[order]],
        accepting=dfa.accepting[order],
        start=int(number[dfa.start]),
    )
    assert turned.start != dfa.start
    for one in (dfa, turned):
        assert len(fragment_of_dfa(one)) == len(one)
        for text in ("", "a", "ab", "abc", "bc", "é", "b", "abca"):
            assert accepts(between(one), f"<{text}>") == (text in ("", "a", "abc", "bc", "é"))


def test_rules_of_several_parts_are_numbered_anew():
    made = Assembly()
    root = Fragment(edges=[[], [], []], symbols=[[], [], []], final=[False, False, True], leaf=[None] * 3)
    made.rule(root, "root")
    brackets = build_network(parse('root ::= "(" root ")" | inner\ninner ::= "[" inner "]" | "x"'))
    braces = build_network(parse('root ::= "{" root "}" | ""'))
    root.symbols[0].append((made.embed(brackets, "one"), (1,)))
    root.symbols[1].append((made.embed(braces, "other"), (2,)))
    network = made.network()
    assert {*network.rule} == {"root", "one", "other"}
    for text in ("x", "([x])", "x{{}}", "((x)){}"):
        assert accepts(network, text)
    for text in ("", "{}", "([x)]", "x{", "x{}x"):
        assert not accepts(network, text)


def test_tokens_of_several_parts_are_one_list():
    specials = {256: "<eos>", 257: "<a>", 258: "<b>"}
    vocab = Vocab.from_tokens([bytes([b]) for b in range(256)] + [b""] * 3, eos_ids=[256], special_ids=specials)
    made = Assembly()
    root = Fragment(edges=[[], [], []], symbols=[[], [], []], final=[False, False, True], leaf=[None] * 3)
    made.rule(root, "root")
    own = made.token(TokenRef(text="<b>"))
    root.symbols[0].append((made.embed(build_network(parse("root ::= <a> <b>")), "one"), (1,)))
    root.symbols[1] += [(own, (2,)), (made.embed(build_network(parse('root ::= <a> | "x"')), "other"), (2,))]
    network = made.network()
    assert [ref.spelling for ref in network.refs] == ["<b>", "<a>"]
    machine = PushdownMachine(network, vocab, build_trie(vocab.tokens))
    state = machine.start
    seen = []
    for token in (257, 258, 258):
        seen.append(masks.allowed_ids(machine.mask(state), vocab.width).tolist())
        state = machine.advance(state, token)
    assert seen == [[257], [258], [ord("x"), 257, 258]]
    assert machine.accepts(state)


@given(st.text("abé", max_size=8))
def test_watched_text_meets_the_first_phrase_and_no_other(text):
    phrases = ["ab", "ba", "é", "aaa"]
    found = watched([phrase.encode() for phrase in phrases])
    ends = {at + len(phrase): i for i, phrase in reversed([*enumerate(phrases)]) if (at := text.find(phrase)) >= 0}
    for length in range(len(text) + 1):
        state = found.after(0, text[:length].encode())
        first = min(ends, default=99)
        if length < first:
            assert found.fragment.final[state]
        elif length == first:
            assert state == found.met[ends[first]]
            assert not found.fragment.final[state]
        else:
            assert state == -1


def test_watched_text_is_utf8():
    found = watched(["é<".encode()])
    assert found.after(0, b"\x80") == -1
    assert found.after(0, b"\xed\xa0") == -1
    assert found.after(0, b"\xf4\x90") == -1
    half = found.after(0, "日".encode()[:2])
    assert half >= 0
    assert not found.fragment.final[half]
    assert found.after(half, b"<") == -1
    with pytest.raises(ValueError, match="phrases"):
        watched([])
