"""The laws for our own automata on every kind of vocabulary, and what only they can answer."""

from __future__ import annotations

import threading
import time
from functools import cache

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.masks.machine import Machine
from espalier.automata.reasons.explain import PlainExplainer
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.matching.automaton import CompiledAutomaton, compile_dfa, compile_grammar
from espalier.constraints.spec import Choice, Gbnf
from espalier.errors import TokenRefused, VocabError
from espalier.grammar.parser import parse
from espalier.time_limit import check, time_limit
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie, build_trie
from espalier.tokens.vocab import Vocab
from tests.laws import check_matcher

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""

CASES = {
    "json": (JSON, ['{"a": [1, {"b": "é\\n東"}], "c": -0.5}', "{}", '{"x":"\U0001f600"}\n  '], ["{", "[1]", '{"a"}']),
    "nested": ('root ::= "a" root "b" | ""', ["", "ab", "aaabbb"], ["a", "aab", "ba"]),
    "regular": ('root ::= [a-z]{2,4} ("-" [0-9]+)?', ["ab", "abcd-12"], ["a", "abcde", "ab-", "AB"]),
    "left": ('root ::= root "+" t | t\nt ::= [0-9] | "(" root ")"', ["1", "1+(2+3)"], ["+1", "1+", "(1"]),
    "ambiguous": ("root ::= word num\nword ::= [a-zé]+\nnum ::= [a-c]+", ["ab", "zéab"], ["z", "aé"]),
    "any": ('root ::= "<" .* ">" root?', ["<>", "<é\n>", "<a>b><c>"], ["<", "a>"]),
    "empty": ('root ::= "" | "é" root "ü"', ["", "éü", "ééüü"], ["é", "ü"]),
}


@cache
def vocabulary(name: str) -> tuple[Vocab, TokenTrie]:
    vocab = {**tokenizers.VOCABS, "tekken": tokenizers.tekken_vocab}[name]()
    return vocab, build_trie(vocab.tokens)


def compiled(source: str, name: str = "bytes") -> CompiledAutomaton:
    vocab, trie = vocabulary(name)
    return compile_grammar(parse(source), Gbnf(source), vocab, trie)


def after(found: CompiledAutomaton, text: str):
    matcher = found.matcher()
    for token in found.trie.segment(text.encode()) or ():
        matcher.advance(token)
    return matcher


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "sentencepiece"])
@pytest.mark.parametrize("case", CASES)
def test_laws(case, vocab):
    source, accepted, rejected = CASES[case]
    found = compiled(source, vocab)
    assert isinstance(found, Compiled)
    assert isinstance(found.matcher(), Matcher)
    check_matcher(found, trie=found.trie, accepted=accepted, rejected=rejected)


@pytest.mark.parametrize("case", ["json", "regular"])
def test_laws_on_a_large_vocabulary(case):
    source, accepted, rejected = CASES[case]
    found = compiled(source, "tekken")
    check_matcher(found, trie=found.trie, accepted=accepted[:1], rejected=rejected, walks=1)


def test_laws_with_several_eos_ids_and_a_padded_width():
    tokens = [bytes([b]) for b in range(256)] + [b"", b"", b'{"', b'":', b"name"]
    vocab = Vocab.from_tokens(tokens, eos_ids=[257, 256], special_ids={256: "<end>", 257: "<eos>"}, width=300)
    trie = build_trie(vocab.tokens)
    found = compile_grammar(parse(JSON), Gbnf(JSON), vocab, trie)
    check_matcher(found, trie=trie, accepted=['{"name": 1}'], rejected=["{"])


def test_laws_for_automata_from_words_and_intersections():
    vocab, trie = vocabulary("byte-level")
    words = Dfa.of_words(["yes", "yes please", "no", "sí", ""])
    check_matcher(
        compile_dfa(words, Choice(["yes"]), vocab, trie), trie=trie, accepted=["", "yes", "sí"], rejected=["y", "ye"]
    )
    both = intersect(words, Dfa.of_grammar(parse('root ::= [a-z]+ (" " [a-z]+)?')))
    found = compile_dfa(both, Choice(["yes"]), vocab, trie)
    check_matcher(found, trie=trie, accepted=["yes", "yes please", "no"], rejected=["", "sí"])
    assert [vocab.text_of(t) for t in found.matcher().forced()] == []


# Tokens by name


