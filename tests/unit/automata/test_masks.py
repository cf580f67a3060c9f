"""Masks of random grammars, bit for bit: against an independent recogniser, and against stepping byte by byte."""

from __future__ import annotations

import contextlib
import itertools
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import build_network
from espalier.automata.lazy.linear import ANY_BYTE
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.masks.walker import WHOLE, Walker, Words
from espalier.errors import GrammarError
from espalier.grammar.ast import Grammar
from espalier.grammar.parser import parse
from espalier.grammar.sample import SentenceSampler
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser
from tests.unit.grammar.trees import SHORT_TEXTS, small_grammars

WORDS = [b"a", b"b", b"aa", b"ab", b"ba", b"bb", b"aba", b"abab", b"bbbb", b"aab", b"ab", b"c", b"ac"]
SMALL = Vocab.from_tokens([*WORDS, b""], eos_ids=[len(WORDS)])
SMALL_TRIE = build_trie(SMALL.tokens)
slow = settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))


def machines(grammar: Grammar, vocab: Vocab, trie) -> list:
    """Every machine that there is for a grammar: as compiled, and as a pushdown automaton without any inlining."""
    network = build_network(grammar)
    plain = PushdownMachine(build_network(grammar, plain=True), vocab, trie, needs_bytes=False)
    found = [plain, PushdownMachine(network, vocab, trie, needs_bytes=False)]
    if network.is_regular:
        found.append(RegularMachine(Dfa.of_network(network), vocab, trie))
    return found


def brute_mask(machine, state, vocab: Vocab) -> list[int]:
    """The tokens whose bytes can be read one by one."""
    found = []
    for token in range(vocab.width):
        at = state
        for byte in vocab.bytes_of(token):
            at = machine.step(at, byte)
            if at is None:
                break
        else:
            if vocab.bytes_of(token):
                found.append(token)
    return found


def run(machine, data: bytes):
    state = machine.start
    for byte in data:
        state = machine.step(state, byte)
        if state is None:
            return None
    return state


@slow
@given(small_grammars)
def test_random_grammars_agree_with_the_recogniser(grammar):
    oracle = Recogniser(grammar)
    try:
        found = machines(grammar, SMALL, SMALL_TRIE)
    except GrammarError:
        assert not any(oracle.viable(text) for text in SHORT_TEXTS)
        return
    for text in SHORT_TEXTS:
        viable = oracle.viable(text)
        if not viable:
            assert all(run(machine, text.encode()) is None for machine in found)
            continue
        wanted = [t for t, word in enumerate(WORDS) if oracle.viable(text + word.decode())] if len(text) < 4 else None
        for machine in found:
            state = run(machine, text.encode())
            assert state is not None
            assert machine.accepts(state) == oracle.accepts(text)
            if wanted is not None:
                assert masks.allowed_ids(machine.mask(state), SMALL.width).tolist() == wanted, (text, machine)
                assert [t for t in range(SMALL.width) if machine.advance(state, t) is not None] == wanted


