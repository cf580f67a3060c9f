"""What tokens can do to the open item of an array with unique items, and how many values it may still become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.unique.endings import ItemEnding, OpenItems
from espalier.constraints.unique.groups import TokenGroup, _plain_texts
from espalier.constraints.unique.matcher import CompiledUniqueItems, ItemsMatcher, TrackedPosition, _show_item
from espalier.constraints.unique.room import ENDLESS, MOST_LETTERS, NUMBERS, ItemRoom, _places, find_room
from espalier.constraints.unique.string_matcher import QuoteTokens
from espalier.constraints.unique.structure import BEFORE, Marks, RepeatedStrings, StructuralTokens
from espalier.constraints.unique.values import added, is_among
from espalier.constraints.watching import RepeatedItem
from espalier.errors import LimitExceeded
from espalier.tokens import mask as masks

BYTES = Compiler(Vocab.bytes())
PIECES = Compiler(tokenizers.byte_level_vocab())
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
FEW = {"type": "integer", "minimum": 0, "maximum": 50}
RECORD = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 4}, "n": FEW},
    "required": ["a", "n"],
    "additionalProperties": False,
}
MAP = {"type": "object", "additionalProperties": STRING}


def matcher_of(items: Any, text: str, compiler: Compiler) -> tuple[CompiledUniqueItems, ItemsMatcher]:
    """A matcher of arrays of such unique items, after a text."""
    spec = JsonSchema({"type": "array", "items": items, "uniqueItems": True}, whitespace="compact")
    compiled = compiler.compile(spec)
    assert isinstance(compiled, CompiledUniqueItems)
    matcher = compiled.matcher()
    for token in compiled.inner.trie.segment(text.encode()) or ():
        matcher.advance(token)
    return compiled, matcher


DIGITS = ItemRoom(NUMBERS, is_number=True)
STRING_OR_NUMBER = {"type": ["string", "integer"], "maxLength": 5}


@pytest.mark.parametrize(
    ("items", "text", "room"),
    [
        (INTEGER, "[", DIGITS),
        (INTEGER, "[1,", DIGITS),
        (INTEGER, "[1", DIGITS),
        (INTEGER, "[-", DIGITS),
        ({"type": "number"}, "[1.5", DIGITS),
        ({"type": "number"}, "[1e5", ItemRoom()),  # too large a number is no float
        ({"type": "integer", "maximum": 500, "minimum": 0}, "[1", ItemRoom()),
        ({"type": "integer", "maximum": 10500, "minimum": 0}, "[", ItemRoom()),  # 10 goes on otherwise than 11 to 19
        ({"enum": [*range(30)]}, "[1", ItemRoom()),
        (STRING_OR_NUMBER, '["', ItemRoom(5)),
        (STRING_OR_NUMBER, '["ab', ItemRoom(3)),
        (STRING_OR_NUMBER, '["ab\\', ItemRoom(2)),
        ({"type": "string", "minLength": 2, "maxLength": 20}, '["', ItemRoom(18)),
        ({"type": "string", "maxLength": MOST_LETTERS + 9}, '["', ItemRoom(MOST_LETTERS)),
        (RECORD, "[", ItemRoom()),
        (RECORD, '[{"a":"', ItemRoom(4)),
        (RECORD, '[{"a":"abc', ItemRoom(1)),
        (RECORD, '[{"a":"","n":1', ItemRoom()),
        ({"type": "array", "items": INTEGER}, "[", ItemRoom()),
        ({"type": "array", "items": INTEGER}, "[[", DIGITS),
        ({"type": "array", "items": INTEGER, "maxItems": 1}, "[[1", DIGITS),
        (MAP, "[{", ItemRoom()),
        (MAP, '[{"a', ItemRoom(ENDLESS)),
        (MAP, '[{"a":', ItemRoom(ENDLESS)),
        (MAP, '[{"a":"x\\', ItemRoom(ENDLESS)),
    ],
)
def test_so_many_values_may_the_open_item_still_become(items: Any, text: str, room: ItemRoom) -> None:
    compiled, matcher = matcher_of(items, text, BYTES)
    item = compiled.tracker.open_item(matcher._held[-1].point)
    assert item is not None
    assert compiled.groups.room(matcher._inner.state, item) == room


@pytest.mark.parametrize(
    ("rest", "depth", "in_string", "is_escaped", "places"),
    [
        ("1]", 0, False, False, [(0, False)]),
        ('abc"]', 0, True, False, [(0, True), (1, True), (2, True), (3, True)]),
        ('b\\"c"]', 0, True, False, [(0, True), (1, True), (3, True), (4, True)]),
        ('"b"]', 0, True, True, [(1, True), (2, True)]),
        ('b"},{"n":1}]', 1, True, False, [(0, True), (1, True)]),
        ('","n":12}]', 1, True, False, [(0, True), (6, False)]),
        ('a":"b"}]', 1, True, False, [(4, True), (5, True)]),
        ("[1,[2]],3]", 0, False, False, [(0, False), (1, False), (4, False)]),
        ("[[1],2],3]", 0, False, False, [(0, False), (2, False), (5, False)]),
        ('{"a":[1,{"b":-2}]},5]', 0, False, False, [(0, False), (6, False), (13, False)]),
        ("}]", 1, False, False, [(0, False)]),
        (",5]", 0, False, False, [(0, False)]),
        ("true]", 0, False, False, [(0, False)]),
        ('"a" : "b"}', 1, False, False, [(0, False), (7, True), (8, True)]),
        ("-5,6", 0, False, False, [(0, False)]),
        (",5,true],8]", 1, False, False, [(0, False), (1, False)]),
    ],
)
def test_an_item_can_become_longer_in_its_strings_and_numbers(
    rest: str, depth: int, in_string: bool, is_escaped: bool, places: list[tuple[int, bool]]
) -> None:
    assert [*_places(rest.encode(), depth, in_string=in_string, is_escaped=is_escaped)] == places


def test_of_an_item_that_no_completion_is_known_of_no_room_is_known() -> None:
    compiled, matcher = matcher_of(INTEGER, "[1", BYTES)
    assert (
        find_room(
            compiled.inner.machine, lambda state: None, matcher._inner.state, depth=0, in_string=False, is_escaped=False
        )
        == ItemRoom()
    )


TOKENS = {
    b'"': ["", "ENDS_STRING", ""],
    b'a"': ["", "ENDS_STRING", "ENDS_STRING"],
    b'\\"': ["", "", "ENDS_STRING"],
    b"],": ["CLOSES GOES_ON COMMA", "", ""],
    b"]} \n": ["CLOSES", "", ""],
    b'"]': ["", "ENDS_STRING CLOSES", ""],
    b'", [': ["", "ENDS_STRING COMMA OPENS", ""],
    b'": [1]': ["", "ENDS_STRING OPENS CLOSES", ""],
    b'"]["': ["", "ENDS_STRING CLOSES GOES_ON OPENS", "OPENS CLOSES GOES_ON"],
    b"1e": ["EXPONENT", "", ""],
    b"E5": ["EXPONENT", "", ""],
    b"te": ["", "", ""],
    b"[{": ["OPENS", "", ""],
    b"{": ["", "", ""],
    b"}": ["CLOSES", "", ""],
    b'"a"': ["ENDS_STRING", "ENDS_STRING", "ENDS_STRING"],
    b"x": ["", "", ""],
    b'\\\\"]': ["", "ENDS_STRING CLOSES", ""],
}
"""What each token does outside a string, in one, and in one after a backslash; what is in a string does nothing."""


def vocab_of_tokens() -> Vocab:
    more = [token for token in TOKENS if len(token) > 1]
    return Vocab.from_tokens(
        [*(bytes((byte,)) for byte in range(256)), *more, b""], eos_ids=[256 + len(more)], special_ids={}
    )


def marks(names: str) -> int:
    return sum(int(Marks[name]) for name in names.split())


@pytest.mark.parametrize("data", [token for token in TOKENS if token != b'"]["'], ids=repr)
def test_what_a_token_does_to_the_structure_depends_on_what_is_open(data: bytes) -> None:
    vocab = vocab_of_tokens()
    tokens = Compiler(vocab).part(StructuralTokens)
    token = vocab.tokens.index(data)
    assert len(BEFORE) == 3
    for place, names in enumerate(TOKENS[data]):
        assert int(tokens.marks[place, token]) == marks(names), BEFORE[place]
        for mark in Marks:
            is_marked = tokens.marked(
                np.array([token], dtype=np.int32), mark, in_string=place > 0, is_escaped=place == 2
            )
            assert is_marked.tolist() == [bool(marks(names) & mark)]


def test_a_token_is_known_by_what_follows_its_first_quotation_mark() -> None:
    vocab = vocab_of_tokens()
    tokens = Compiler(vocab).part(StructuralTokens)

    def tail(data: bytes) -> bytes | None:
        number = tokens.tail[vocab.tokens.index(data)]
        return None if number < 0 else tokens.tails[number]

    assert tokens.tails[0] == b""
    assert len(set(tokens.tails)) == len(tokens.tails)
    ends = {b"x": b"", b"],": b"", b'a"': b'"', b'"]': b'"]', b'": [1]': b'": [1]', b"\\": b"", b'"a"': b'"a"'}
    assert {data: tail(data) for data in ends} == ends
    assert tail(b'\\"') is None, "an escape may come first"
    assert tail(b'\\\\"]') is None
    assert tokens.ids[b"],"] == [vocab.tokens.index(b"],")]
    assert b"" not in tokens.ids


def test_tokens_that_begin_a_second_item_of_what_they_open_are_known() -> None:
    several = [b"[1,", b'{"a":1,', b'":[1,', b'"[,"', b"[],["]
    others = [b"[", b'", [', b'":[1]', b",[", b"{", b'["a"', b'x,"', b',{"']
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), *several, *others, b""], eos_ids=[269])
    tokens = Compiler(vocab).part(StructuralTokens)
    assert {vocab.tokens[token] for token in tokens.opening.tolist()} == set(several)
    assert {vocab.tokens[token] for token in tokens.reopening.tolist()} == {b'":[1,', b'"[,"'}


def test_tokens_that_close_strings_are_known_by_what_stands_before_their_quotation_marks() -> None:
    more = [b'a"', b'ab", "', b'["', b'["a","b"', b'["a",', b'"]', b'""', b'"["a""b', b'x["a","b"']
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(1, 256)), *more, b""], eos_ids=[255 + len(more)])
    quotes = Compiler(vocab).part(QuoteTokens)

    def texts(ids: Any) -> set[bytes]:
        return {vocab.tokens[token] for token in ids}

    heads = {data[:at] for data in vocab.tokens for at, byte in enumerate(data) if byte == ord('"')}
    assert set(quotes.closing) == heads
    assert texts(quotes.closing[b""]) == {b'"', b'"]', b'""', b'"["a""b'}
    assert texts(quotes.closing[b"a"]) == {b'a"'}
    assert texts(quotes.closing[b"ab"]) == {b'ab", "'}
    assert texts(quotes.closing[b'ab", ']) == {b'ab", "'}
    assert texts(quotes.several) == {data for data in more if data.count(b'"') >= 2}
    assert texts(quotes.many) == {data for data in more if data.count(b'"') >= 3}
    assert texts(quotes.arrays) == {b'["a","b"', b'x["a","b"'}
    assert quotes.lacking == b"", "the zero byte is in no token"
    assert {byte: vocab.tokens[token] for byte, token in quotes.letters.items()} == {
        byte: bytes((byte,)) for byte in quotes.letters
    }
    assert quotes.letters


UNIQUE_IN_FOUR: Any = INTEGER
for _ in range(4):
    UNIQUE_IN_FOUR = {"type": "array", "items": UNIQUE_IN_FOUR, "uniqueItems": True}
WALKS = [
    (INTEGER, "[1,12,"),
    (INTEGER, "[1,12,1"),
    ({"type": "number"}, "[1,2,1.5"),
    (STRING_OR_NUMBER, '["ab",1,"a'),
    (STRING_OR_NUMBER, '["ab","a\\'),
    (STRING, '["b","ab","'),
    (RECORD, '[{"a":"b","n":1},{"a":"'),
    (RECORD, '[{"a":"b","n":1},{"a":"b","n":'),
    (MAP, '[{"a":"x"},{"a'),
    (MAP, '[{},{"a":"x\\'),
    ({"type": "array", "items": FEW}, "[[1],[2,"),
    ({"type": "array", "items": INTEGER, "uniqueItems": True}, "[[1],[2,"),
    (UNIQUE_IN_FOUR, "[[[[[1,2"),
    ({"type": ["boolean", "null", "string"]}, "[true,"),
    ({"type": ["boolean", "null", "string"]}, '[true,"'),
]


@pytest.mark.parametrize(("items", "text"), WALKS)
def test_each_token_does_what_its_group_says(items: Any, text: str) -> None:
    spec = JsonSchema({"type": "array", "items": items, "uniqueItems": True}, whitespace="compact")
    compiled = PIECES.compile(spec)
    if not isinstance(compiled, CompiledUniqueItems):
        compiled = CompiledUniqueItems(compiled.inner, watching(items), PIECES.part(StructuralTokens), is_easy=True)
    matcher = compiled.matcher()
    for token in compiled.inner.trie.segment(text.encode()) or ():
        matcher.advance(token)
    tracker, point, state = compiled.tracker, matcher._held[-1].point, matcher._inner.state
    item = tracker.open_item(point)
    assert item is not None
    groups = compiled.groups.of(state, item, in_string=tracker.in_string(point))
    every = groups.every
    ids = sorted(token for group in every for token in group.ids.tolist())
    allowed = masks.allowed_ids(matcher._inner.mask(), compiled.vocab.width).tolist()
    assert ids == [token for token in allowed if token not in compiled.vocab.eos_ids]
    assert groups.unknown == tuple(group for group in every if group.ends is None)
    told = {token for _, ended in groups.ends for token in ended}
    assert told == {token for group in every if group.tail is None and group.ends for token in group.ids.tolist()}
    settling = [group for _, _, some in groups.settling for group in some]
    assert {id(group) for group in every} == {
        id(group) for some in (groups.unknown, groups.roomy, settling) for group in some
    }
    assert groups.room.values == min((group.room.values for group in groups.roomy), default=ENDLESS)
    assert groups.longest == max((group.longest for group in groups.roomy), default=0)
    assert groups.going_on is not None, "what matters where the open items differ from all before them"
    assert groups.going_on.every == tuple(group for group in every if group.may_go_on)
    assert groups.going_on.going_on is None
    for group in every:
        check_group(compiled, matcher, group)


def watching(items: Any) -> Any:
    """A tracker of one array of unique items, where strings alone would need none that looks ahead."""
    from espalier.constraints.unique.spots import Spot
    from espalier.constraints.unique.tracker import DocumentTracker

    assert items == STRING
    return DocumentTracker((Spot(names={}, other=1, items=(1,), unique=True), Spot(names={}, other=1, items=(1,))))


def check_group(compiled: CompiledUniqueItems, matcher: ItemsMatcher, group: TokenGroup) -> None:
    tracker, point = compiled.tracker, matcher._held[-1].point
    begun, seen = tracker.begun_item(point, 0)
    sizes = []
    for token in group.ids.tolist():
        data = compiled.text_of(token)
        sizes.append(len(data))
        assert compiled.inner.machine.advance(matcher._inner.state, token) == group.state
        after = tracker.feed(point, data)
        head = b""
        if group.tail is not None:
            head = data[: len(data) - len(group.tail)]
            assert data.endswith(group.tail)
            assert b'"' not in head
            assert b"\\" not in head or not group.tail
        if group.ends == ():
            assert not isinstance(after, RepeatedItem)
            assert tracker.open_item(after) is not None
        if group.ends and (group.tail is None or group.ends_string):
            repeats = any(is_among(begun + head + end.text, seen) for end in group.ends if not end.level)
            assert repeats == isinstance(after, RepeatedItem), data
        if group.settled is not None and group.tail is None and not isinstance(after, RepeatedItem):
            ended = tracker.feed(point, data + (compiled.search.plainest(group.state) or b""))
            items = OpenItems(tracker, point)
            assert items.are_new(group.ends or (), group.settled) != isinstance(ended, RepeatedItem), data
            if compiled.groups.is_forced(group) and isinstance(ended, RepeatedItem):
                assert not isinstance(matcher._after(token, group.state), TrackedPosition)
    assert group.longest in (0, max(sizes))


STATES = [
    (INTEGER, "[12,1", [], [b""]),
    ({"type": ["boolean", "null", "string"]}, "[true,", [b"true", b"false", b"null"], []),
    ({"type": "array", "items": INTEGER, "uniqueItems": True}, "[[1],[2", [], [b"", b"]"]),
    (RECORD, '[{"a":"b","n":1},{"a":"b","n":2', [], [b"}"]),
]


@pytest.mark.parametrize(("items", "text", "settled", "ended"), STATES)
def test_what_is_known_of_the_tokens_of_a_state(
    items: Any, text: str, settled: list[bytes], ended: list[bytes]
) -> None:
    compiled, matcher = matcher_of(items, text, PIECES)
    item = compiled.tracker.open_item(matcher._held[-1].point)
    groups = compiled.groups.of(matcher._inner.state, item, in_string=False)
    assert {end.text for _, ends, _ in groups.settling for end in ends} >= set(settled)
    assert {end.text for end, _ in groups.ends} == set(ended)
    assert not groups.unknown


def test_digits_that_leave_room_are_not_looked_at_one_by_one() -> None:
    compiled, matcher = matcher_of(INTEGER, "[12,1", PIECES)
    item = compiled.tracker.open_item(matcher._held[-1].point)
    roomy = compiled.groups.of(matcher._inner.state, item, in_string=False).roomy
    sizes = [group.ids.size for group in roomy if group.room == DIGITS]
    assert sizes
    assert min(sizes) > 1


def test_how_long_a_number_is_is_not_known_of_a_token_that_is_digits_alone() -> None:
    compiled, matcher = matcher_of(INTEGER, "[12,1", BYTES)
    state, item = matcher._inner.state, compiled.tracker.open_item(matcher._held[-1].point)
    assert item is not None
    known = {data: compiled.groups._next_room(data, state, item, more=2) for data in (b"3", b",3")}
    assert known == {b"3": ItemRoom(), b",3": ItemRoom(NUMBERS - 2)}


def test_texts_are_known_at_a_glance_only_where_all_that_ends_is_one_item_each() -> None:
    begun, whole = ItemEnding(0, b"", is_begun=True), ItemEnding(0, b"true", is_begun=False)
    null = ItemEnding(0, b"null", is_begun=False)
    assert _plain_texts([((begun,), (null,)), ((), (whole,))], is_begun=False) == {b"null", b"true"}
    assert _plain_texts([((begun,), (null,)), ((begun, whole), (null,))], is_begun=False) is None
    assert _plain_texts([((begun._replace(level=1),), (null,))], is_begun=False) is None
    assert _plain_texts([((), (null, whole))], is_begun=False) is None


def test_strings_that_one_token_makes_equal_are_found_by_their_beginning() -> None:
    vocab = Vocab.from_tokens(
        [*(bytes((byte,)) for byte in range(256)), b'b"', b'ab",', b'"]', b""], eos_ids=[259], special_ids={}
    )
    repeated = RepeatedStrings(Compiler(vocab).part(StructuralTokens))
    seen = added(added((), frozenset([b'"ab"', 7])), frozenset([b'"b"', b'"cab"']))
    heads = {begun: sorted(repeated.heads(begun, seen)) for begun in (b'"', b'"a', b'"ab', b'"b', b'"c', b'"x')}
    assert heads == {b'"': [b"ab", b"b"], b'"a': [b"b"], b'"ab': [b""], b'"b': [b""], b'"c': [b"ab"], b'"x': []}
    assert repeated.heads(b'"a', ()) == []


@pytest.mark.parametrize(("text", "is_held"), [("[0.5,1.2345678", False), ("[0.5,1.23456789012", True)])
def test_a_number_of_many_digits_is_held_with_a_completion_since_more_of_them_may_make_no_other(
    text: str, is_held: bool
) -> None:
    _, matcher = matcher_of({"type": "number"}, text, BYTES)
    position = matcher._held[-1]._replace(differs=-1)
    assert (position.way is not None) == is_held


def test_a_mask_without_a_token_says_that_no_completion_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "items": FEW, "uniqueItems": True, "minItems": 2}
    matcher = BYTES.compile(JsonSchema(schema, whitespace="compact")).matcher()
    assert matcher.mask().any()
    monkeypatch.setattr(ItemsMatcher, "_after", lambda *of: None)  # as where each search gives up
    with pytest.raises(LimitExceeded, match="whether some completion repeats no item"):
        matcher.mask()


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (f'"{"a" * 78}"', f'"{"a" * 78}"'),
        (f'"{"a" * 79}"', repr('"' + "a" * 79)),
        ("1" * 81, f'"{"1" * 80}"'),
        ('{"a":1}', repr('{"a":1}')),
    ],
)
def test_an_item_is_shown_in_a_message_up_to_eighty_bytes(item: str, shown: str) -> None:
    assert _show_item(item.encode()) == shown


def test_tokens_that_end_a_string_and_begin_a_repeated_null_were_compared_with_one_another() -> None:
    more = [b'",n', b'x",n', b'", n']
    vocab = Vocab.from_tokens([*(bytes((byte,)) for byte in range(256)), *more, b""], eos_ids=[259])
    schema = {"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True}
    compiled = Compiler(vocab).compile(JsonSchema(schema, whitespace="flexible"))
    for text, is_allowed in (('["a","b', True), ('[null,"b', False)):
        matcher = compiled.matcher()
        for byte in text.encode():
            matcher.advance(byte)
        assert [masks.test(matcher.mask(), vocab.tokens.index(data)) for data in more] == [is_allowed] * 3
