"""The rules that a matcher explores on demand have the language of the grammar that is written out as a whole."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from random import Random
from typing import Any

import pytest

import espalier.automata.masks.shared as shared_parts
from espalier.automata.languages.network import build_network
from espalier.automata.languages.nfa import bytes_in
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.shared import SharedParts
from espalier.automata.masks.walker import Walker
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import warm_schemas
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.errors import Cancelled, EspalierError, LimitExceeded
from espalier.grammar.json_mode import JsonWhitespace
from espalier.schema.lazy.leaves import LeafCase
from espalier.schema.lazy.leaves import converted as convert_leaf
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.layout import layout
from espalier.schema.normal.expand import expand
from espalier.time_limit import time_limit
from espalier.tokens.mask import allowed_ids
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.fuzz.schema.schemas import HardMaker

BYTES = Compiler(Vocab.bytes())
WORDS = [
    '"',
    '",',
    '":',
    '": ',
    '{"',
    '"}',
    "}}",
    '{"a":',
    '", "',
    "ab",
    "tru",
    "null",
    "\\u00",
    "[[",
    "]]",
    ", ",
    "12",
    'a"',
    'a":',
    'b":"',
    'a":null,"a',
    ',"a',
    '},{"',
    "red",
    'd"}',
]


@cache
def small() -> Compiler:
    """Every byte, and tokens that cross the borders of values."""
    tokens = [*([bytes([b]) for b in range(256)]), *(word.encode() for word in WORDS), b""]
    return Compiler(Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1], name="small"))


def machines(
    schema: Any, compiler: Compiler, whitespace: JsonWhitespace = "natural", order: str = "schema"
) -> tuple[PushdownMachine, PushdownMachine] | None:
    """The eager and the lazy machine of a schema, None where it has no exact grammar."""
    try:
        with time_limit(3):
            form = expand(schema, order=order)
            found = convert(form, whitespace=whitespace)
            eager = build_network(found.grammar)
    except EspalierError as error:
        if not isinstance(error, LimitExceeded):
            with pytest.raises(type(error)):
                SchemaRules(expand(schema, order=order), layout(whitespace))
        return None
    rules = SchemaRules(form, layout(whitespace))
    if found.gaps:
        return None
    vocab, trie = compiler.vocab, compiler.trie
    lazy = PushdownMachine(LazyNetwork(rules.start), vocab, trie, shared=compiler.part(SharedParts))
    return PushdownMachine(eager, vocab, trie), lazy


def walk_both(eager: PushdownMachine, lazy: PushdownMachine, random: Random, *, steps: int, with_masks: bool) -> None:
    """Both machines along one random text; most steps lead towards the end."""
    one, other = eager.start, lazy.start
    text = bytearray()
    for _ in range(steps):
        reads = eager.options(one)[0]
        assert lazy.options(other)[0] == reads, bytes(text)
        assert lazy.accepts(other) == eager.accepts(one), bytes(text)
        assert lazy.least(other) == eager.least(one), bytes(text)
        if with_masks:
            assert bytes(lazy.mask(other)) == bytes(eager.mask(one)), bytes(text)
        if not reads:
            break
        ways = [(byte, eager.step(one, byte)) for byte in bytes_in(reads)]
        if random.random() < 0.5:
            least = min(eager.least(after) for _, after in ways if after is not None)
            ways = [(byte, after) for byte, after in ways if after is not None and eager.least(after) == least]
        byte, after = random.choice(ways)
        assert after is not None
        one = after
        followed = lazy.step(other, byte)
        assert followed is not None
        other = followed
        text.append(byte)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_random_schemas_have_one_language(seed: int) -> None:
    random = Random(seed)
    schema = HardMaker(random).document()
    found = machines(
        schema,
        small(),
        random.choice(["natural", "compact", "flexible", "indented"]),
        random.choice(["schema", "any", "any"]),
    )
    if found is not None:
        for turn in range(3):
            walk_both(*found, Random(turn), steps=60, with_masks=turn == 0)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_lists_of_values_have_one_language(seed: int) -> None:
    """Values that begin one another, that end alike and that do not, beside arrays, objects and long lists."""
    random = Random(seed)
    letters = random.choice(["ab", 'a"\\', "12", "é€\ud83d\ude00 "])

    def value() -> Any:
        text = "".join(random.choices(letters, k=random.randint(0, 4)))
        number = random.choice([random.randint(-3, 130), random.randint(0, 9) / 8])
        return random.choice([text, text, text, number, number, True, None, [text], {"a": text}])

    wanted = {"enum": [value() for _ in range(random.choice([1, 6, 40]))]}
    schema = random.choice([wanted, {"type": "array", "items": wanted}, {"properties": {"a": wanted, "ab": {}}}])
    found = machines(
        schema, small(), random.choice(["natural", "compact", "indented"]), random.choice(["schema", "any"])
    )
    assert found is not None
    for turn in range(4):
        walk_both(*found, Random(turn), steps=40, with_masks=turn < 2)


def test_of_a_long_list_of_words_a_text_stands_at_few_items() -> None:
    words = [f"word {number} of {number * 7919 % 5_000}" for number in range(5_000)]
    rules = SchemaRules(expand({"enum": words}), layout("natural"))
    place = rules.start
    for byte in json.dumps(words[4_321]).encode():
        after = place.step(byte)
        assert after is not None
        place = after
        assert len(place.core) <= 2
    assert place.is_over


SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "null"}, "ab": {}, 'q"t': {"type": "string", "maxLength": 3}}},
    {"type": "object", "properties": {"a": {}}, "required": ["a"], "maxProperties": 2, "minProperties": 2},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 5},
    {"type": "string", "minLength": 5, "maxLength": 300},
    {"type": "string", "pattern": "^[a-f]{2,40}$"},
    {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True},
    {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}, "minContains": 2, "maxContains": 3},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "v": {}}}}},
    {"type": "object", "patternProperties": {"^x": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"a": {}, "": {}}, "propertyNames": {"maxLength": 2}},
    {
        "type": "object",
        "properties": {name: {"type": "null"} for name in ("a", "b", "c")},
        "required": ["b"],
        "additionalProperties": False,
    },
    # Names that begin one another; the quotation mark that ends one comes before and after other characters.
    {
        "type": "object",
        "properties": {
            "a": {"type": "null"},
            "ab": {"type": "object", "properties": {"a b": {}}},
            "a!": {"enum": ["red", "re", "rod"]},
            "a b": {"type": "array"},
            "": True,
        },
    },
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["ab"],
        "properties": {
            "a": {"type": "object", "properties": {"b": {"const": {"a": ["red", 1]}}}},
            "ab": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "object"}}]},
        },
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize(("whitespace", "order"), [("natural", "schema"), ("indented", "any")])
def test_these_schemas_have_one_language(schema: Any, whitespace: JsonWhitespace, order: str) -> None:
    found = machines(schema, small(), whitespace, order)
    assert found is not None
    for turn in range(3):
        walk_both(*found, Random(turn), steps=80, with_masks=True)


def test_a_document_that_is_too_long_to_be_written_is_not_taken_for_none() -> None:
    levels: dict[str, Any] = {"a90": {"type": "null"}}
    for i in range(90):
        inner = {"$ref": f"#/$defs/a{i + 1}"}
        levels[f"a{i}"] = {"type": "object", "properties": {"l": inner, "r": inner}, "required": ["l", "r"]}
    matcher = BYTES.compile(JsonSchema({"$defs": levels, "$ref": "#/$defs/a0"})).matcher()
    assert matcher.allows(ord("{"))
    with pytest.raises(LimitExceeded, match="shortest completion"):
        matcher.shortest_completion()


def test_nothing_is_explored_that_no_text_reaches() -> None:
    names = [f"property{i}" for i in range(3_000)]
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 10_000} for name in names}}
    rules = SchemaRules(expand(schema), layout("natural"))
    lazy = PushdownMachine(LazyNetwork(rules.start), BYTES.vocab, BYTES.trie)
    state = lazy.start
    for byte in b'{"property2999": "abc':
        after = lazy.step(state, byte)
        assert after is not None
        state = after
    assert len(lazy.network.final) < 500


def test_an_undeclared_name_may_begin_as_a_declared_one() -> None:
    rules = SchemaRules(expand({"type": "object", "properties": {"name": {"type": "null"}}}), layout("compact"))
    lazy = PushdownMachine(LazyNetwork(rules.start), BYTES.vocab, BYTES.trie)

    def accepts(text: str) -> bool:
        state = lazy.start
        for byte in text.encode():
            after = lazy.step(state, byte)
            if after is None:
                return False
            state = after
        return lazy.accepts(state)

    assert accepts('{"name":null,"nam":1,"names":1}')
    assert not accepts('{"nam":1,"name":null}')
    assert not accepts('{"name":1}')


def test_memories_that_are_always_full_change_nothing() -> None:
    rules = SchemaRules(expand(SCHEMAS[0]), layout("natural"))
    vocab, trie = small().vocab, small().trie
    plain = PushdownMachine(LazyNetwork(rules.start), vocab, trie)
    full = PushdownMachine(
        LazyNetwork(rules.start),
        vocab,
        trie,
        max_interned=3,
        cache_bytes=1,
        parts_bytes=1,
        shared=SharedParts(vocab, trie),
    )
    walk_both(plain, full, Random(1), steps=60, with_masks=True)


NESTED: dict[str, Any] = {
    "$defs": {
        "t": {"type": "object", "properties": {name: {"$ref": "#/$defs/v"} for name in "abcdef"}},
        "v": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "string", "maxLength": 90}, {"type": "integer"}]},
    },
    "$ref": "#/$defs/t",
}


@pytest.mark.parametrize("schema", [*SCHEMAS, NESTED], ids=str)
def test_a_schema_that_meets_many_positions_forgets_them_and_goes_on(schema: Any) -> None:
    """Instead of LimitExceeded in the middle of a text; states that someone holds stay as they are."""
    vocab, trie = small().vocab, small().trie
    plain = PushdownMachine(LazyNetwork(SchemaRules(expand(schema, order="any"), layout("natural")).start), vocab, trie)
    rules = SchemaRules(expand(schema, order="any"), layout("natural"))
    network = LazyNetwork(rules.start, most=20)
    full = PushdownMachine(network, vocab, trie, shared=SharedParts(vocab, trie))
    for turn in range(3):
        walk_both(plain, full, Random(turn), steps=60, with_masks=True)


def test_positions_are_bounded_by_those_in_use() -> None:
    vocab, trie = small().vocab, small().trie
    names = "abcdefghijkl"
    form = expand({"type": "object", "properties": {name: {"type": "null"} for name in names}}, order="any")

    def met(most: int) -> tuple[int, int, list[bytes]]:
        network = LazyNetwork(SchemaRules(form, layout("compact")).start, most=most)
        machine = PushdownMachine(network, vocab, trie, shared=SharedParts(vocab, trie))
        found, random, table = [], Random(1), 0
        for _ in range(15):
            state = machine.start
            held = [state]
            for byte in ("{" + ",".join(f'"{name}":null' for name in random.sample(names, 12)) + "}").encode():
                after = machine.advance(state, byte)
                assert after is not None
                held.append(state := after)
                found.append(bytes(machine.mask(state)))
            assert machine.accepts(state)
            assert [bytes(machine.mask(one)) for one in held[1:]] == found[1 - len(held) :]
            table = max(table, len(network.places[network.start].explored))
        return len(network.places), table, found

    plain, forgetting = met(1_000_000), met(400)
    assert forgetting[2] == plain[2]
    assert forgetting[0] < 1_000 < plain[0], (forgetting[:2], plain[:2])
    assert forgetting[1] < plain[1] / 2, (forgetting[:2], plain[:2])


def test_threads_share_one_compiled_schema() -> None:
    compiler = Compiler(small().vocab)
    compiled = [compiler.compile(JsonSchema(schema)) for schema in SCHEMAS[:5]]

    def masks_along(seed: int) -> list[bytes]:
        found = []
        for one in compiled:
            matcher, random = one.matcher(), Random(seed % 3)
            for _ in range(25):
                mask = matcher.mask()
                found.append(mask.tobytes())
                allowed = allowed_ids(mask, compiler.vocab.width).tolist()
                if not allowed or matcher.is_finished:
                    break
                matcher.advance(random.choice(allowed))
        return found

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(masks_along, range(18)))
    alone = Compiler(small().vocab)
    compiled = [alone.compile(JsonSchema(schema)) for schema in SCHEMAS[:5]]
    assert all(one == masks_along(seed) for seed, one in enumerate(found))


def test_large_counts_share_what_they_allow() -> None:
    """Far from its bounds, a string with a length allows the tokens of any string, from the same part."""
    shared = SharedParts(small().vocab, small().trie)
    rules = [SchemaRules(expand({"type": "string", "maxLength": n}), layout("natural")) for n in (5_000, 9_000)]
    found = []
    for one in rules:
        machine = PushdownMachine(LazyNetwork(one.start), small().vocab, small().trie, shared=shared)
        state = machine.start
        for byte in b'"abc':
            after = machine.step(state, byte)
            assert after is not None
            state = after
        found.append(machine.mask(state))
    assert found[0] is found[1]


def test_a_new_length_meets_no_new_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new count of an exact length made a position for each character that a token could still hold, 20 ms of
    them at a time: what a schema does to the next one is now a join of levels of the trie."""
    tokens = [*small().vocab.tokens[:256], *(("é'" * count).encode() for count in range(1, 13)), b""]
    compiler = Compiler(Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1], name="long"))
    warm_schemas(compiler)
    made: list[int] = []
    walk = Walker.walk

    def counted(self: Walker, rows: Any, *given: Any, **named: Any) -> Any:
        before = len(rows.states)
        found = walk(self, rows, *given, **named)
        made.append(len(rows.states) - before)
        return found

    monkeypatch.setattr(Walker, "walk", counted)
    for length in (20, 36, 500):
        matcher = compiler.compile(JsonSchema({"minLength": length, "maxLength": length, "type": "string"})).matcher()
        for byte in b'"' + b"a" * length + b'"':
            matcher.mask()
            matcher.advance(byte)
        assert matcher.is_accepting
    assert sum(made) < 100, "it was 4,500"