SPECIALS = {256: "<eos>", 257: "<think>", 258: "</think>"}
NAMED = Vocab.from_tokens(
    [bytes([b]) for b in range(256)] + [b"", b"", b"", b"hello"], eos_ids=[256], special_ids=SPECIALS
)
NAMED_TRIE = build_trie(NAMED.tokens)


def named(source: str) -> CompiledAutomaton:
    return compile_grammar(parse(source), Gbnf(source), NAMED, NAMED_TRIE)


def test_a_named_token_is_taken_whole_and_its_text_is_not():
    matcher = named('root ::= <think> [a-z]* </think> "!"').matcher()
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [257]
    assert not matcher.allows(ord("<"))
    assert matcher.forced() == (257,)
    matcher.advance(257)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [*range(97, 123), 258, 259]
    assert matcher.shortest_completion() == (258, ord("!"), 256)
    matcher.advance(259)
    matcher.advance(258)
    assert matcher.forced() == (ord("!"),)
    matcher.rollback(2)
    assert matcher.allows(258)


def test_a_negated_name_is_any_other_token_but_eos():
    matcher = named("root ::= !<think> !<[65]>").matcher()
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [*range(256), 258, 259]
    matcher.advance(65)
    assert not matcher.allows(65)
    assert not matcher.allows(256)
    matcher.advance(258)
    assert matcher.is_accepting
    assert matcher.allows(256)


def test_a_token_that_is_allowed_by_name_and_by_its_bytes_may_go_on_as_either():
    matcher = named('root ::= <[104]> "1" | "h" "2" | "hello3"').matcher()
    matcher.advance(104)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [ord("1"), ord("2"), ord("e")]


def test_named_tokens_within_recursion():
    matcher = named("root ::= <think> root </think> | [a-z]").matcher()
    for token in (257, 257, 97, 258):
        assert masks.test(matcher.mask(), token)
        matcher.advance(token)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [258]


@pytest.mark.parametrize("source", ["root ::= <nothing>", "root ::= <[999]>", "root ::= [a] <eos>"])
def test_a_token_that_there_is_not_or_that_ends_the_text_is_refused(source):
    with pytest.raises(VocabError, match="names the token"):
        named(source)


# Vocabularies that lack bytes


def test_missing_bytes_leave_a_regular_grammar_what_tokens_can_finish():
    vocab = Vocab.from_tokens([b"a", b"b", b"ab", b"xy", b"x", b""], eos_ids=[5])
    trie = build_trie(vocab.tokens)
    # After "x" alone the "y" that must follow has no token, so "x" is a trap and only "xy" is allowed.
    source = 'root ::= ("a" | "xy" | "b" "q")+'
    found = compile_grammar(parse(source), Gbnf(source), vocab, trie)
    matcher = found.matcher()
    assert [vocab.tokens[i] for i in masks.allowed_ids(matcher.mask(), vocab.width)] == [b"a", b"xy"]
    assert [found.accepts(text) for text in ("a", "axya", "x", "b", "")] == [True, True, False, False, False]
    matcher.advance(3)
    assert matcher.is_accepting
    matcher.rollback(1)
    assert matcher.shortest_completion() == (0, 5)
    assert matcher.explain(4).reason == "no sequence of tokens completes the text after it"
    with pytest.raises(VocabError, match="71"):
        compile_grammar(parse('root ::= "bq"'), Gbnf('root ::= "bq"'), vocab, trie)
    with pytest.raises(VocabError, match="28 29"):
        compile_grammar(parse('root ::= "(" root ")" | "a"'), Gbnf('root ::= "a"'), vocab, trie)


# What only an automaton can answer


def test_explain_names_rule_place_offset_and_what_was_expected():
    found = compiled(JSON, "byte-level")
    matcher = after(found, '{"a": ')
    told = matcher.explain(found.trie.segment(b"}")[0])
    assert told.member == "gbnf"
    assert told.offset == 0
    assert told.rule is not None
    assert told.position is not None
    assert told.position.startswith("line ")
    assert "a digit" in told.expected
    assert '"t"' in told.expected
    assert told.reason.startswith("here the constraint requires ")
    matcher = after(found, '{"a": tr')
    told = matcher.explain(found.trie.segment(b"x")[0])
    assert told.rule == "value"
    assert told.position == "line 3, column 48"
    assert told.expected == '"u"'
    told = matcher.explain(found.vocab.eos_ids[0])
    assert told.reason == "the text is not complete, so it cannot end here"
    assert told.offset is None


