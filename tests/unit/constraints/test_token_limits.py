"""The laws of matchers for grammars whose rules have limits of tokens; and completions within a limit of the whole."""

from __future__ import annotations

import random

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.closing import within
from espalier.constraints.spec import Gbnf
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab
from tests.laws import check_matcher, check_no_trap, check_walk

WORDS = [b"ab", b"ba", b"b!", b'":', b"12", "é".encode(), b", ", b"abab"]
VOCAB = Vocab.from_tokens([*(bytes([byte]) for byte in range(256)), *WORDS, b""], eos_ids=[256 + len(WORDS)])
TRIE = build_trie(VOCAB.tokens)
GRAMMARS = {
    "a word": ('root ::= name "!"\nname ::= [ab]*', {"name": 2}),
    "a word that must end": ('root ::= name "!"\nname ::= [ab]{3,9} "x"', {"name": 2}),
    "no tokens": ('root ::= name "!"\nname ::= [ab]*', {"name": 0}),
    "letters of two bytes": ('root ::= name "!"\nname ::= [é東]*', {"name": 3}),
    "a list": ('root ::= (name ", ")* "!"\nname ::= [ab]+', {"name": 2}),
    "two rules": ('root ::= name number "!"\nname ::= [ab]+\nnumber ::= [0-9]+', {"name": 2, "number": 1}),
    "a recursive rule": ('root ::= tree "!"\ntree ::= "(" tree ")" | [ab]', {"tree": 3}),
    "a rule of rules": ('root ::= "<" pair ">"\npair ::= name ":" name\nname ::= [ab]+', {"pair": 4}),
    "at the end": ('root ::= "!" name\nname ::= [ab]+', {"name": 2}),
    "within recursion": ('root ::= "(" root ")" | name\nname ::= [ab]+', {"name": 2}),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_laws_hold_at_every_step_and_there_is_no_dead_end(name: str) -> None:
    grammar, limits = GRAMMARS[name]
    compiled = Compiler(VOCAB).compile(Gbnf(grammar, token_limits=limits))  # type: ignore[arg-type]
    rng = random.Random(1)
    for _ in range(6):
        check_no_trap(compiled, rng)
        matcher, tokens = compiled.matcher(), list[int]()
        for _ in range(8):
            allowed = [token for token in range(VOCAB.width) if matcher.allows(token) and token not in VOCAB.eos_ids]
            if not allowed:
                break
            tokens.append(rng.choice(allowed))
            matcher.advance(tokens[-1])
        check_walk(compiled, [*tokens, *matcher.shortest_completion()[:-1]], rng)


def test_a_limit_that_is_never_reached_changes_nothing() -> None:
    grammar = 'root ::= name "!"\nname ::= [ab]+'
    compiled = Compiler(VOCAB).compile(Gbnf(grammar, token_limits={"name": 99}))  # type: ignore[arg-type]
    check_matcher(compiled, trie=TRIE, accepted=["ab!", "bababa!"], rejected=["!", "ab", "ax!"])


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_completion_within_a_limit_is_one(name: str) -> None:
    grammar, limits = GRAMMARS[name]
    matcher = Compiler(VOCAB).compile(Gbnf(grammar, token_limits=limits)).matcher()  # type: ignore[arg-type]
    for most in range(1, 8):
        completion = within(matcher.fork(), most)
        if completion is not None:
            assert len(completion) <= most
            walker = matcher.fork()
            for token in completion:
                walker.advance(token)
            assert walker.is_finished