def items_at_least(count: int) -> LazyNetwork:
    return LazyNetwork(LoweredSchema(JsonSchema({"items": {"type": "integer"}, "minItems": count})).start())


def test_a_position_is_not_worked_out_before_a_text_reaches_it() -> None:
    """`minItems: 10000` kept its lock for half a second while the calls of all positions to come were worked out."""
    counts = []
    for count in (10, 1_000):
        network = items_at_least(count)
        network.follow_calls(network.start)
        network.meet(network.start)
        machine = PushdownMachine(network, BYTES.vocab, BYTES.trie)
        state = machine.start
        for byte in b"[12,3":
            after = machine.step(state, byte)
            assert after is not None
            state = after
        counts.append(len(network.places))
    assert counts[0] == counts[1] < 60


def test_an_interrupted_walk_leaves_no_position_half_worked_out() -> None:
    """A step that ran out of time left positions behind whose calls led nowhere, for all later texts of the schema."""
    whole = PushdownMachine(items_at_least(100), BYTES.vocab, BYTES.trie)
    network = items_at_least(100)
    machine = PushdownMachine(network, BYTES.vocab, BYTES.trie)
    interrupted = 0
    for most in range(1, 10_000):
        left = iter(range(most))
        try:
            with time_limit(None, cancelled=lambda left=left: next(left, None) is None):
                machine.mask(machine.start)
        except Cancelled:
            interrupted += 1
        else:
            break
    assert interrupted
    state, other = machine.start, whole.start
    for byte in b"[12,3,4]"[:-1]:
        assert machine.mask(state).tobytes() == whole.mask(other).tobytes()
        after, also = machine.step(state, byte), whole.step(other, byte)
        assert after is not None
        assert also is not None
        state, other = after, also