def test_explain_counts_the_bytes_that_were_still_viable():
    tokens = [*(bytes([b]) for b in range(256)), b"trust", "日本".encode(), b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[258])
    trie = build_trie(vocab.tokens)
    source = 'root ::= answer | name\nanswer ::= "true"\nname ::= "日" "x" root?'
    matcher = compile_grammar(parse(source), Gbnf(source), vocab, trie).matcher()
    told = matcher.explain(256)
    assert (told.offset, told.rule, told.position, told.expected) == (3, "answer", "line 2, column 12", '"e"')
    assert told.reason == """after "tru" the constraint requires "e", not "st\""""
    told = matcher.explain(257)
    assert (told.offset, told.rule, told.expected) == (3, "name", '"x"')
    matcher.advance(ord("t"))
    matcher.explain(ord("q"))
    fork = matcher.fork()
    matcher.rollback(1)
    assert matcher.explain(256).offset == 3
    assert fork.explain(ord("q")).expected == '"r"'
    with pytest.raises(ValueError, match="allowed"):
        matcher.explain(ord("t"))


def test_explain_of_an_automaton_without_a_grammar():
    vocab, trie = vocabulary("bytes")
    matcher = compile_dfa(Dfa.of_words(["cat", "car", "dog"]), Choice(["cat"]), vocab, trie).matcher()
    matcher.advance(ord("c"))
    matcher.advance(ord("a"))
    told = matcher.explain(ord("x"))
    assert (told.member, told.rule, told.expected, told.offset) == ("choice", None, '"r" or "t"', 0)


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "sentencepiece"])
def test_forced_is_what_every_completion_begins_with(vocab):
    found = compiled('root ::= "hello, " ("world" | "word" root?) "."', vocab)
    text = b"".join(found.vocab.bytes_of(t) for t in found.matcher().forced())
    assert text == b"hello, wor"
    assert after(found, "hello, world.").forced() == ()


def test_a_refused_token_changes_nothing_and_says_why():
    matcher = compiled("root ::= [a-z]+").matcher()
    with pytest.raises(TokenRefused, match="gbnf forbids it"):
        matcher.advance(ord("A"))
    for token in (-1, 257, 10**9):
        assert not matcher.allows(token)


def test_one_compiled_grammar_serves_many_threads():
    found = compiled(JSON, "byte-level")
    text = b'{"a": [1, {"b": "x", "c": [[], {}, [{"d": null}]]}], "e": "\\u00e9 and so on"}'
    tokens = found.trie.segment(text)
    fresh = compiled(JSON, "byte-level")
    wanted = []
    matcher = fresh.matcher()
    for token in tokens:
        wanted.append(matcher.mask())
        matcher.advance(token)
    failures: list[str] = []

    def work() -> None:
        for _ in range(5):
            matcher = found.matcher()
            for i, token in enumerate(tokens):
                if not np.array_equal(matcher.mask(), wanted[i]):
                    failures.append(f"step {i}")
                matcher.advance(token)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_place_answers_later_as_the_matcher_did_there():
    """Also where the text went back, and in a fork."""
    matcher = compiled(JSON).matcher()
    places, answers = [], []

    def look(one):
        refused = next(token for token in b"]:\x01" if not one.allows(token))
        taken = next(token for token in b'{"a:[1]}' if one.allows(token))
        places.append((one.place(), refused, taken))
        answers.append((one.explain(refused), one.rule_of(taken)))

    for token in b'{"a": [1,':
        look(matcher)
        matcher.advance(token)
    fork = matcher.fork()
    matcher.rollback(4)
    look(matcher)
    for token in b"-2":
        matcher.advance(token)
        look(matcher)
    look(fork)
    later = [(place.explain(refused), place.rule_of(taken)) for place, refused, taken in reversed(places)]
    assert later[::-1] == answers
    assert len({rule for _, rule in answers}) > 1


def test_what_names_the_rules_waits_for_its_turn_while_it_is_made_and_is_made_once() -> None:
    made: list[str] = []
    automaton = compiled(JSON)

    def explain(machine: Machine) -> PlainExplainer:
        clock = time.monotonic() + 0.1
        while time.monotonic() < clock:
            check()
        made.append("explainer")
        return PlainExplainer(machine)

    automaton.explain_with(explain)
    turns: list[bool] = []
    with time_limit(60, pace=lambda: turns.append(bool(made))):
        assert automaton.explainer is automaton.explainer
    assert False in turns, "no turn was taken before it was made"
    assert made == ["explainer"]
