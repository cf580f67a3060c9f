"""Matchers as filters of one's own logits: the masks are the engine's, and every fault is told."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.compiler import Compiler
from espalier.constraints.filters.matcher import GrammarFilter, JsonSchemaFilter, MatcherFilter, ToolCallFilter
from espalier.constraints.spec import Choice, Gbnf, JsonSchema, Regex
from espalier.engines.fake import noise
from espalier.errors import DeadEnd, GrammarError, InputError, SchemaError, TokenRefused, UnsupportedError
from espalier.sampling.filters import FilterChain, FilterContext, LogitBias, Priority, TokenBan
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples

CONTEXT = FilterContext(step=0, prompt=(), generated=())
VOCAB = Vocab.from_tokens(
    [bytes([b]) for b in range(256)] + [b"ab", b"abc", b"", b'{"'], eos_ids=[258], special_ids={258: "</s>"}, width=264
)
COMPILER = Compiler(VOCAB)
EOS = 258
LIST = r"""
root ::= "[" item ("," item)* "]"
item ::= "abc"+ | root
"""
TOOLS = {
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "tree": {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "additionalProperties": False,
    },
}


def noise_row(tokens):
    return noise(tuple(tokens), VOCAB.width)


def generate(one, limit=200):
    """A plain greedy loop, as somebody would write it."""
    tokens = []
    while not one.is_finished and len(tokens) < limit:
        row = one.apply(noise_row(tokens), CONTEXT)
        tokens.append(int(np.argmax(row)))
        one.on_token(tokens[-1])
    return tokens


@pytest.mark.parametrize("seed", range(5))
def test_a_loop_over_own_logits_sees_the_masks_of_the_engine(seed):
    one, matcher = GrammarFilter(LIST, COMPILER), COMPILER.compile(Gbnf(LIST)).matcher()
    tokens = [seed]
    for _ in range(40):
        row = noise_row(tokens)
        out = one.apply(row, CONTEXT)
        allowed = masks.unpack(matcher.mask(), VOCAB.width)
        assert np.array_equal(out > -np.inf, allowed)
        assert np.array_equal(out[allowed], row[allowed])
        assert bool(out[EOS] > -np.inf) == matcher.is_accepting == one.is_complete
        tokens.append(int(np.argmax(out)))
        one.on_token(tokens[-1])
        matcher.advance(tokens[-1])
        if one.is_finished:
            break
    assert len(tokens) > 3
    one.reset()
    assert np.array_equal(one.apply(row, CONTEXT) > -np.inf, masks.unpack(one.fork()._matcher.mask(), VOCAB.width))
    assert not one.is_complete


@pytest.mark.parametrize(
    "make",
    [
        lambda: GrammarFilter("root ::= [a-c]{2,5}", VOCAB),
        lambda: JsonSchemaFilter({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3}, VOCAB),
        lambda: JsonSchemaFilter('{"type": "boolean"}', COMPILER),
        lambda: JsonSchemaFilter(JsonSchema({"const": {"a": 1}}, whitespace="compact"), COMPILER),
        lambda: JsonSchemaFilter(bool, COMPILER),
        lambda: MatcherFilter(COMPILER.compile(Choice(["yes", "no"])), "answer"),
    ],
)
def test_every_finished_loop_is_a_text_of_the_constraint(make):
    one = make()
    tokens = generate(one)
    assert tokens[-1] == EOS
    assert one.is_complete
    assert one.compiled.accepts(VOCAB.decode(tokens))


def test_tool_calls_are_calls_of_the_tools_alone():
    one = ToolCallFilter(TOOLS, COMPILER)
    accepts = one.compiled.accepts
    assert accepts('{"name": "read_file", "args": {"path": "/etc/hosts"}}')
    assert accepts('{"name": "tree", "args": {"left": {"right": {}}}}')
    assert not accepts('{"name": "tree", "args": {"left": {"path": {}}}}')
    assert not accepts('{"name": "tree", "args": {"path": "/etc/hosts"}}')
    assert not accepts('{"args": {}, "name": "tree"}')
    assert not accepts('{"name": "rm", "args": {}}')
    assert not accepts('{"name": "tree", "args": {}, "more": 1}')
    only = ToolCallFilter({"tree": TOOLS["tree"]}, COMPILER, whitespace="compact")
    assert only.compiled.accepts('{"name":"tree","args":{}}')
    assert not only.compiled.accepts('{"name": "read_file", "args": {"path": "x"}}')


def test_names_and_priorities():
    assert GrammarFilter('root ::= "a"', COMPILER).name == "grammar"
    assert JsonSchemaFilter(True, COMPILER).name == "json_schema"
    assert ToolCallFilter(TOOLS, COMPILER).name == "tool_call"
    assert MatcherFilter(COMPILER.compile(Regex("a"))).name == "regex"
    assert GrammarFilter('root ::= "a"', COMPILER, name="mine").name == "mine"
    assert GrammarFilter('start ::= "a"', COMPILER, root="start").priority is Priority.HIGH


def test_a_refused_token_raises_and_changes_nothing():
    one = GrammarFilter('root ::= "ab" "c"?', COMPILER)
    before = one.apply(noise_row([]), CONTEXT)
    for token in (ord("b"), EOS, 263, 5000, -1):
        with pytest.raises(TokenRefused):
            one.on_token(token)
    assert np.array_equal(one.apply(noise_row([]), CONTEXT), before)
    one.on_token(257)
    assert one.is_complete
    one.on_token(EOS)
    assert one.is_finished
    assert one.is_complete
    with pytest.raises(DeadEnd, match="the text has ended"):
        one.apply(noise_row([]), CONTEXT)
    with pytest.raises(TokenRefused):
        one.on_token(EOS)
    one.rollback(2)
    assert np.array_equal(one.apply(noise_row([]), CONTEXT), before)
    with pytest.raises(ValueError, match="cannot undo"):
        one.rollback(1)


def test_where_nothing_is_left_the_favourite_is_explained():
    row = np.full(VOCAB.width, -np.inf, dtype=np.float32)
    row[ord("x")] = 3.0
    with pytest.raises(DeadEnd, match=r"grammar: no token is left; the top choice 120 \('x'\) is refused in item"):
        GrammarFilter('root ::= item\nitem ::= "a" | "b"', COMPILER).apply(row, CONTEXT)
    with pytest.raises(DeadEnd, match="json_schema: no token is left"):
        JsonSchemaFilter({"type": "object"}, COMPILER).apply(row, CONTEXT)
    row[ord("x")] = -np.inf
    with pytest.raises(DeadEnd, match="nor was any before"):
        GrammarFilter('root ::= "a"', COMPILER).apply(row, CONTEXT)


def test_apply_does_not_change_its_argument():
    row = noise_row([])
    kept = row.copy()
    GrammarFilter('root ::= "a"', COMPILER).apply(row, CONTEXT)
    assert np.array_equal(row, kept)


def test_what_cannot_be_compiled_is_refused_by_type():
    with pytest.raises(GrammarError, match="line 1"):
        GrammarFilter('root ::= "a', VOCAB)
    with pytest.raises(SchemaError, match="not JSON"):
        JsonSchemaFilter("{", VOCAB)
    with pytest.raises(SchemaError):
        JsonSchemaFilter([], VOCAB)
    with pytest.raises(UnsupportedError):
        JsonSchemaFilter(
            {
                "contentEncoding": "base64",
                "type": "string",
                "unevaluatedProperties": {"not": {}},
                "not": {"pattern": "(a*)\\1"},
            },
            VOCAB,
        )
    for tools in ({}, None, ["read_file"]):
        with pytest.raises(InputError) as caught:
            ToolCallFilter(tools, VOCAB)
        assert caught.value.field == "tools"


def test_in_a_chain_bans_and_grammars_hold_together():
    chain = FilterChain([LogitBias({ord("c"): 50.0}), GrammarFilter("root ::= [a-c]{4}", COMPILER), TokenBan([257])])
    row = chain.apply(noise_row([]), CONTEXT)
    assert sorted(np.flatnonzero(row > -np.inf)) == [ord("a"), ord("b"), ord("c"), 256]
    assert int(np.argmax(row)) == ord("c")
    with pytest.raises(TokenRefused):
        chain.on_token(ord("x"))
    chain.on_token(ord("c"))
    chain.disable("grammar")
    chain.on_token(ord("x"))
    with pytest.raises(InputError, match="'grammar' cannot be enabled"):
        chain.enable("grammar")
    chain.rollback(1)
    chain.enable("grammar")
    with pytest.raises(DeadEnd, match="'rest'"):
        FilterChain([GrammarFilter('root ::= "a"', COMPILER), TokenBan([ord("a")], name="rest")]).apply(
            noise_row([]), CONTEXT
        )


@settings(max_examples=examples(40))
@given(st.data())
def test_forks_are_independent_and_rollback_restores(data):
    one = JsonSchemaFilter({"type": "array", "items": {"type": "array"}}, COMPILER)
    rows = [one.apply(noise_row([]), CONTEXT)]
    forks = []
    for _ in range(data.draw(st.integers(1, 12))):
        if one.is_finished:
            break
        allowed = np.flatnonzero(rows[-1] > -np.inf)
        forks.append((one.fork(), rows[-1]))
        one.on_token(int(allowed[data.draw(st.integers(0, len(allowed) - 1))]))
        rows.append(rows[-1] if one.is_finished else one.apply(noise_row([]), CONTEXT))
    for fork, row in forks:
        assert np.array_equal(fork.apply(noise_row([]), CONTEXT), row)
    back = data.draw(st.integers(1, len(rows) - 1))
    one.rollback(back)
    assert np.array_equal(one.apply(noise_row([]), CONTEXT), rows[-1 - back])
    assert type(one.fork()) is JsonSchemaFilter


def test_the_schema_filter_writes_json():
    one = JsonSchemaFilter({"enum": [{"a": [1, None]}, "b"]}, COMPILER)
    assert json.loads(VOCAB.decode(generate(one))) in ({"a": [1, None]}, "b")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GrammarFilter('root ::= "a"', None), "a Vocab, a Compiler or a tokenizer, not NoneType"),
        (lambda: JsonSchemaFilter({}, "gpt2"), "not str"),
        (lambda: GrammarFilter(5, COMPILER), "grammar"),
        (lambda: MatcherFilter(None), "not of NoneType"),
        (lambda: MatcherFilter(Choice(["a"])), "not of Choice"),
        (lambda: one_filter().apply(np.zeros((2, VOCAB.width), dtype=np.float32), CONTEXT), "shape"),
        (lambda: one_filter().apply(np.zeros(VOCAB.width, dtype=np.int64), CONTEXT), "an array of int64"),
        (lambda: one_filter().apply(np.zeros(300, dtype=np.float32), CONTEXT), "300 logits.*264 tokens"),
        (lambda: one_filter().apply(np.zeros(100, dtype=np.float32), CONTEXT), "100 logits.*264 tokens"),
        (lambda: one_filter().apply(np.zeros(0, dtype=np.float32), CONTEXT), "shape"),
        (lambda: one_filter().apply("abc", CONTEXT), "array of floats, not str"),
        (lambda: one_filter().apply(None, CONTEXT), "shape"),
    ],
)
def test_a_wrong_kind_of_value_was_a_type_error_or_passed(call, words):
    with pytest.raises(InputError, match=words):
        call()


def one_filter():
    return GrammarFilter('root ::= "a"', COMPILER)


def test_a_list_of_logits_is_taken():
    out = one_filter().apply([0.0] * VOCAB.width, CONTEXT)
    assert np.flatnonzero(out > -np.inf).tolist() == [ord("a")]
