"""The parts below the machines: UTF-8, fragments, minimisation, word graphs, networks, words for bytes, the cache."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.automata.languages.algebra import language
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.fragment import determinise, disjoint, free_of_epsilon, minimise, refine
from espalier.automata.languages.network import build_network
from espalier.automata.languages.nfa import DONE, Nfa, byte_range, utf8_edges
from espalier.automata.masks.cache import ENTRY_BYTES, ByteCache
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.masks.walker import WHOLE, Walker
from espalier.automata.reasons.describe import expected
from espalier.errors import GrammarError
from espalier.grammar.ast import CharClass, Literal, Repeat, alt, seq
from espalier.grammar.parser import parse
from espalier.grammar.ranges import contains, merge
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab

EDGES = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF]
points = st.one_of(st.sampled_from(EDGES), st.integers(0, 0x10FFFF)).filter(lambda c: not 0xD800 <= c <= 0xDFFF)


@given(st.lists(st.tuples(points, points).map(sorted), min_size=1, max_size=5), st.lists(points, max_size=20))
def test_utf8_reads_exactly_the_code_points_of_its_ranges(ranges, probes):
    scalars = CharClass(tuple((low, high) for low, high in ranges)).scalars()
    nodes = utf8_edges(scalars)
    near = {c + d for pair in scalars for c in pair for d in (-1, 0, 1)}
    for point in {*probes, *near, *EDGES}:
        if 0 <= point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
            state = 0
            for byte in chr(point).encode():
                found = [child for members, child in nodes[state] if members >> byte & 1] if state != DONE else []
                state = found[0] if len(found) == 1 else -2
                if state == -2:
                    break
            assert (state == DONE) == contains(merge(scalars), point)


def test_utf8_of_everything_is_small():
    assert len(utf8_edges(((0, 0xD7FF), (0xE000, 0x10FFFF)))) == 8


@given(st.dictionaries(st.integers(1, 2**12), st.sets(st.integers(0, 5), min_size=1), max_size=6))
def test_disjoint_edges_lead_where_the_overlapping_ones_did(edges):
    found = disjoint(edges)
    for bit in range(12):
        wanted = {t for members, targets in edges.items() if members >> bit & 1 for t in targets}
        hits = [targets for members, targets in found if members >> bit & 1]
        assert len(hits) <= 1
        assert (set(hits[0]) if hits else set()) == wanted


def test_refine_gives_the_coarsest_partition():
    parts = refine([byte_range(0, 9), byte_range(5, 20), byte_range(5, 20)])
    assert sorted(parts) == sorted([byte_range(0, 4), byte_range(5, 9), byte_range(10, 20), byte_range(21, 255)])


BS = Repeat(Literal("b"), 0, None)


def letters(*texts: str):
    return alt(*(Literal(t) for t in texts))


@pytest.mark.parametrize(
    ("node", "pattern", "states"),
    [
        (seq(Repeat(letters("a", "b"), 0, None), Literal("abb")), "(a|b)*abb", 4),
        (Repeat(letters("ab", "ba"), 0, None), "(ab|ba)*", 3),
        (Repeat(Literal("a"), 2, 4), "a{2,4}", 5),
        (
            alt(seq(Literal("a"), Repeat(Literal("b"), 0, None)), seq(Literal("c"), Repeat(Literal("b"), 0, None))),
            "[ac]b*",
            2,
        ),
        (Repeat(Repeat(Literal("aa"), 0, None), 1, 3), "(aa)*", 2),
    ],
)
def test_automata_are_minimal_and_right(node, pattern, states):
    found = language(node)
    assert found is not None
    assert len(found) == states
    for length in range(8):
        for number in range(3**length):
            text = "".join("abc"[number // 3**i % 3] for i in range(length))
            assert found.accepts(text.encode()) == bool(re.fullmatch(pattern, text))
            if number > 300:
                break


def test_fragments_free_of_epsilon_and_deterministic_ones_agree():
    node = parse('root ::= ([ab]* "a" [ab]{3} | "b"+)?').rules["root"].body
    nfa = Nfa()
    start, end = nfa.new(), nfa.new()
    nfa.add(node, start, end, symbol=lambda ref: ("rule", 0), inline={})
    small = minimise(determinise(nfa, start, end, max_states=1000))
    free = free_of_epsilon(nfa, start, end)
    rng = random.Random(0)
    for _ in range(300):
        one, many = {0}, {0}
        for byte in bytes(rng.choice(b"ab") for _ in range(rng.randint(0, 8))):
            one = {t for s in one for members, ts in small.edges[s] if members >> byte & 1 for t in ts}
            many = {t for s in many for members, ts in free.edges[s] if members >> byte & 1 for t in ts}
        assert any(small.final[s] for s in one) == any(free.final[s] for s in many)
    assert minimise(free) is free


@given(st.lists(st.text("abé", max_size=5), min_size=1, max_size=12))
def test_words_make_the_smallest_automaton(words):
    found = Dfa.of_words(words)
    for text in {*words, *(w[:-1] for w in words), *(w + "a" for w in words), ""}:
        assert found.accepts(text.encode()) == (text in words)
    assert len(found) == len(found.minimised())


def test_words_of_every_byte():
    found = Dfa.of_words([bytes([b]) * 2 for b in range(256)])
    assert found.accepts(b"\xff\xff")
    assert not found.accepts(b"\xff\xfe")
    with pytest.raises(GrammarError):
        Dfa.of_words([])


def test_many_words_in_a_grammar_are_put_together_at_once():
    rng = random.Random(1)
    words = {"".join(rng.choices("abcdefgh", k=rng.randint(3, 8))) for _ in range(3000)}
    source = "root ::= word (" + '" " word)*\nword ::= ' + " | ".join(f'"{word}"' for word in sorted(words))
    found = Dfa.of_grammar(parse(source))
    assert found.accepts(" ".join(sorted(words)[:50]).encode())
    assert not found.accepts(b"ab")


def test_a_class_is_spelled_once_however_often_it_is_repeated(monkeypatch):
    """Each of hundreds of copies worked out its code points again."""
    asked, scalars = [], CharClass.scalars
    monkeypatch.setattr(CharClass, "scalars", lambda node: asked.append(node) or scalars(node))
    nfa = Nfa()
    start, end = nfa.new(), nfa.new()
    nfa.add(Repeat(CharClass(((97, 122),)), 300, 400), start, end, symbol=pytest.fail, inline={})
    assert len(nfa.edges) > 400
    assert len(asked) == 1


def test_what_is_regular_becomes_one_automaton_and_the_rest_does_not():
    for source, regular in [
        ('root ::= a b\na ::= [a-z]+\nb ::= a "!" a', True),
        ('root ::= a\na ::= "(" a ")" | ""', False),
        ('root ::= root "a" | "b"', True),  # left recursion becomes a repetition
        ("root ::= [ab]* <x>", False),
    ]:
        assert build_network(parse(source)).is_regular == regular
    plain = build_network(parse('root ::= a "b"\na ::= "c"'), plain=True)
    assert set(plain.rule) == {"root", "a"}
    with pytest.raises(GrammarError, match="not regular"):
        Dfa.of_grammar(parse('root ::= "(" root ")" | "a"'))


def test_the_walker_finds_every_spelling_of_the_same_bytes():
    vocab = Vocab.from_tokens([b"a", b"ab", b"a", b"b", b"ab", b"abc", b""], eos_ids=[6])
    trie = build_trie(vocab.tokens)
    dfa = Dfa.of_words(["ab", "abd"])
    machine = RegularMachine(
        dfa, Vocab.from_tokens([*vocab.tokens, b"d"], eos_ids=[6]), build_trie([*vocab.tokens, b"d"])
    )
    assert masks.allowed_ids(machine.mask(dfa.start), 8).tolist() == [0, 1, 2, 4]
    walker = Walker(trie, vocab.width)
    bits, exits = walker.walk(machine._rows, dfa.start, WHOLE)
    assert masks.allowed_ids(bits, 7).tolist() == [0, 1, 2, 4]
    assert exits.size == 0
    assert np.count_nonzero(walker.reach(machine._rows, dfa.start) >= 0) == 2


def test_the_cache_is_bounded_by_bytes_and_drops_the_least_recently_used():
    cache: ByteCache[str, int] = ByteCache(3 * (100 + ENTRY_BYTES))
    for name in "abc":
        cache.put(name, ord(name), 100)
    assert cache.get("a") == ord("a")
    cache.put("d", 1, 100)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    cache.put("a", 2, 50)
    assert cache.size == 2 * (100 + ENTRY_BYTES) + 50 + ENTRY_BYTES
    cache.put("huge", 3, 10**6)
    assert len(cache) == 1
    assert cache.get("huge") == 3
    cache.clear()
    assert (len(cache), cache.size) == (0, 0)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (b"", "nothing"),
        (b"x", '"x"'),
        (b'"', "'\"'"),
        (b"0123456789-", 'a digit or "-"'),
        (b"()*+,-abc", '"(", ")", "*", "+", ",", "-" or a to c'),
        (b"abcdef \n", "a to f, a line end or a space"),
        (bytes(range(0x20, 0x7F)), "any visible ASCII character or a space"),
        (bytes(b for b in range(0x21, 0x7F) if b != 0x5C), 'any visible ASCII character but "\\"'),
        (bytes(range(0x80, 0xC0)), "the rest of a character"),
        (bytes(range(0xC2, 0xF5)), "any character past ASCII"),
        (bytes([0xE3, 0x61]), '"a" or some characters past ASCII'),
    ],
)
def test_words_for_bytes(members, words):
    assert expected(sum(1 << b for b in members)) == words


def test_words_for_tokens_and_the_end():
    assert expected(1 << 97, ["<think>"], can_end=True) == '"a", the token <think> or the end of the text'


@pytest.mark.slow
def test_numba_is_loaded_with_the_first_walker_and_not_before():
    code = (
        "import sys, espalier.constraints.matching.automaton as m\n"
        "from espalier.automata.languages.dfa import Dfa\n"
        "from espalier.tokens.vocab import Vocab\n"
        "from espalier.tokens.trie import build_trie\n"
        "v = Vocab.bytes()\n"
        "c = m.compile_dfa(Dfa.of_words(['a']), None, v, build_trie(v.tokens))\n"
        "assert 'numba' not in sys.modules\n"
        "c.matcher().mask()\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
