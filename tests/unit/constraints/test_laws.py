"""The laws for every kind of constraint on the byte vocabulary and three tokenizers."""

from functools import cache

import pytest

import tests.tokenizers as tokenizers
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex, Vocab
from espalier.constraints.compiler import Compiler
from espalier.wiring import demo_model
from tests.laws import check_matcher

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name"],
    "additionalProperties": False,
}

CASES = {
    "schema": (
        JsonSchema(USER),
        ['{"name":"Ada"}', '{"name": "Zoë 東京", "tags": ["a", "b\\n"]}'],
        ['{"name": "Ada"', '{"tags": []}', '{"name":  "two spaces"}', '{"name": 3}', ' {"name":"a"}', ""],
    ),
    "schema compact": (JsonSchema(USER, whitespace="compact"), ['{"name":"Ada"}'], ['{"name": "Ada"}']),
    "schema flexible": (
        JsonSchema(USER, whitespace="flexible"),
        ['{"name":"Ada"}', '{\n  "name" : "Ada"\n}'],
        ['{"name":' + " " * 60 + '"Ada"}'],
    ),
    "anything": (JsonSchema(True), ["[1, 2.5e3, null]", '"x"', "true"], ["tru", "[1,]", "nan"]),
    "object": (JsonObject(), ['{"a": {"b": [1, {"c": null}]}}', "{}"], ["[]", "{,}", '"x"']),
    "regex": (Regex(r"[a-z]{2,4}(-\d+)?"), ["ab", "abcd-12"], ["a", "abcde", "ab-", "AB"]),
    "regex alternatives": (Regex("(a|ab)(c|bcd)"), ["ac", "abc", "abcd", "abbcd"], ["ab", "abcdd"]),
    "regex unicode": (Regex("[éè]+x?/\\n"), ["éè/\n", "éx/\n"], ["e/", "é"]),
    "choice": (Choice(["yes", "yes please", "no", "sí"]), ["yes", "yes please", "sí"], ["y", "yes ", "maybe"]),
    "gbnf": (
        Gbnf('root ::= "[" (item ("," item)*)? "]"\nitem ::= root | word num\nword ::= [a-z0-9é]+\nnum ::= [0-9]+'),
        ["[]", "[a1,[b22],é9]", "[[[]]]"],
        ["[a]", "[a1,]", "[", "[é]"],
    ),
    "gbnf with loops of nothing": (Gbnf('root ::= ("x"?)* "y"'), ["y", "xxy"], ["x", ""]),
    "choice of nothing": (Choice(["", "a"]), ["", "a"], ["b"]),
}


def demo_vocab() -> Vocab:
    return Vocab.from_tokenizer(demo_model())


@cache
def compiler(name: str) -> Compiler:
    return Compiler({**tokenizers.VOCABS, "tekken": tokenizers.tekken_vocab, "demo": demo_vocab}[name]())


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "demo", "sentencepiece", "tekken"])
@pytest.mark.parametrize("case", CASES)
def test_laws(case, vocab):
    spec, accepted, rejected = CASES[case]
    one = compiler(vocab)
    check_matcher(
        one.compile(spec), trie=one.trie, accepted=accepted, rejected=rejected, walks=1 if vocab == "tekken" else 3
    )


def test_laws_with_several_eos_ids_and_a_padded_width():
    tokens = [bytes([b]) for b in range(256)] + [b"", b"", b'{"', b'":', b"name"]
    vocab = Vocab.from_tokens(tokens, eos_ids=[257, 256], special_ids={256: "<end>", 257: "<eos>"}, width=300)
    one = Compiler(vocab)
    spec, accepted, rejected = CASES["schema"]
    check_matcher(one.compile(spec), trie=one.trie, accepted=accepted, rejected=rejected)


@pytest.mark.slow
def test_laws_on_a_padded_vocabulary_of_131072_ids():
    tekken = tokenizers.tekken_vocab()
    # A model may have more logits than its tokenizer has tokens: padded tekken, with the last thousand ids cut off.
    padded = Vocab.from_tokens(
        tekken.tokens[:-1000], eos_ids=tekken.eos_ids, special_ids=dict(tekken.special_texts), width=tekken.width
    )
    assert padded.padding_count == 1000
    one = Compiler(padded)
    for case in ("schema", "regex", "gbnf"):
        spec, accepted, rejected = CASES[case]
        check_matcher(one.compile(spec), trie=one.trie, accepted=accepted, rejected=rejected, walks=1)
