"""Completions that repeat no item: which are found, in how many tries, and within how many tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import tests.tokenizers as tokenizers
from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.matching.closing import by_trying
from espalier.constraints.unique import search
from espalier.constraints.unique.arrays import unique_spots
from espalier.constraints.unique.matcher import _strings
from espalier.constraints.unique.search import CompletionSearch, GaveUp
from espalier.constraints.unique.spots import Spot
from espalier.constraints.unique.string_matcher import UniqueMatcher
from espalier.constraints.unique.string_tracker import UniqueTracker
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.constraints.watching import RepeatedItem
from espalier.errors import NotAvailable
from espalier.schema.normal.expand import expand
from espalier.time_limit import OutOfTime, time_limit
from espalier.tokens import mask as masks
from tests.laws import matcher_after
from tests.oracle import validator

BYTES = Compiler(Vocab.bytes())
PIECES = Compiler(tokenizers.byte_level_vocab())
FEW = {"type": "integer", "minimum": 0, "maximum": 50}
BITS = {
    "type": "object",
    "properties": {"a": {"enum": [0, 1]}, "b": {"enum": [0, 1]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def search_of(items: Any, *, fresh: bool = False, listed: tuple[bytes, ...] = (), **more: Any) -> CompletionSearch:
    """Completions of an array whose items must differ, over an automaton that does not ask so."""
    inner = BYTES.compile(JsonSchema({"type": "array", "items": items} | more, whitespace="compact"))
    assert isinstance(inner, CompiledAutomaton)
    array = Spot(names={}, other=1, items=(1,), unique=True, pointer="/x", fresh=(fresh,), listed=(listed,))
    tracker = DocumentTracker((array, Spot(names={}, other=1, items=(1,))))
    return CompletionSearch(inner.machine, inner.ends, inner.vocab.bytes_of, tracker)


def found(completions: CompletionSearch, text: str = "", **how: bool) -> bytes | None:
    state: Any = completions._machine.start
    for byte in text.encode():
        state = completions._machine.step(state, byte)
    point = completions._tracker.feed(completions._tracker.start, text.encode())
    return completions.find(state, point, **how)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each completion that is tried."""
    tried: list[None] = []
    real: Callable[..., Any] = CompletionSearch._try_lead

    def count(*given: Any) -> Any:
        tried.append(None)
        return real(*given)

    monkeypatch.setattr(CompletionSearch, "_try_lead", count)
    return tried


@pytest.mark.parametrize(
    ("items", "text", "least", "completion", "most_tries"),
    [
        (FEW, "", 0, "[]", 1),
        (FEW, "[5", 0, "]", 1),
        (FEW, "[5,", 0, "0]", 1),
        (FEW, "[0,", 0, "1]", 2),
        (FEW, "", 2, "[0,1]", 2),
        (FEW, "", 4, "[0,1,5,6]", 7),
        (FEW, "[1,1", 0, "0]", 2),
        ({"type": "boolean"}, "", 2, "[true,false]", 2),
        ({"enum": ["ab", "ac", "b"]}, "", 3, '["b","ac","ab"]', 5),
        ({"type": "string", "maxLength": 1}, "", 3, '[""," ","\\""]', 4),
        (BITS, "", 3, '[{"a":0,"b":0},{"a":0,"b":1},{"a":1,"b":0}]', 4),
        (BITS, '[{"a":0,"b":0},{"a":0', 0, ',"b":1}]', 2),
        ({"enum": [1, 2]}, "", 3, None, 6),
        ({"enum": [1, 2]}, "[1,2,", 0, None, 3),
    ],
)
def test_a_completion_leaves_the_shortest_one_at_the_last_byte_that_helps(
    tries: list[None], items: Any, text: str, least: int, completion: str | None, most_tries: int
) -> None:
    completions, expected = search_of(items, minItems=least), None if completion is None else completion.encode()
    for near in (False, True):  # no item is sure to differ, so that the search near one is the same
        tries.clear()
        assert found(completions, text, near=near) == expected
        assert len(tries) <= most_tries


