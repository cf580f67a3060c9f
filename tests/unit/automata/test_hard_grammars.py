"""Grammars that bring naive matchers down: each is walked to its end, in bounded time and memory."""

from __future__ import annotations

import gc
import sys
import traceback

import pytest

from espalier.automata.languages.network import build_network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.constraints.matching.automaton import AutomatonMatcher, compile_grammar
from espalier.constraints.spec import Gbnf
from espalier.errors import Cancelled, GrammarError, LimitExceeded
from espalier.grammar.parser import parse
from espalier.time_limit import time_limit
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab

BYTES = Vocab.bytes()
TRIE = build_trie(BYTES.tokens)


def compiled(source: str, **limits):
    return compile_grammar(parse(source), Gbnf(source), BYTES, TRIE, **limits)


def walked(source: str, text: str | bytes) -> AutomatonMatcher:
    """The matcher after the text, one byte a token, with a mask at every step."""
    matcher = compiled(source).matcher()
    for byte in text.encode() if isinstance(text, str) else text:
        assert masks.test(matcher.mask(), byte)
        matcher.advance(byte)
    return matcher


def allowed(matcher: AutomatonMatcher) -> bytes:
    """The bytes that can come next; 256 is EOS."""
    return bytes(t for t in masks.allowed_ids(matcher.mask(), 257).tolist() if t < 256)


def test_two_calls_in_a_row_that_can_both_be_empty():
    matcher = walked('root ::= "a" root root | ""', b"a" * 2000)
    assert matcher.is_accepting
    assert allowed(matcher) == b"a"
    assert matcher._machine._automaton.interned < 20_000


def test_two_hundred_optional_letters():
    matcher = walked('root ::= ("x"?){200}', b"x" * 200)
    assert matcher.is_accepting
    assert allowed(matcher) == b""


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ('root ::= [a-z] root | "."', "q"),
        ('root ::= item root | "."\nitem ::= "(" item ")" | "x"', "((x))x"),
        ('root ::= "(" root ws | "."\nws ::= [ \\n]*', "("),
        ('root ::= one | "."\none ::= "a" two\ntwo ::= "b" "c" root', "abc"),
    ],
)
def test_right_recursion_a_hundred_thousand_deep_keeps_the_stack_flat(source, unit):
    found = compiled(source)
    matcher = found.matcher()
    for byte in unit.encode() * (100_000 // len(unit)):
        matcher.advance(byte)
    assert allowed(matcher)[:1] in (b".", b"(", b"a")
    machine = found.machine
    if isinstance(machine, PushdownMachine):
        assert machine._automaton.interned < 100


@pytest.mark.slow
def test_nesting_a_hundred_thousand_deep_is_followed_to_its_end():
    found = compiled('root ::= "(" root ")" | "x"')
    matcher = found.matcher()
    depth = 100_000
    for byte in b"(" * depth + b"x" + b")" * depth:
        matcher.advance(byte)
    assert matcher.is_accepting
    assert allowed(matcher) == b""


@pytest.mark.slow
def test_what_is_remembered_of_many_texts_is_bounded():
    source = 'root ::= "(" root ")" | "[" root "]" | "x"'
    machine = PushdownMachine(build_network(parse(source)), BYTES, TRIE, max_interned=2_000)
    for seed in range(200):
        state = machine.start
        for i in range(100):
            machine.mask(state)
            state = machine.advance(state, b"(["[seed * (i + 7) // 3 % 2])
    assert machine._automaton.interned + machine._moves < 3_000


def test_nested_optional_groups():
    depth = 300
    matcher = walked("root ::= " + '("a" ' * depth + '"b"' + ")?" * depth, b"a" * depth + b"b")
    assert matcher.is_accepting
    assert allowed(walked("root ::= " + '("a" ' * depth + '"b"' + ")?" * depth, b"")) == b"a"


def test_groups_nested_ten_thousand_deep():
    depth = 10_000
    assert walked("root ::= " + "(" * depth + '"a" | "b"' + ")" * depth, b"b").is_accepting


def test_a_class_of_the_whole_of_unicode():
    found = compiled(r"root ::= [\U00000000-\U0010FFFF]*")
    assert found.accepts("a\0é日\U0010ffff\ud7ff\ue000")
    matcher = found.matcher()
    valid = {*range(0x80), *range(0xC2, 0xF5)}
    assert set(allowed(matcher)) == valid
    for lead, following in ((0xE0, range(0xA0, 0xC0)), (0xED, range(0x80, 0xA0)), (0xF4, range(0x80, 0x90))):
        matcher.advance(lead)
        assert set(allowed(matcher)) == set(following)
        assert not matcher.is_accepting
        matcher.rollback(1)


def test_two_rules_whose_languages_overlap():
    source = "root ::= word num\nword ::= [a-z0-9]+\nnum ::= [0-9]+"
    assert allowed(walked(source, "a")) == bytes(sorted(b"0123456789abcdefghijklmnopqrstuvwxyz"))
    assert walked(source, "a1b22").is_accepting
    assert not walked(source, "12c").is_accepting
    source = 'root ::= ("a" | "ab") ("c" | "bcd")'
    assert allowed(walked(source, "ab")) == b"bc"
    assert allowed(walked(source, "abc")) == b"d"


@pytest.mark.parametrize(
    "source",
    [
        'root ::= x*\nx ::= y | x\ny ::= "" | "a" | y y',
        'root ::= root root | "a" | ""',
        'root ::= e\ne ::= e e | "(" e ")" | "a" | ""',
        'root ::= x x x\nx ::= (x | "a")* | ""',
    ],
)
def test_infinite_ambiguity(source):
    matcher = walked(source, b"a" * 500)
    assert matcher.is_accepting
    assert b"a" in allowed(matcher)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ('r{i} ::= r{n} | "{m}"', 30_000, b"7"),
        ('r{i} ::= "x" r{n} | "y"', 10_000, b"xxxy"),
        ('r{i} ::= "(" r{n} ")" r{k} | "{m}"', 10_000, b"((2)6)5"),
    ],
)
def test_a_grammar_with_tens_of_thousands_of_rules(shape, count, text):
    rules = [shape.format(i=i, n=i + 1, k=(i * 31 + 5) % count, m=i % 10) for i in range(count - 1)]
    source = "\n".join(["root ::= r0", *rules, f'r{count - 1} ::= "z"'])
    matcher = compiled(source).matcher()
    for byte in text:
        assert masks.test(matcher.mask(), byte)
        matcher.advance(byte)
    assert matcher.is_accepting


def test_a_rule_that_doubles_sixty_times_is_no_trouble_until_it_must_be_finished():
    source = "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)), 'r60 ::= "a"'])
    matcher = walked(source, b"a" * 300)
    assert allowed(matcher) == b"a"
    with pytest.raises(LimitExceeded):
        matcher.shortest_completion()


def test_a_language_whose_deterministic_automaton_is_exponential_is_taken_lazily():
    matcher = walked('root ::= [ab]* "a" [ab]{60}', b"ab" * 100)
    assert allowed(matcher) == b"ab"
    assert not matcher.is_accepting  # the letter sixty-one from the end is a "b"
    matcher.advance(ord("a"))
    assert matcher.is_accepting


@pytest.mark.parametrize("source", ["root ::= (([a-z]{1000}){1000}){1000}", 'root ::= ("ab" root{1000000})?'])
def test_what_is_too_large_is_refused_before_generation(source):
    with pytest.raises(LimitExceeded, match="states"):
        compiled(source)


def test_limits_are_arguments():
    with pytest.raises(LimitExceeded):
        compiled("root ::= [a-z]{100}", max_states=50)
    compiled("root ::= [a-z]{100}", max_states=5000)


def test_a_step_that_looks_at_too_many_stacks_is_an_error_and_not_a_hang():
    source = "root ::= " + " ".join(f"r{i}" for i in range(50))
    source += "".join(f'\nr{i} ::= ("a" r{i} "b")?' for i in range(50))
    network = build_network(parse(source))
    with pytest.raises(LimitExceeded):
        PushdownMachine(network, BYTES, TRIE, max_work=20)
    machine = PushdownMachine(network, BYTES, TRIE, max_rows=3)
    with pytest.raises(LimitExceeded):
        machine.mask(machine.start)


JOINED = 'root ::= ("z," | (. root{2,} | "z,"){2}){2}', b"[" * 8 + b"z," * 40 + b"z" + b"z," * 6
"""A step of this text joins sets of many thousands of stacks; each further step joins more."""


def test_joined_sets_of_stacks_count_as_work_and_time_of_their_step():
    """One step joined sets for ten seconds, with a gigabyte of them, whatever the limits said."""
    source, text = JOINED

    def follow(machine: PushdownMachine) -> None:
        state = machine.start
        for byte in text:
            state = machine.advance(state, byte)

    network = build_network(parse(source))
    with pytest.raises(LimitExceeded, match="looks at more than 20000 stacks"):
        follow(PushdownMachine(network, BYTES, TRIE, max_work=20_000))
    checks = iter(range(10_000))
    with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: next(checks, None) is None):
        follow(PushdownMachine(network, BYTES, TRIE))