@pytest.mark.parametrize(
    "source",
    [
        r"root ::= v"
        "\n"
        r'v ::= "{" (s ":" v ("," s ":" v)*)? "}" | "[" (v ("," v)*)? "]" | s'
        "\n"
        r's ::= "\"" [^"]* "\""',
        'root ::= e\ne ::= e "+" e | "(" e ")" | [0-9]+',
        'root ::= [^\\x00-\\x1f]{0,3} root? "é" | .',
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_masks_equal_stepping_byte_by_byte_on_random_tokens(source, seed):
    rng = random.Random(seed)
    alphabet = '{}[]":,+()0123aé日\n😀'
    words = {bytes([b]) for b in range(256)}
    words |= {"".join(rng.choices(alphabet, k=rng.randint(1, 5))).encode()[: rng.randint(1, 9)] for _ in range(600)}
    vocab = Vocab.from_tokens([*sorted(words), b""], eos_ids=[len(words)])
    trie = build_trie(vocab.tokens)
    grammar = parse(source)
    sampler = SentenceSampler(grammar)
    for machine in machines(grammar, vocab, trie):
        for _ in range(4):
            state = machine.start
            data = sampler.draw(rng, max_size=30).encode()[:40]
            for byte in data:
                mask = machine.mask(state)
                assert masks.allowed_ids(mask, vocab.width).tolist() == brute_mask(machine, state, vocab)
                state = machine.step(state, byte)
            assert machine.accepts(state) or len(data) == 40


@pytest.mark.parametrize(
    "source",
    [
        'root ::= "\\"" [^"]* "\\""',
        'root ::= "\\"" [^"b]* ("\\"" root)?',
        "root ::= ([a-z]+ [0-9]* | [0-9]+ [a-z])*",
        "root ::= [^1]* root? [^a]",
    ],
)
def test_what_a_state_reads_in_a_loop_equals_stepping_byte_by_byte(source):
    """Every word up to four bytes is a token, so that much lies below most nodes of the trie."""
    words = [bytes(word) for length in range(1, 5) for word in itertools.product(b'ab1"', repeat=length)]
    words += [bytes([b]) for b in range(256) if b not in b'ab1"'] + [b"ab", b"aa\xc3\xa9", b"b1\xc3", b"1a\n"]
    vocab = Vocab.from_tokens([*words, b""], eos_ids=[len(words)])
    for machine in machines(parse(source), vocab, build_trie(vocab.tokens)):
        state = machine.start
        for byte in b'"a1ab':
            wanted = brute_mask(machine, state, vocab)
            assert masks.allowed_ids(machine.mask(state), vocab.width).tolist() == wanted
            after = machine.step(state, byte)
            state = state if after is None else after


@pytest.mark.parametrize("nth", range(1, 8))
def test_an_error_in_the_middle_of_a_mask_leaves_nothing_behind(nth, monkeypatch):
    network = build_network(parse('root ::= "(" root ")" | w\nw ::= [a-c] w | "a"'))
    tokens = [bytes([b]) for b in range(256)] + [b"a)", b"a))", b"((a", b"ba)", b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[260])
    trie = build_trie(vocab.tokens)
    whole, broken = PushdownMachine(network, vocab, trie), PushdownMachine(network, vocab, trie)
    calls = itertools.count(1)
    fill = broken._rows.fill

    def failing(state):
        if next(calls) == nth:
            raise KeyboardInterrupt
        fill(state)

    monkeypatch.setattr(broken._rows, "fill", failing)
    expected, state = whole.start, broken.start
    for byte in b"((ba))":
        with contextlib.suppress(KeyboardInterrupt):
            broken.mask(state)
        assert np.array_equal(broken.mask(state), whole.mask(expected))
        state, expected = broken.advance(state, byte), whole.advance(expected, byte)


@pytest.mark.slow
@slow
@given(small_grammars, st.randoms(use_true_random=False))
def test_forgetting_everything_changes_nothing(grammar, rng):
    try:
        network = build_network(grammar)
    except GrammarError:
        return
    kept = PushdownMachine(network, SMALL, SMALL_TRIE, needs_bytes=False)
    forgetful = PushdownMachine(
        network, SMALL, SMALL_TRIE, needs_bytes=False, max_interned=3, cache_bytes=1, parts_bytes=1
    )
    one, other = kept.start, forgetful.start
    for _ in range(12):
        assert np.array_equal(kept.mask(one), forgetful.mask(other))
        allowed = masks.allowed_ids(kept.mask(one), SMALL.width).tolist()
        if not allowed:
            return
        token = rng.choice(allowed)
        one, other = kept.advance(one, token), forgetful.advance(other, token)
        assert kept.accepts(one) == forgetful.accepts(other)
        assert kept.least(one) == forgetful.least(other)


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 250])
def test_rules_that_begin_with_one_another_are_followed_to_any_depth(depth):
    rules = [f'r{i} ::= r{i + 1} "b"' for i in range(depth)]
    grammar = parse("\n".join(["root ::= r0", *rules, f'r{depth} ::= "a"']))
    machine = machines(grammar, SMALL, SMALL_TRIE)[0]
    state = machine.start
    assert machine.least(state) == depth + 1
    for byte in b"a" + b"b" * depth:
        assert masks.allowed_ids(machine.mask(state), SMALL.width).tolist() == brute_mask(machine, state, SMALL)
        assert not machine.accepts(state)
        state = machine.advance(state, WORDS.index(bytes([byte])))
    assert machine.accepts(state)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_words_along_the_trie_equal_words_compared_with_every_token(seed):
    rng = random.Random(seed)

    def text(most: int) -> bytes:
        return bytes(rng.choice(b"abc") for _ in range(rng.randint(1, most)))

    tokens = [text(6) for _ in range(80)]
    trie = build_trie(tokens)
    walker = Walker(trie, 80)
    words = sorted({text(5) for _ in range(rng.randint(1, 12))})
    begins = sorted({data[:n] for data in tokens for n in (1, 2) if len(data) > n})
    for before in (b"", rng.choice(begins)):
        nodes = np.array([trie.node(before)], dtype=np.int32) if before else WHOLE
        below = [(i, data[len(before) :]) for i, data in enumerate(tokens) if data.startswith(before)]
        for last in (-1, ord("b"), ANY_BYTE):
            bits, ends, which = walker.spell(Words.of(words).some(range(len(words)), 0), nodes, last=last)
            expected = [i for i, data in below if data and any(word.startswith(data) for word in words)]
            assert masks.allowed_ids(bits, 80).tolist() == expected

            def goes_on(word: bytes, last: int = last, below: list[tuple[int, bytes]] = below) -> bool:
                more = {data[len(word) : len(word) + 1] for _, data in below if data.startswith(word)}
                wanted = more if last < 0 else more - {b""} if last == ANY_BYTE else more & {bytes([last])}
                return bool(wanted)

            found = [(trie.node(before + word), i) for i, word in enumerate(words) if goes_on(word)]
            assert list(zip(ends.tolist(), which.tolist(), strict=True)) == found
