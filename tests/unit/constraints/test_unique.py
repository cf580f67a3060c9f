"""Arrays of strings of which no two may be equal: nothing repeats, everything else can come, and nothing is a trap."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import espalier
import tests.tokenizers as tokenizers
from espalier import AllOf, JsonSchema, Regex, Vocab
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.check import check_schema
from espalier.constraints.spec import Spec
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.spots import Spot
from espalier.constraints.unique.string_matcher import CompiledUniqueStrings
from espalier.constraints.unique.string_tracker import StringPosition, UniqueTracker
from espalier.engines.fake import FakeStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.errors import TokenRefused, VocabError
from espalier.tokens import mask as masks
from tests.examples import examples
from tests.laws import check_matcher
from tests.oracle import validator

VOCABS = {"bytes": Vocab.bytes, "byte level": tokenizers.byte_level_vocab, "spm": tokenizers.spm_vocab}
BYTES = Compiler(Vocab.bytes())
STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LISTS = {"type": "array", "items": {"type": "string"}}
RECORD = {
    "type": "object",
    "properties": {"a": STRINGS, "b": LISTS, "c": {"type": "object", "properties": {"d": STRINGS}}},
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"names": STRINGS, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["names"],
    "additionalProperties": False,
}
CASES = {
    "one array": (
        STRINGS,
        ["[]", '[""]', '["a"]', '["", "a","b", "aa"]', r'["\"","\\","\n","é"]', r'["a,","a","]","[\"a\""]'],
        ['["a","a"]', '["",""]', '["b", "a","b"]', '["a","a', r'["\"","\""]', r'["\u0001", "\u0001"]'],
    ),
    "a count": (STRINGS | {"minItems": 3, "maxItems": 4}, ['["","a","b"]'], ['["","a"]', '["","a","b","a"]']),
    "beside others": (
        RECORD,
        ['{"a":["x","y"], "b":["x","x"],"c":{"d":["x"]}}', '{"b": ["", ""]}', '{"c":{"d":["a"],"a":["d","d"]}}'],
        ['{"a":["x","x"]}', '{"b":["x"], "c":{"d":["y","y"]}}'],
    ),
    "in every item": (
        {"type": "array", "items": {"type": "object", "properties": {"t": STRINGS}, "required": ["t"]}},
        ['[{"t":["a"]}, {"t":["a","b"]}]'],
        ['[{"t":["a"]},{"t":["a","a"]}]'],
    ),
    "in itself": (
        TREE,
        ['{"names":["a"], "kids":[{"names":["a"]},{"names":["a","b"],"kids":[{"names":["b","a"]}]}]}'],
        ['{"names":["a","a"]}', '{"names":["a"],"kids":[{"names":["b"],"kids":[{"names":["a","b","a"]}]}]}'],
    ),
    "of arrays": ({"type": "array", "items": STRINGS}, ['[["a"],["a"], []]'], ['[["a"],["a", "a"]]']),
    "a string or strings": (
        {"anyOf": [{"type": "string"}, STRINGS, {"type": "array", "items": {"type": "integer"}}]},
        ['"a"', '["a","b"]', "[1, 1]"],
        ['["a","a"]', '["a",1]'],
    ),
    "first items": (
        {
            "type": "array",
            "prefixItems": [{"type": "string", "minLength": 2}],
            "items": {"type": "string"},
            "uniqueItems": True,
        },
        ['["ab","a","b"]'],
        ['["a"]', '["ab","ab"]', '["ab","c","ab"]'],
    ),
    "one after another": (
        {"type": "array", "prefixItems": [LISTS, STRINGS], "items": LISTS},
        ['[["a","a"],["a"],["a","a"],["b","b"]]', '[["a","a"], ["a","b"]]'],
        ['[["a","a"],["a","a"]]', '[["a"],["b","b"],[]]'],
    ),
    "left out": (
        {"type": "array", "items": {"type": "string", "not": {"enum": ["", "a"]}}, "uniqueItems": True, "minItems": 2},
        ['["b","c"]'],
        ['["","b"]', '["a","b"]', '["b","b"]'],
    ),
    "a pattern": (
        {"type": "array", "items": {"type": "string", "pattern": "^[A-Z][0-9]*$"}, "uniqueItems": True, "minItems": 3},
        ['["A","B","A1"]', '["A","A1","A11", "A111"]'],
        ['["a","B","C"]', '["A","B","A"]', '["A1","B","A1"]'],
    ),
    "members by pattern": (
        {"type": "object", "patternProperties": {"^s": STRINGS}, "additionalProperties": {"type": "integer"}},
        ['{"s":["a"],"t":1}'],
        ['{"s":["a","a"]}', '{"t":["a"]}'],
    ),
    "constants beside": (
        {"anyOf": [{"const": ["x", "y", [1, 1]]}, {"const": {"a": 1}}, STRINGS]},
        ['["x","y",[1,1]]', '["x","y"]', '{"a":1}'],
        ['["x","x"]'],
    ),
}
OTHERS = {
    "anything": {"type": "array", "uniqueItems": True},
    "integers": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "strings or integers": {"type": "array", "items": {"type": ["string", "integer"]}, "uniqueItems": True},
    "short strings": {"type": "array", "items": {"type": "string", "maxLength": 9}, "uniqueItems": True},
    "a pattern that ends": {
        "type": "array",
        "items": {"type": "string", "pattern": "^(x|[0-9]+)$"},
        "uniqueItems": True,
    },
    "contains": STRINGS | {"contains": {"const": "a"}, "minContains": 1},
    "in contains": {"type": "array", "items": {"type": "array"}, "contains": STRINGS},
    "or not unique": {"anyOf": [STRINGS, LISTS | {"minItems": 3}]},
    "or a constant that repeats": {"anyOf": [STRINGS, {"const": ["a", "a"]}]},
    "or deep in a constant": {
        "anyOf": [{"type": "object", "properties": {"a": STRINGS}}, {"const": {"a": ["x", "x"], "b": 1}}]
    },
    "one of two": {"type": "object", "properties": {"a": STRINGS, "b": {"type": "array", "uniqueItems": True}}},
}


def compiled(schema: object, vocab: Vocab | None = None) -> CompiledUniqueStrings:
    found = (BYTES if vocab is None else Compiler(vocab)).compile(JsonSchema(schema))
    assert isinstance(found, CompiledUniqueStrings)
    return found


def after(made: CompiledUniqueStrings, text: str) -> Matcher:
    matcher = made.matcher()
    for token in made.inner.trie.segment(text.encode()) or ():
        matcher.advance(token)
    return matcher


@pytest.mark.parametrize("kind", VOCABS)
@pytest.mark.parametrize("name", CASES)
def test_laws(name: str, kind: str) -> None:
    schema, accepted, rejected = CASES[name]
    made = compiled(schema, VOCABS[kind]())
    check_matcher(made, trie=made.inner.trie, accepted=accepted, rejected=rejected)


@pytest.mark.parametrize("name", CASES)
def test_the_contract_says_that_it_is_enforced(name: str) -> None:
    contract = espalier.contract(JsonSchema(CASES[name][0]))
    kept = [entry for entry in contract.entries if entry.keyword == "uniqueItems"]
    assert [(entry.verdict, entry.note) for entry in kept] == [("enforced", "")] * len(kept)
    assert not contract.by_verdict("checked", "refused")


@pytest.mark.parametrize("name", OTHERS)
def test_where_forbidding_what_repeats_is_not_enough_the_matcher_looks_ahead(name: str) -> None:
    assert isinstance(BYTES.compile(JsonSchema(OTHERS[name])), CompiledUniqueItems)


def test_few_values_need_no_filter() -> None:
    few = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
    assert not isinstance(BYTES.compile(JsonSchema(few)), CompiledUniqueStrings)
    both = compiled({"anyOf": [STRINGS | {"minItems": 3}, few]})
    assert both.accepts('["a","b"]')
    assert not both.accepts('["c","b"]')
    assert not both.accepts('["a","b","a"]')


def test_beside_others_it_is_enforced() -> None:
    made = BYTES.compile(AllOf(JsonSchema(STRINGS, whitespace="compact"), Regex(r"[^\n]*"), Ban(["b"])))
    matcher = made.matcher()
    for byte in b'["a","':
        matcher.advance(byte)
    assert matcher.unsettled == 0  # a common end is known
    assert matcher.explain(ord("b")).member == "all_of[2].ban"
    matcher.advance(ord("a"))
    assert matcher.explain(ord('"')).member == "all_of[0].json_schema"
    assert [name for name, _ in matcher.member_masks()] == [
        "all_of[0].json_schema",
        "all_of[1].regex",
        "all_of[2].ban",
        "all_of",
    ]
    assert made.accepts('["a","aa"]')
    assert not made.accepts('["a","a"]')
    assert not made.accepts('["b"]')


def test_as_a_grammar_it_is_refused() -> None:
    report = check_schema(JsonSchema(STRINGS), BYTES, engine="gbnf")
    assert [entry.pointer for entry in report.lacking] == ["/uniqueItems"]
    report = check_schema(JsonSchema(STRINGS), BYTES, instances=[(1, '["a","b"]'), (2, '["a","a"]')])
    assert report.ok
    assert [one.accepted for one in report.instances] == [True, False]
    assert report.cost is not None
    assert report.cost.backend == "automaton"


def test_after_a_marker() -> None:
    spec: Spec = After("</think>", JsonSchema(STRINGS))
    assert BYTES.compile(spec).accepts('so</think>["a","b"]')
    assert not BYTES.compile(spec).accepts('so</think>["a","a"]')


# Exactly

TOKENS = [
    b'"',
    b",",
    b"[",
    b"]",
    b"a",
    b'["',
    b'","',
    b'a"',
    b'""',
    b'","a"',
    b'"a","a"',
    b'"",',
    b'",""]',
    b'["a","a',
    b'["a","a"',
]


def small(*more: bytes) -> Vocab:
    tokens = [*TOKENS, *more, b""]
    return Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1])


def test_every_mask_over_a_few_tokens_is_right() -> None:
    """A text is viable if it is the beginning of an array of strings and no whole one comes twice."""
    vocab = small()
    made = Compiler(vocab).compile(JsonSchema(STRINGS, whitespace="compact"))
    begun = re.compile(rb'(\[(\]|("[^"]*",)*("[^"]*)?|("[^"]*",)*"[^"]*"\]?)?)?')

    def viable(text: bytes) -> bool:
        if not begun.fullmatch(text):
            return False
        whole = re.findall(rb'"[^"]*"', text)
        return len(set(whole)) == len(whole)

    level: list[tuple[bytes, Matcher]] = [(b"", made.matcher())]
    states = 0
    for _ in range(5):
        following = {}
        for text, matcher in level:
            states += 1
            allowed = set(masks.allowed_ids(matcher.mask(), vocab.width).tolist()) - set(vocab.eos_ids)
            assert allowed == {t for t in range(vocab.width - 1) if viable(text + vocab.bytes_of(t))}, text
            assert matcher.is_accepting == (text.endswith(b"]") and text.count(b'"') % 2 == 0)
            for token in allowed:
                ahead = matcher.fork()
                ahead.advance(token)
                following[text + vocab.bytes_of(token)] = ahead
        level = list(following.items())
    assert states > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": STRINGS, "b": LISTS}, "additionalProperties": False},
        {"type": "object", "additionalProperties": STRINGS},
        {"type": "array", "items": STRINGS},
        {"anyOf": [{"type": "array", "items": STRINGS}, STRINGS]},
    ],
)
def test_every_short_text_of_the_grammar_is_judged_as_by_the_validator(schema: object) -> None:
    made = compiled(schema, small(b"{", b"}", b":", b"b", b'{"a":', b'{"b":["a","a"', b'{"b":[', b'["a","b"'))
    valid = validator(schema)
    ids = range(made.vocab.width - 1)
    level: dict[bytes, tuple[Matcher, Matcher | None]] = {b"": (made.inner.matcher(), made.matcher())}
    seen = {True: 0, False: 0}
    for _ in range(5):
        following: dict[bytes, tuple[Matcher, Matcher | None]] = {}
        for text, (matcher, own) in level.items():
            if own is not None:
                bits = masks.unpack(own.mask(), made.vocab.width).tolist()
                assert bits == [own.allows(token) for token in range(made.vocab.width)], text
            for token in (token for token in ids if matcher.allows(token)):
                longer = text + made.vocab.bytes_of(token)
                if longer in following:
                    continue
                ahead, filtered = matcher.fork(), None
                ahead.advance(token)
                if own is not None and own.allows(token):
                    filtered = own.fork()
                    filtered.advance(token)
                following[longer] = ahead, filtered
                if ahead.is_accepting and not _has_twins(longer):
                    good = valid(json.loads(longer))
                    assert made.accepts(longer) == good, longer
                    seen[good] += 1
        level = following
    assert min(seen.values()) > 3, seen


def _has_twins(text: bytes) -> bool:
    """Whether a name comes twice: a parser keeps the last, and the array of the first is kept in order all the same."""
    names = re.findall(rb'"([ab]*)":', text)
    return len(set(names)) < len(names)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.text(max_size=4) | st.sampled_from(["", "a", "ab", '"', '\\"', "\\", "é", "\x00", "]", ","])))
def test_strings_of_all_kinds(items: list[str]) -> None:
    assert compiled(STRINGS).accepts(json.dumps(items, ensure_ascii=False)) == (len(set(items)) == len(items))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text('a"\\[]{},:', max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\[:', max_size=2), inner),
    ),
    st.integers(0, 2**32),
)
def test_the_tracker_finds_the_first_repeated_string_however_the_text_is_cut(value: object, seed: int) -> None:
    """Where every array is one to be watched, its own strings count and no others."""
    tracker = UniqueTracker((Spot(names={}, other=0, items=(0,), unique=True, pointer="/x"),))
    rng = random.Random(seed)
    data = json.dumps(value, indent=rng.choice([None, 1])).encode()
    point: object = tracker.start
    at = 0
    while at < len(data) and isinstance(point, StringPosition):
        some = rng.randint(1, 6)
        point = (
            tracker.settle(found)
            if isinstance(found := tracker.feed(point, data[at : at + some]), StringPosition)
            else None
        )
        at += some
    assert isinstance(point, StringPosition) == _all_distinct(value)


def _all_distinct(value: object) -> bool:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    texts = [item for item in inner if isinstance(item, str)] if isinstance(value, list) else []
    return len(set(texts)) == len(texts) and all(map(_all_distinct, inner))


# What it tells


def test_the_refusal_names_the_item_and_the_place() -> None:
    matcher = after(compiled(RECORD), '{"a": ["abc","abc')
    told = matcher.explain(ord('"'))
    assert told.reason == 'the item "abc" is in the array already, and its items are unique'
    assert (told.member, told.rule, told.offset) == ("json_schema", "/properties/a", 0)
    with pytest.raises(TokenRefused, match='the item "abc" is in the array already'):
        matcher.advance(ord('"'))
    assert matcher.explain(0).reason.startswith("here the constraint requires")
    with pytest.raises(ValueError, match="is allowed"):
        matcher.explain(ord("d"))


def test_a_token_that_holds_several_items_is_blamed_at_the_quote_that_repeats() -> None:
    vocab = small()
    told = after(compiled(STRINGS, vocab), "[").explain(vocab.tokens.index(b'"a","a"'))
    assert (told.offset, told.rule) == (6, "/")


@pytest.mark.parametrize("kind", VOCABS)
@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRINGS | {"minItems": 3}, "", ["", "a", "b"]),
        (STRINGS | {"minItems": 3}, '["a","b","a', ["a", "b", "aa"]),
        (STRINGS | {"minItems": 2}, r'["\"","\"', ['"', '"a']),
        (CASES["a pattern"][0], "", ["A", "A0", "A1"]),
        (CASES["left out"][0], '["b","', ["b", "c"]),
    ],
)
def test_the_completion_repeats_nothing(kind: str, schema: dict, text: str, expected: list[str]) -> None:
    matcher = after(made := compiled(schema, VOCABS[kind]()), text)
    found = json.loads(text + made.vocab.decode(matcher.shortest_completion()).decode())
    assert len(set(found)) == len(found) == len(expected)
    assert sum(map(len, found)) == sum(map(len, expected))
    assert validator(schema)(found)


def test_many_items_complete() -> None:
    made = compiled(STRINGS | {"minItems": 500})
    found = json.loads(made.vocab.decode(made.matcher().shortest_completion()))
    assert len(set(found)) == len(found) == 500


def test_forced_text_leaves_the_end_of_an_item_open() -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": "^abc+$"}, "uniqueItems": True, "minItems": 2}
    matcher = after(compiled(schema, tokenizers.byte_level_vocab()), '["abc"')
    assert matcher.forced()
    assert after(compiled(schema), '["abc","').forced() == tuple(b"abc")


def test_rollback_over_the_end_and_over_items() -> None:
    matcher = after(compiled(STRINGS), '["a","a')
    matcher.rollback(1)
    matcher.advance(ord("b"))
    for byte in b'"]':
        matcher.advance(byte)
    matcher.advance(256)
    matcher.rollback(4)
    assert not matcher.is_finished
    assert matcher.allows(ord("a"))
    matcher.advance(ord("a"))
    assert not matcher.allows(ord('"'))
    assert np.array_equal(matcher.mask(), after(compiled(STRINGS), '["a","a').mask())


def test_a_vocabulary_in_which_strings_cannot_go_on_is_refused() -> None:
    with pytest.raises(VocabError, match="61"):
        compiled(STRINGS, Vocab.from_tokens([b'"', b"[", b"]", b",", b"ab", b"b", b""], eos_ids=[6]))
    with pytest.raises(VocabError, match="00 01"):
        compiled(CASES["a pattern"][0], small(*(bytes([byte]) for byte in b"AB01")))


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_model_that_would_repeat_itself_does_not(temperature: float) -> None:
    vocab = Vocab.bytes()
    wishes = np.full(vocab.width, -20, dtype=np.float32)
    for place, byte in enumerate(b'"a,]'):
        wishes[byte] = 3 - 2 * place
    model = FakeStepModel(lambda _: wishes, width=vocab.width, max_positions=400)
    engine = LocalEngine(name="rep", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode()))
    schema = STRINGS | {"minItems": 4, "maxItems": 4}
    result = espalier.LoadedEngine(engine).generate(
        "x", constraint=JsonSchema(schema), temperature=temperature, seed=1, max_tokens=200
    )
    assert result.verdict.valid is True
    assert len(set(result.parsed)) == 4
    if not temperature:
        assert result.parsed == ["", "a", "aa", "aaa"]


def test_a_string_that_a_token_had_begun_could_be_ended_as_an_earlier_one() -> None:
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), b',"a', b'b"', b""], eos_ids=[258])
    matcher = Compiler(vocab).compile(JsonSchema(STRINGS, whitespace="compact")).matcher()
    for token in (*b'["ab"', 256):
        matcher.advance(token)
    assert not masks.test(matcher.mask(), 257)
    assert masks.test(matcher.mask(), ord("b"))
    matcher.advance(ord("b"))
    assert not masks.test(matcher.mask(), ord('"'))


def test_a_completion_was_not_known_where_one_letter_more_leaves_the_string_open() -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": "^a(bb)*$"}, "uniqueItems": True}
    compiled = BYTES.compile(JsonSchema(schema, whitespace="compact"))
    assert isinstance(compiled, CompiledUniqueStrings)
    matcher = compiled.matcher()
    for byte in b'["a","a':
        matcher.advance(byte)
    assert BYTES.vocab.decode(matcher.shortest_completion()) == b'bb"]'


def test_a_string_that_a_token_with_an_escape_made_longer_could_be_ended_as_an_earlier_one() -> None:
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), b"a\\nb", b""], eos_ids=[257])
    matcher = Compiler(vocab).compile(JsonSchema(STRINGS, whitespace="compact")).matcher()
    for token in (*b'["xa\\nb","x', 256):
        matcher.advance(token)
    assert not masks.test(matcher.mask(), ord('"'))
    assert masks.test(matcher.mask(), ord("b"))
