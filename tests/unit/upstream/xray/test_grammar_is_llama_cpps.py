"""Our matcher allows what llama.cpp's own grammar engine allows, token by token, over random texts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from espalier.errors import GrammarError, UpstreamError
from espalier.grammar.parser import parse
from espalier.tokens.vocab import Vocab
from espalier.upstream.xray.grammar.lazy import Triggers, TriggerWatch
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.grammar.pieces import WHOLE, Pieces
from espalier.upstream.xray.grammar.program import compile_program
from tests.examples import examples
from tests.llama_grammar import LlamaGrammar, LlamaVocab, write_vocab_gguf

WORDS = """a b ab abc c ca 1 12 2 {" "} , ": true é ée 一 一丁 🎉 ü {} [] ] x xyz zz end aé né é1 東京"""
SPACES = ["\u07ff", "\u0800", "\n\n", "\t", " a"]
ODD = [
    b"\xf0\x87",
    b"\xf0\x87\x80",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\xc0\x80",
    b"a\x00b",
    b"\x80a",
    b"\xe4\xb8",
    b"\xc3",
    b"\xa9",
    b"a\xc3",
    b"\xa9b",
    b"\xff",
    b"\xe4",
    b"\xb8\x80",
    b"\x80",
    b"b\xf0\x9f",
    b"\x8e\x89",
]
JSON = r"""root ::= v
v ::= "{" (s ":" v ("," s ":" v)*)? "}" | "[" v? "]" | s | "true" | [0-9]+
s ::= "\"" [^"\\]* "\""
"""
GRAMMARS = {
    "letters": "root ::= [a-c]+",
    "not quotes": 'root ::= [^"{}]*',
    "not accents": "root ::= [^é一]*",
    "scripts": "root ::= [a-zé一-龥🎉ü]{1,6} | [0-9]+",
    "words": 'root ::= ("é" | "一丁" | "🎉" | "ab" | "né")*',
    "json": JSON,
    "any": "root ::= . . .?",
    "counted": 'root ::= ("a" | "bc"){2,4} "x"{0,3} ("12"{2})?',
    "nested": 'root ::= "a" root "b" | ""',
    "optional end": 'root ::= "a"? "b"? "c"?',
    "spelled": 'root ::= "<think>" [a-c]* "<|end|>"',
    "token": 'root ::= <think> [a-c]* !<[5]> "é"',
    "range": "root ::= [\\x80-\\u07ff]+ | [\\U00010000-\\U0010ffff]*",
    "astral": "root ::= [^\\U0001F389]+",
    "space": 'root ::= ws "a" ws\nws ::= [ \\t\\n]*',
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The vocabulary as llama.cpp has it, and as we read it from a server."""
    tokens = [bytes([b]) for b in range(256)] + [w.encode() for w in (*WORDS.split(), *SPACES)] + ODD
    tokens = list(dict.fromkeys(tokens))
    special = {len(tokens): "<|end|>", len(tokens) + 1: "<think>", len(tokens) + 2: "<|im_start|>"}
    vocab = Vocab.from_tokens([*tokens, b"", b"", b""], eos_ids=[len(tokens)], special_ids=special)
    path = tmp_path_factory.mktemp("vocab") / "vocab.gguf"
    write_vocab_gguf(vocab, path)
    pieces = [vocab.bytes_of(i) or vocab.special_texts.get(i, "").encode() for i in range(vocab.width)]
    return LlamaVocab(path), Pieces(pieces, frozenset(vocab.eos_ids)), {t: i for i, t in special.items()}


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_are_those_of_llama_cpp(both, name):
    theirs, pieces, special = both
    states = States(compile_program(parse(GRAMMARS[name]), special=special), pieces)
    chance = random.Random(name)
    for _ in range(examples(8)):
        other = LlamaGrammar(theirs, GRAMMARS[name])
        state, part = states.start, WHOLE
        for _ in range(12):
            mine, expected = states.mask(state, part), other.mask()
            wrong = np.flatnonzero(mine != expected)
            assert not wrong.size, (name, [(int(i), pieces.pieces[i], bool(expected[i])) for i in wrong[:9]], part)
            for token in chance.sample(range(len(pieces)), 20):
                assert states.allows(state, token, part) == expected[token]
                if not expected[token]:
                    assert states.blame(state, token, part).reason
            allowed = [int(i) for i in np.flatnonzero(expected) if int(i) not in pieces.eog]
            if not allowed:
                break
            odd = [i for i in allowed if i >= 0x80]
            token = chance.choice(odd if odd and chance.random() < 0.7 else allowed)
            after, left = states.accept(state, token, part)
            if not after.stacks:  # llama.cpp ends its process there
                assert 0 in pieces.decoded(token, part).chars or name == "token"
                continue
            other.accept(token)
            state, part = after, left
        other.close()


LAZY = {
    "word": ([{"type": 1, "value": "{}"}], [r"\{\}"], 'root ::= "{}" [a-c]+'),
    "pattern": ([{"type": 2, "value": "x+(ab|é)"}], ["x+(ab|é)"], 'root ::= ("ab" | "é") [0-9é]+'),
    "whole": ([{"type": 3, "value": r"[\s\S]*?(1+2)"}], [r"^[\s\S]*?(1+2)$"], 'root ::= "1"+ "2" "c"+'),
    "several": ([{"type": 1, "value": "12"}, {"type": 1, "value": "zz"}], ["12", "zz"], 'root ::= ("12" | "zz") "a"*'),
    "token": ([{"type": 0, "value": "<think>", "token": None}], [], "root ::= <think> [a-c]+"),
}


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_grammar_begins_where_llama_cpp_begins_it(both, name):
    theirs, pieces, special = both
    said, patterns, grammar = LAZY[name]
    said = [one | {"token": special["<think>"]} for one in said]
    tokens = tuple(one["token"] for one in said if one["type"] == 0)
    states = States(compile_program(parse(grammar), special=special), pieces)
    chance = random.Random(name)
    likely = [pieces.pieces.index(one.encode()) for one in ("x", "ab", "1", "12", "2", "{}", "é", "zz", "a", "[]")]
    begun = 0
    for _ in range(examples(24)):
        other, awaited = (
            LlamaGrammar(theirs, grammar, patterns=patterns, tokens=tokens),
            TriggerWatch(Triggers.of(said)),
        )
        state, part = None, WHOLE
        for _ in range(20):
            expected = other.mask()
            assert (expected if state is None else states.mask(state, part) == expected).all()
            if state is None:
                token = chance.choice([*likely, *tokens])
                found = awaited.after(token, pieces.pieces[token])
                if found is not None:
                    begun, state = begun + 1, states.start
                    for one, piece in found:
                        state, part = states.accept_piece(state, one, piece, part)
                    if not state.stacks:  # llama.cpp ends its process there: the trigger goes on beyond the grammar
                        break
            else:
                allowed = [int(i) for i in np.flatnonzero(expected) if int(i) not in pieces.eog]
                if not allowed:
                    break
                token = chance.choice(allowed)
                after, part = states.accept(state, token, part)
                if not after.stacks:
                    break
                state = after
            other.accept(token)
        other.close()
    assert begun > examples(24) // 8


@pytest.mark.parametrize(
    "triggers", [[], [{"type": 7, "value": "a"}], [{"type": 2, "value": "("}], [{"type": 0, "value": "a"}], [3]]
)
def test_triggers_that_cannot_be_followed_are_named(triggers):
    with pytest.raises(UpstreamError, match="lazy"):
        Triggers.of(triggers)


def test_a_token_that_there_is_not_is_an_error(both):
    _, pieces, special = both
    with pytest.raises(GrammarError, match="special token"):
        States(compile_program(parse("root ::= <nothing>"), special=special), pieces)


def test_a_refused_token_ends_in_the_dead_state(both):
    _, pieces, special = both
    states = States(compile_program(parse('root ::= "ab" "c"'), special=special), pieces)
    a, x = pieces.pieces.index(b"a"), pieces.pieces.index(b"x")
    assert states.accept(states.start, x, WHOLE)[0] is states.dead
    blame = states.blame(states.start, x, WHOLE)
    assert (blame.offset, blame.expected, blame.rule) == (0, "'a'", "root")
    state, part = states.accept(states.start, a, WHOLE)
    aé = pieces.pieces.index("aé".encode())
    assert states.blame(states.start, aé, WHOLE).offset == 1
    assert "must not end" in states.blame(state, special["<|end|>"], part).reason