def test_the_items_that_a_schema_lists_are_tried_as_a_whole(tries: list[None]) -> None:
    values = [f"aaaa{letter}" for letter in "bcdefgh"]
    listed = tuple(f'"{value}"'.encode() for value in values)
    whole = found(search_of({"enum": values}, listed=listed, minItems=7))
    assert whole is not None
    assert sorted(json.loads(whole)) == values
    with_list = len(tries)
    tries.clear()
    assert found(search_of({"enum": values}, minItems=7)) is not None
    assert with_list <= len(tries)


def test_near_an_item_that_is_sure_to_differ_the_search_is_over(tries: list[None]) -> None:
    assert found(search_of(FEW, fresh=True, minItems=2), near=True) == b"["
    assert found(search_of(FEW, fresh=True), "[1,", near=True) == b""
    assert found(search_of(FEW, fresh=True, minItems=9), "[1,2", near=True) == b","
    assert found(search_of(FEW, fresh=True, minItems=2), "[0,", near=False) == b"1]"


@pytest.mark.parametrize(
    ("most", "an_item", "in_all", "is_patient", "expected"),
    [(20, 0, 10**6, False, 20), (20, 4, 10**6, False, 20 + 4 * 3), (1000, 0, 20, True, 20)],
)
def test_a_search_gives_up_after_so_many_tries(
    tries: list[None],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    an_item: int,
    in_all: int,
    is_patient: bool,
    expected: int,
) -> None:
    for name, value in (("TRIES", most), ("TRIES_AN_ITEM", an_item), ("MOST_TRIES", in_all)):
        monkeypatch.setattr(search, name, value)
    with pytest.raises(GaveUp):
        found(search_of(FEW, minItems=60), "[1,2,3,", patient=is_patient)
    assert len(tries) == expected + 2, "the shortest completion, and the one that is too many"


def test_a_patient_search_goes_on_as_long_as_less_is_left(tries: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 20)
    monkeypatch.setattr(search, "TRIES_AN_ITEM", 0)
    completions = search_of(FEW, minItems=30)
    with pytest.raises(GaveUp):
        found(completions)
    assert len(tries) == 22
    tries.clear()
    with pytest.raises(GaveUp):
        found(completions, patient=True)
    assert 2 * 22 < len(tries) < search.MOST_TRIES


def test_the_first_completion_of_a_document_is_sought_with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 20)
    monkeypatch.setattr(search, "TRIES_AN_ITEM", 0)
    with pytest.raises(GaveUp):
        found(search_of(FEW, minItems=12))
    schema = {"type": "array", "items": FEW, "uniqueItems": True, "minItems": 12}
    assert BYTES.compile(JsonSchema(schema, whitespace="compact")).matcher().allows(ord("["))


def test_the_time_limit_of_a_request_holds_while_a_completion_is_sought() -> None:
    with pytest.raises(OutOfTime), time_limit(0.0):
        found(search_of(FEW, minItems=4))


def test_a_completion_is_known_once_and_those_of_too_many_states_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_KNOWN", 3)
    completions: Any = search_of({"type": "string", "maxLength": 9})
    state: Any = completions._machine.start
    for length, byte in enumerate(b'["abcdef'):
        assert completions.plainest(state) == (b"[]" if length == 0 else b"]" if length == 1 else b'"]')
        assert len(completions.plainest._answers) <= 3
        state = completions._machine.step(state, byte)


@pytest.mark.parametrize(
    ("way", "rest", "others"),
    [
        ('"]', "", []),
        ('ab"]', "ab", []),
        ('a\\"b","c"]', 'a\\"b', ["c"]),
        ('","a","b\\\\"]', "", ["a", "b\\\\"]),
        ("abc", "abc", []),
        ('":{"x\\"":"y"}}', "", ['x\\"', "y"]),
    ],
)
def test_the_strings_of_a_completion_are_told_apart(way: str, rest: str, others: list[str]) -> None:
    assert _strings(way.encode()) == (rest.encode(), [other.encode() for other in others])


STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LIMITED = {
    "strings": (STRINGS | {"minItems": 3}, ["", "[", '["', '["a","a', '["","a","', '["a",']),
    "strings with a pattern": (
        {"type": "array", "items": {"type": "string", "pattern": "^b*$"}, "uniqueItems": True, "minItems": 3},
        ["", '["b","', '["b","","b'],
    ),
    "strings of pairs of letters": (
        {"type": "array", "items": {"type": "string", "pattern": "^(ab|cd)*$"}, "uniqueItems": True, "minItems": 3},
        ["", '["', '["ab","', '["","ab","a'],
    ),
    "strings in an object": (
        {"type": "object", "properties": {"t": STRINGS | {"minItems": 2}}, "required": ["t"]},
        ["", '{"t":["', '{"t":["","'],
    ),
    "integers": (
        {"type": "array", "items": FEW, "uniqueItems": True, "minItems": 3},
        ["", "[", "[1,", "[0,1,", "[1,2,1"],
    ),
    "strings or null": (
        {"type": "array", "items": {"type": ["string", "null"], "maxLength": 2}, "uniqueItems": True, "minItems": 2},
        ['["', '["","', "[null,", '["a","a'],
    ),
    "records": ({"type": "array", "items": BITS, "uniqueItems": True, "minItems": 2}, ["[", '[{"a":0,"b":0},{"a":']),
    "named records": (
        {"type": "array", "items": {**BITS, "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y"]}}},
         "uniqueItems": True},
        ['[{"a":"', '[{"a":"","b":"x"},{"a":"', '[{"a":"k","b":"x"},{"a":"k","b":"',
         '[{"a":"k","b":"x"},{"a":"l","b":"'],
    ),
    "anything simple": (
        {"type": "array", "items": {"type": ["string", "integer", "boolean", "null"]}, "uniqueItems": True},
        ["[", '["a",1,true,', '["a",1,true,n', '["a","', '["a","ab","a', "[12,0,-"],
    ),
    "lists of what differs": (
        {"type": "array", "uniqueItems": True,
         "items": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
        ["[", "[[", "[[],[", "[[],[1],[1,", "[[1,2],[1,2"],
    ),
    "a list in an object": (
        {"type": "object", "required": ["a", "b"], "additionalProperties": False,
         "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": FEW, "uniqueItems": True}}},
        ["", '{"a":"x', '{"a":"","b":[', '{"a":"","b":[1,'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("compiler", [BYTES, PIECES], ids=["bytes", "pieces"])
@pytest.mark.parametrize("name", LIMITED)
def test_within_a_limit_of_tokens_what_is_left_open_can_be_closed(name: str, compiler: Compiler) -> None:
    """`closing` allows exactly the tokens after which `within` knows an end that repeats nothing."""
    schema, texts = LIMITED[name]
    made = compiler.compile(JsonSchema(schema, whitespace="compact"))
    is_valid = validator(schema)
    for text in texts:
        matcher: Any = matcher_after(made, text)
        whole = matcher.shortest_completion()
        assert is_valid(json.loads(text.encode() + made.vocab.decode(whole)))
        loose = next((most for most in range(1, 200) if matcher.is_loose(most)), 1)
        for most in sorted({1, 2, max(1, len(whole) - 1), len(whole), len(whole) + 2, loose}):
            within = matcher.within(most)
            assert within is not None or most < len(whole)
            if within is not None:
                assert len(within) <= most
                assert is_valid(json.loads(text.encode() + made.vocab.decode(within)))
            one_by_one = by_trying(matcher, most, made.vocab.width)
            assert (matcher.closing(most) == one_by_one).all(), (text, most)
            if matcher.is_loose(most):
                assert (one_by_one == matcher.mask()).all(), (text, most)


def test_a_token_that_ends_a_string_as_an_earlier_one_was_allowed_beside_another_such_token() -> None:
    """Of an array whose completion must be sought, where the tokens that end its strings alike are asked together."""
    vocab = Vocab.from_tokens([b'b"', *(bytes((byte,)) for byte in range(256)), b""], eos_ids=[257])
    schema = {"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "minItems": 3}
    mask = matcher_after(Compiler(vocab).compile(JsonSchema(schema, whitespace="compact")), '["a","a').mask()
    assert [masks.test(mask, vocab.tokens.index(data)) for data in (b'b"', b'"', b"b")] == [True, False, True]


def test_a_token_that_ends_a_string_was_said_to_close_what_another_such_token_closes() -> None:
    """After `"` comes another empty string within the limit, which repeats; after `a"` it does not."""
    vocab = Vocab.from_tokens([b'a"', *(bytes((byte,)) for byte in range(256)), b',""]', b""], eos_ids=[258])
    schema = {"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True, "minItems": 2}
    matcher: Any = matcher_after(Compiler(vocab).compile(JsonSchema(schema, whitespace="compact")), '["')
    for most in range(1, 12):
        assert (matcher.closing(most) == by_trying(matcher, most, vocab.width)).all(), most


def test_a_position_that_ended_needs_nothing_more() -> None:
    for schema in (STRINGS, {"type": "array", "items": FEW, "uniqueItems": True}):
        made = BYTES.compile(JsonSchema(schema, whitespace="compact"))
        matcher: Any = matcher_after(made, "[]")
        matcher.advance(made.vocab.eos_ids[0])
        assert matcher.within(3) == ()
        assert matcher.shortest_completion() == ()
        assert matcher.is_loose(3)
        assert not matcher.closing(3).any()


ODD = ["^[а-я]+$", "^(ab|cd)*$", "^[0-9]{2}(-[0-9]{2})*$", r"^\\]*$", '^(é|")*$']
"""Patterns of strings that one letter or sign does not make longer."""


@pytest.mark.parametrize("pattern", ODD)
def test_no_completion_was_known_of_strings_that_a_single_letter_does_not_make_longer(pattern: str) -> None:
    """So that under a token limit nothing could come at all."""
    schema = {"type": "array", "items": {"type": "string", "pattern": pattern}, "uniqueItems": True, "minItems": 3}
    matcher: Any = BYTES.compile(JsonSchema(schema)).matcher()
    assert isinstance(matcher, UniqueMatcher)
    shortest = matcher.shortest_completion()
    assert validator(schema)(json.loads(BYTES.vocab.decode(shortest)))
    left, rng, text = len(shortest) + 3, random.Random(pattern), b""
    while not matcher.is_finished:
        some = masks.allowed_ids(matcher.closing(left), BYTES.vocab.width).tolist()
        assert some, text
        token = rng.choice(some)
        matcher.advance(token)
        text, left = text + BYTES.vocab.bytes_of(token), left - 1
    assert validator(schema)(json.loads(text))


def test_where_a_search_gives_up_no_completion_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": ODD[0]}, "uniqueItems": True, "minItems": 3}
    monkeypatch.setattr(search, "TRIES", 0)
    monkeypatch.setattr(search, "TRIES_AN_ITEM", 0)
    matcher = BYTES.compile(JsonSchema(schema)).matcher()
    with pytest.raises(NotAvailable, match="no completion was found that repeats no item"):
        matcher.shortest_completion()
    assert matcher.allows(ord("["))


LISTS = {"type": "array", "items": {"type": "string"}}
IN_OTHERS = {
    "type": "object",
    "properties": {
        "a": STRINGS,
        "b": LISTS,
        "c": {"type": "object", "properties": {"d": STRINGS}},
        "f": {"type": "array", "prefixItems": [LISTS, STRINGS, STRINGS], "items": LISTS},
    },
}


@pytest.mark.parametrize(
    ("text", "is_repeated"),
    [
        ('{"a": ["x", "yz"], "b": ["x", "x"], "c": {"d": ["", "x"], "e": "y"}, "a": ["x"]}', False),
        ('{"f": [["x", "x"], ["x", "y"], ["y"], ["x", "x"], ["y", "y"]], "g": ["a", "a"]}', False),
        ('{"f": [[], ["x"], ["x", "\\"", "\\""]]}', True),
        ('{"f": [[], ["x", "y", "x"]]}', True),
        ('{"b": ["a", "a"], "c": {"d": [], "d": ["a", "b", "a"]}}', True),
    ],
)
def test_a_tracker_of_strings_says_the_same_as_one_of_all_items(text: str, is_repeated: bool) -> None:
    spots = unique_spots(expand(IN_OTHERS))
    assert spots is not None
    strings, items, data = UniqueTracker(spots), DocumentTracker(spots), text.encode()
    for end in range(len(data) + 1):
        point, other = strings.feed(strings.start, data[:end]), items.feed(items.start, data[:end])
        if isinstance(other, RepeatedItem):
            assert is_repeated
            assert point == other._replace(item=other.item[1:-1])
            return
        assert strings.in_string(point) == items.in_string(other)
        assert strings.is_idle(point) == items.is_idle(other)
        assert strings.count(point) == items.count(other)
    assert not is_repeated


@pytest.mark.parametrize(
    ("kind", "least", "limits"),
    [
        ("bytes", 0, [10, 13, 27, 31, 38, 38]),
        ("bytes", 5, [84, 79, 94, 64, 38, 113]),
        ("pieces", 2, [35, 31, 49, 34, 48, 69]),
        ("pieces", 9, [159, 153, 170, 137, 48, 216]),
    ],
)
def test_from_so_many_tokens_on_a_limit_is_nothing_to_strings(kind: str, least: int, limits: list[int]) -> None:
    """Letters that make the strings of a completion differ are within it as well."""
    made = {"bytes": BYTES, "pieces": PIECES}[kind].compile(
        JsonSchema(STRINGS | {"minItems": least}, whitespace="compact")
    )
    items = '","'.join(map(str, range(40)))
    texts = ["", "[", '["', '["a","b","', f'["{items}","', '["' + "a" * 200]
    matchers: list[Any] = [matcher_after(made, text) for text in texts]
    assert [next(most for most in range(1, 400) if matcher.is_loose(most)) for matcher in matchers] == limits


def test_the_token_of_most_letters_that_ends_a_string_is_refused_where_it_repeats_one() -> None:
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), b'abc"', b""], eos_ids=[257])
    made = Compiler(vocab).compile(JsonSchema(STRINGS, whitespace="compact"))
    for text, is_allowed in (('["abc","', False), ('["abc","a', True), ('["zabc","', True), ('["zabc","z', False)):
        matcher = matcher_after(made, text)
        assert masks.test(matcher.mask(), 256) == matcher.allows(256) == is_allowed


def test_another_byte_is_tried_where_the_first_repeats_what_is_fixed_after_it() -> None:
    def names(last: str) -> dict[str, Any]:
        first = [{"const": "a"}, {"type": "string", "pattern": "^[abc]$"}]
        return {"type": "array", "prefixItems": [*first, {"const": last}], "items": False, "uniqueItems": True}

    for last, left in (("b", b"c"), ("c", b"b")):
        compiled = BYTES.compile(JsonSchema(names(last) | {"minItems": 3}, whitespace="compact"))
        completion = b"".join(map(compiled.vocab.bytes_of, compiled.matcher().shortest_completion()))
        assert completion == b'["a","%s","%s"]' % (left, last.encode())