COUNTED = [
    {"type": "string", "minLength": 5, "maxLength": 9},
    {"type": "string", "minLength": 7},
    {"type": "string", "maxLength": 40},
    {"type": "string", "pattern": "^[a-c]{2,9}[b-d]{0,7}x$"},
    {"type": "string", "pattern": "^(ab|a|bä){4,6}(c[0-9]{4,8}){0,5}$"},
    {"type": "string", "pattern": "^([a-c]{4,5}, ){4,5}"},
    {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$"},
    {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 9},
]


@pytest.mark.parametrize("schema", COUNTED, ids=str)
def test_counted_repetitions_have_the_masks_of_their_positions(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted by nodes of the trie allows what a walk through a position for each count allows."""
    vocab, trie = small().vocab, small().trie
    rng = Random(5)
    counted, plain = [
        PushdownMachine(LazyNetwork(LoweredSchema(JsonSchema(schema)).start()), vocab, trie, shared=shared)
        for shared in (SharedParts(vocab, trie), SharedParts(vocab, trie))
    ]
    for _ in range(examples(8)):
        state, other = counted.start, plain.start
        for _ in range(25):
            mask = counted.mask(state)
            with monkeypatch.context() as patched:
                patched.setattr(shared_parts, "MIN_COUNT", 1 << 60)
                assert mask.tobytes() == plain.mask(other).tobytes()
            if not (ids := allowed_ids(mask, vocab.width).tolist()):
                break
            token = rng.choice(ids)
            after, also = counted.advance(state, token), plain.advance(other, token)
            assert after is not None
            assert also is not None
            state, other = after, also


def test_rules_with_names_convert_equal_strings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def converted(case: LeafCase, keyword: str) -> Any:
        seen.append(case)
        return convert_leaf(case, keyword)

    monkeypatch.setattr("espalier.schema.lazy.rules.converted", converted)
    dates = {f"d{i}": {"type": "string", "format": "date-time"} for i in range(20)}
    schema = {"type": "object", "properties": dates | {"n": {"type": "integer"}}, "additionalProperties": False}
    rules = LoweredSchema(JsonSchema(schema, format="assert")).named_rules()
    assert len(seen) == len(set(seen)) == 2
    assert not rules.gaps