@pytest.mark.slow
def test_the_work_of_a_whole_mask_is_counted_and_not_that_of_many_single_steps():
    source = 'root ::= "(" root ")" | ([a-z]{0,40} x?){40} "."\nx ::= [a-z]+ root?'
    network = build_network(parse(source))
    machine = PushdownMachine(network, BYTES, TRIE, max_work=5_000)

    def walk():
        state = machine.start
        for _ in range(200):
            machine.mask(state)
            state = machine.advance(state, ord("a"))

    with pytest.raises(LimitExceeded, match="more than 5000 stacks"):
        walk()
    simple = PushdownMachine(build_network(parse('root ::= "(" root ")" | "x"')), BYTES, TRIE, max_work=50)
    state = simple.start
    for _ in range(500):  # far more than 50 in all, far less in each
        state = simple.step(state, ord("("))
        assert simple.mask(state).any()


@pytest.mark.parametrize("source", ["root ::= root", "root ::= x", 'root ::= "a" root', "root ::= [a] x\nx ::= x"])
def test_what_means_nothing_is_a_grammar_error(source):
    with pytest.raises(GrammarError):
        compiled(source)


def test_what_was_interrupted_is_free_without_a_collection_of_garbage():
    """Forty ambiguous rules that ran out of time left five million blocks of memory that only a collection found: it
    stopped every thread for 0.8 s."""
    source = "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)), 'r40 ::= "a"?'])
    compiled('root ::= "a"')
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        left = iter(range(60_000))
        with pytest.raises(Cancelled) as raised, time_limit(None, cancelled=lambda: next(left, None) is None):
            compiled(source)
        traceback.clear_frames(raised.tb)
        del raised
        assert sys.getallocatedblocks() - before < 30_000
    finally:
        gc.enable()
