"""What the tracker of unique items says of each beginning of a text, held against a plain reading of the whole text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.constraints.unique.places import RegionTracker, SeveralTrackers
from espalier.constraints.unique.spots import Spot, Spots
from espalier.constraints.unique.tracker import DocumentTracker, ItemPosition
from espalier.constraints.unique.values import is_among
from espalier.constraints.watching import OpenString, RepeatedItem, Tracker
from tests.examples import examples

BLANK = b" \n"
EVERYWHERE: Spots = (Spot(names={}, other=0, items=(0,), unique=True, pointer="/x", fresh=(True,), listed=((b"1",),)),)
BY_NAME: Spots = (
    Spot(names={b"u": 1, b"v": 4}, other=2, items=(2,)),
    Spot(
        names={},
        other=2,
        items=(2, 3, 0),
        unique=True,
        pointer="/u",
        fresh=(True, False, True),
        listed=((), (b"1", b"2"), (b'"a"',)),
    ),
    Spot(names={b"u": 1}, other=2, items=(2,)),
    Spot(names={b"a": 1}, other=2, items=(1, 2)),
    Spot(names={b"a": 1}, other=3, items=(2,), unique=True, pointer="/v", fresh=(False,), listed=((b"null",),)),
)
"""Two arrays with unique items, one of which tells its first items apart; objects that lead to them by their names."""
NAMES: Spots = (
    Spot(names={b"u": 1}, other=0, items=(0,), names_differ=True, pointer="/n"),
    Spot(names={}, other=2, items=(2,), unique=True, pointer="/u", fresh=(False,), listed=((),)),
    Spot(names={}, other=2, items=(2,)),
)
"""Objects whose names must differ, with an array in them."""
ALL_SPOTS = {"everywhere": EVERYWHERE, "by name": BY_NAME, "names": NAMES}
TEXTS = st.text('a"\\[,:', max_size=2) | st.sampled_from(["a", "ab", "u", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.sampled_from([0.5, 1.0, 100]) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["u", "v", "a", "b", '"', "\\"]), inner, max_size=3)
    ),
    max_leaves=12,
)
DEEP = {"u": [[1, {"a": [3]}], {"a": [1, 2], "b": ["a\\", "a"]}, ["x", "a"], "ab"], "v": [{"a": ["ab"]}, 1]}


@dataclass(slots=True, kw_only=True)
class Node:
    """A value or a name of a text, by its offsets."""

    kind: str
    start: int
    end: int
    spot: int = 0
    children: list[Node] = field(default_factory=list)

    def values(self) -> list[Node]:
        return [child for child in self.children if child.kind != "name"]

    def names(self) -> list[Node]:
        return [child for child in self.children if child.kind == "name"]


class PlainReader:
    """Reads a whole document with the standard library, value by value."""

    def __init__(self, spots: Spots, text: bytes) -> None:
        self.spots, self.text = spots, text
        self.root = self._value(self._skip(0), 0)

    def _skip(self, at: int) -> int:
        while self.text[at : at + 1] in (b" ", b"\n"):
            at += 1
        return at

    def _value(self, start: int, spot: int) -> Node:
        text = self.text.decode("latin-1")  # offsets are those of bytes
        first = text[start]
        if first not in "[{":
            _, end = json.JSONDecoder().raw_decode(text, start)
            return Node(kind="string" if first == '"' else "scalar", start=start, end=end, spot=spot)
        node = Node(kind="array" if first == "[" else "object", start=start, end=0, spot=spot)
        here = self.spots[spot]
        at = self._skip(start + 1)
        while text[at] not in "]}":
            inner = here.items[min(len(node.children), len(here.items) - 1)]
            if node.kind == "object":
                name = self._value(at, 0)
                name.kind = "name"
                node.children.append(name)
                inner = here.names.get(self.text[name.start + 1 : name.end - 1], here.other)
                at = self._skip(self._skip(name.end) + 1)
            child = self._value(at, inner)
            node.children.append(child)
            at = self._skip(child.end)
            at = self._skip(at + 1) if text[at] == "," else at
        node.end = at + 1
        return node

    def nodes(self, node: Node | None = None) -> Iterator[Node]:
        node = self.root if node is None else node
        yield node
        for child in node.children:
            yield from self.nodes(child)

    def watches(self, node: Node) -> bool:
        here = self.spots[node.spot]
        return (node.kind == "array" and here.unique) or (node.kind == "object" and here.names_differ)

    def first_repeat(self) -> tuple[int, bytes, str, bool] | None:
        """The offset of the byte that ends the first repeated item or name, it, its array, and whether it is a name."""
        repeats = []
        for node in self.nodes():
            if not self.watches(node):
                continue
            seen: list[Any] = []
            for child in node.names() if node.kind == "object" else node.values():
                raw = self.text[child.start : child.end]
                value = json.loads(raw)
                if any(equal(value, other) for other in seen):
                    ended = child.end - 1 if child.kind in ("string", "name", "array", "object") else None
                    offset = self._skip(child.end) if ended is None else ended
                    is_name = child.kind == "name"
                    shown = raw[1:-1] if is_name else raw
                    repeats.append((offset, shown, self.spots[node.spot].pointer, is_name))
                    break
                seen.append(value)
        return min(repeats, default=None)


def equal(one: Any, other: Any) -> bool:
    """JSON's equality: 1 is 1.0, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return (type(one) in (int, float) and type(other) in (int, float) and one == other) or (
        isinstance(one, str | None) and isinstance(other, str | None) and one == other
    )


class PlainAnswers:
    """What is to be said of the first `length` bytes of a text."""

    def __init__(self, reader: PlainReader, length: int) -> None:
        self.reader, self.length, self.text = reader, length, reader.text[:length]
        begun = [node for node in reader.nodes() if node.start < length < node.end]
        self.stack = [node for node in begun if node.kind in ("array", "object")]
        self.string = next((node for node in begun if node.kind in ("string", "name")), None)
        watching = [node for node in self.stack if reader.watches(node)]
        self.outermost = watching[0] if watching else None
        unique = [node for node in watching if node.kind == "array"]
        self.array = unique[-1] if unique else None

    @property
    def is_escaped(self) -> bool:
        """Whether a backslash comes before, which is no escaped one itself."""
        slashes = len(self.text) - len(self.text.rstrip(b"\\"))
        return self.string is not None and slashes % 2 == 1

    def is_idle(self) -> bool:
        return self.string is not None and self.string.kind == "string" and self.outermost is None

    def open_string(self) -> OpenString | None:
        if self.string is None or self.outermost is None:
            return None
        begun = self.text[self.string.start + 1 :]
        strings = [
            self.text[node.start + 1 : node.end - 1]
            for node in self.reader.nodes(self.outermost)
            if node.kind in ("string", "name") and node.end <= self.length
        ]
        rivals = frozenset(text for text in strings if text.startswith(begun))
        return OpenString(begun, rivals)

    def depth(self) -> int | None:
        """How many brackets of the open item are open; None outside of arrays with unique items."""
        return None if self.array is None else len(self.stack) - 1 - self.stack.index(self.array)

    def levels(self) -> tuple[int, ...]:
        """The same of each open array with unique items, the innermost first."""
        unique = [at for at, node in enumerate(self.stack) if node.kind == "array" and self.reader.watches(node)]
        return tuple(len(self.stack) - 1 - at for at in reversed(unique))

    def count(self) -> int:
        count = 0
        for node in self.stack:
            if self.reader.watches(node):
                parts = node.values() if node.kind == "array" else node.names()
                count += sum(self._is_whole(part) for part in parts)
        return count

    def _is_whole(self, part: Node) -> bool:
        """A number ends with what comes after it."""
        if part.kind != "scalar":
            return part.end <= self.length
        return any(byte in b",]}" for byte in self.text[part.end :])

    def begun_place(self) -> int | None:
        """The place of the item that is about to begin in the innermost container, an array with unique items."""
        if self.string is not None or self.array is None or self.array is not self.stack[-1]:
            return None
        if self.text.rstrip(BLANK)[-1:] not in (b"[", b","):
            return None
        done = sum(part.end <= self.length for part in self.array.values())
        return min(done, len(self.reader.spots[self.array.spot].items) - 1)

    def open_number(self) -> bytes | None:
        """None where it does not matter."""
        if self.outermost is None or (self.string is None and self.text[-1:] not in b"0123456789,[]{} \n"):
            return None
        if self.string is not None:
            return b""
        return self.text[len(self.text.rstrip(b"-+.0123456789eE")) :]


def fed(tracker: Tracker, data: bytes, cuts: Sequence[int]) -> Any:
    """The point after the data, given in pieces; or what is repeated, with its offset in the data."""
    point: Any = tracker.start
    begin = 0
    for end in [*sorted({cut % max(1, len(data)) for cut in cuts}), len(data)]:
        point = tracker.feed(point, data[begin:end])
        if isinstance(point, RepeatedItem):
            return point._replace(offset=begin + point.offset)
        begin = end
    return point


CUTS = st.lists(st.integers(0, 60), max_size=3)


@pytest.mark.parametrize("name", ALL_SPOTS)
@settings(max_examples=examples(200), deadline=None)
@given(value=VALUES, spaced=st.booleans(), cuts=CUTS)
@example(value=DEEP, spaced=False, cuts=[])
@example(value=DEEP, spaced=True, cuts=[7, 13, 29])
@example(value={"a": [], "b": {"u": ["a\\", "a"], "c": ["a", "a"]}, "u": [1, 12, True]}, spaced=True, cuts=[3, 9])
def test_each_beginning_is_known_as_a_plain_reader_knows_it(
    name: str, value: Any, spaced: bool, cuts: list[int]
) -> None:
    spots = ALL_SPOTS[name]
    data = json.dumps(value, indent=1 if spaced else None, ensure_ascii=False).encode()
    reader, tracker = PlainReader(spots, data), DocumentTracker(spots)
    repeat = reader.first_repeat()
    ended = fed(tracker, data, cuts)
    if repeat is not None:
        assert isinstance(ended, RepeatedItem)
        assert (ended.offset, ended.item, ended.pointer, ended.is_name) == repeat
        is_container = repeat[1][:1] in (b"[", b"{")  # it is closed, and its own items are forgotten
        assert ended.items == PlainAnswers(reader, repeat[0] + is_container).count() - is_container
    else:
        assert isinstance(ended, ItemPosition)
        assert ended.closed == (data[:1] in (b"[", b"{"))
    begins: dict[tuple[int, int], int] = {}
    for length in range(1, len(data) if repeat is None else repeat[0] + 1):
        point, answers = fed(tracker, data[:length], cuts), PlainAnswers(reader, length)
        assert not isinstance(point, RepeatedItem)
        assert tracker.is_watching(point) == (answers.outermost is not None)
        assert tracker.in_string(point) == (answers.string is not None)
        assert tracker.is_idle(point) == answers.is_idle()
        assert tracker.open_string(point) == answers.open_string()
        assert tracker.count(point) == answers.count()
        if (number := answers.open_number()) is not None:
            assert tracker.open_number(point) == number
        item, depth = tracker.open_item(point), answers.depth()
        if depth is None or name == "names":
            assert item is None
        else:
            assert item is not None
            assert (item.levels, item.in_string, item.is_escaped) == (
                answers.levels(),
                answers.string is not None,
                answers.is_escaped,
            )
            assert answers.array is not None
            number_of_item = sum(byte == ord(",") for byte in data[answers.array.start : length]), answers.array.start
            begins.setdefault(number_of_item, item.begin)
        place = answers.begun_place()
        own = None if answers.array is None else spots[answers.array.spot]
        assert tracker.is_fresh(point) == (own is not None and place is not None and own.fresh[place])
        assert tracker.listed(point) == (() if own is None or place is None else own.listed[place])


@pytest.mark.parametrize(
    ("begun", "rest", "repeats"),
    [
        ("[1, 2, ", "1", True),
        ("[1, 2, ", "3", False),
        ("[12, 1", "2", True),
        ("[12, 1", "3", False),
        ("[12, 1", "2.0 ", True),
        ('["ab", "a', 'b"', True),
        ('["ab", "a', '"', False),
        ('["ab", "cd"', "", False),
        ("[1, ", "", False),
        ("[1, [1, ", "2", False),
        ("[1, [1, ", "1", True),
        ('[1, {"a": ', "1", False),
        ("", "1", False),
        ("[", "1", False),
    ],
)
def test_a_rest_that_makes_the_open_item_an_earlier_one_repeats_it(begun: str, rest: str, repeats: bool) -> None:
    tracker = DocumentTracker(EVERYWHERE)
    assert is_repeat(tracker, fed(tracker, begun.encode(), ()), rest.encode()) == repeats


def is_repeat(tracker: Any, point: Any, rest: bytes) -> bool:
    """Whether the open item equals an earlier one with `rest` at its end; False where it has open brackets."""
    item = tracker.open_item(point)
    if item is None or item.levels[0]:
        return False
    begun, seen = tracker.begun_item(point, 0)
    return is_among(begun + rest, seen)


@pytest.mark.parametrize(
    ("begun", "differs"),
    [
        ("[1, 2", False),
        ('[1, "', True),
        ('["a", "', False),
        ("[", True),
        ("[1, ", False),
        ("[[1], [2, ", False),  # the inner item may be a 2 again
        ("[[1], [1, ", False),
        ('["a"', True),
        ("", True),
    ],
)
def test_an_item_of_another_kind_differs_from_those_before(begun: str, differs: bool) -> None:
    tracker = DocumentTracker(EVERYWHERE)
    assert tracker.differs(fed(tracker, begun.encode(), ())) == differs


def test_a_member_that_is_declared_tells_objects_apart() -> None:
    for names, differs in (({b"a": 0}, True), ({}, False)):
        spots = (Spot(names=names, other=0, items=(0,), unique=True, pointer="/x"),)
        tracker = DocumentTracker(spots)
        assert tracker.differs(fed(tracker, b'[{"a": 1}, {"a": 2, ', ())) == differs


@settings(max_examples=examples(100), deadline=None)
@given(value=VALUES, cuts=CUTS)
@example(value=DEEP, cuts=[5])
@example(value={"u": ["a", "a"]}, cuts=[])
@example(value={"v": ["ab", "a"], "w": "ab"}, cuts=[9])
@example(value={"u": ["ab", "abc"], "v": [1, 2]}, cuts=[])
def test_several_trackers_say_what_holds_for_all_of_them(value: Any, cuts: list[int]) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    parts = [DocumentTracker(BY_NAME), DocumentTracker((Spot(names={b"u": 1}, other=0, items=(0,)), *EVERYWHERE))]
    several = SeveralTrackers(parts)
    assert several.is_nested
    assert not SeveralTrackers([DocumentTracker((Spot(names={}, other=0, items=(0,)),))]).is_nested
    for length in range(len(data) + 1):
        points = [fed(part, data[:length], cuts) for part in parts]
        point = fed(several, data[:length], cuts)
        repeated = [own for own in points if isinstance(own, RepeatedItem)]
        if repeated:
            assert point in repeated
            return
        pairs = list(zip(parts, points, strict=True))
        watching = [(part, own) for part, own in pairs if part.is_watching(own)]
        assert several.is_watching(point) == bool(watching)
        assert several.in_string(point) == parts[0].in_string(points[0])
        assert several.is_idle(point) == all(part.is_idle(own) for part, own in pairs)
        assert several.differs(point) == all(part.differs(own) for part, own in pairs)
        assert several.count(point) == sum(part.count(own) for part, own in pairs)
        assert not several.is_fresh(point)
        assert several.listed(point) == [text for part, own in pairs for text in part.listed(own)]
        strings = [string for part, own in pairs if (string := part.open_string(own)) is not None]
        both = several.open_string(point)
        assert (both is None) == (not strings)
        if both is not None:
            assert both.begun == strings[0].begun
            assert both.rivals == frozenset().union(*(string.rivals for string in strings))
        alone = watching[0] if len(watching) == 1 else None
        assert several.open_item(point) == (None if alone is None else alone[0].open_item(alone[1]))
        assert several.open_number(point) == (b"" if alone is None else alone[0].open_number(alone[1]))
        if (rest := value_end(data[:length], several.in_string(point))) is not None:
            assert is_repeat(several, point, rest) == (alone is not None and is_repeat(*alone, rest))


def test_of_constraints_on_one_text_one_alone_may_be_in_a_string() -> None:
    several = SeveralTrackers([DocumentTracker(EVERYWHERE), RegionTracker({b"J:": (DocumentTracker(EVERYWHERE), b"")})])
    assert not several.in_string(fed(several, b'["a', ()))


def value_end(text: bytes, in_string: bool) -> bytes | None:
    """What makes an open string or number, or a value that is about to begin, whole; None where another one is open."""
    if in_string:
        return None if text[-1:] >= b"\x7f" or text.endswith(b"\\") else b'"'
    return b"1" if text[-1:] in b",[ 123456789" and not text.endswith(b": ") else None


DOCUMENTS = st.lists(VALUES.filter(lambda value: isinstance(value, list | dict)), max_size=3)


@settings(max_examples=examples(60), deadline=None)
@given(values=DOCUMENTS, free=st.text('a<c["1,', max_size=4), cuts=CUTS)
@example(values=[{"u": ["ab", 12]}, ["a", "a"]], free="<[1,1]", cuts=[4])
@example(values=[{"u": ["ab", "ab"]}], free="", cuts=[])
@example(values=[], free="J <1", cuts=[])
def test_documents_in_free_text_are_followed_each_by_its_own_tracker(
    values: list[Any], free: str, cuts: list[int]
) -> None:
    documents = [(b"<c>", DocumentTracker(BY_NAME), b"</c>"), (b"J:", DocumentTracker(EVERYWHERE), b"")]
    tracker = RegionTracker({trigger: (document, end) for trigger, document, end in documents})
    assert tracker.is_nested
    data = free.encode()
    inside: dict[int, tuple[DocumentTracker, bytes]] = {}  # by length of the text
    for number, value in enumerate(values):
        trigger, document, end = documents[number % 2]
        text = json.dumps(value, ensure_ascii=False).encode()
        data += trigger
        inside |= {len(data) + length: (document, text[:length]) for length in range(len(text))}
        data += text + end + free.encode()
    for length in range(len(data) + 1):
        point = fed(tracker, data[:length], cuts)
        own, begun = inside.get(length, (None, b""))
        if isinstance(point, RepeatedItem):
            return
        if own is None:
            assert not tracker.is_watching(point)
            assert not tracker.in_string(point)
            assert tracker.is_idle(point)
            assert tracker.differs(point)
            assert not is_repeat(tracker, point, b"1")
            assert not tracker.is_fresh(point)
            assert (tracker.open_string(point), tracker.open_item(point), tracker.open_number(point)) == (
                None,
                None,
                b"",
            )
            assert (tracker.count(point), tracker.listed(point)) == (0, ())
            continue
        ours = fed(own, begun, ())
        for ask in (
            "is_watching",
            "in_string",
            "is_idle",
            "differs",
            "is_fresh",
            "open_string",
            "open_number",
            "count",
        ):
            assert getattr(tracker, ask)(point) == getattr(own, ask)(ours), ask
        assert tracker.listed(point) == own.listed(ours)
        assert (tracker.open_item(point) is None) == (own.open_item(ours) is None)
        if (rest := value_end(begun, own.in_string(ours))) is not None:
            assert is_repeat(tracker, point, rest) == is_repeat(own, ours, rest)


def test_a_repeated_item_of_a_document_in_free_text_is_found() -> None:
    tracker = RegionTracker({b"J:": (DocumentTracker(EVERYWHERE), b"!")})
    assert not isinstance(fed(tracker, b"[1,1] J:[1,2]![1,1]", ()), RepeatedItem)
    repeated = fed(tracker, b"[1,1] J:[1,2]! J:[3,3]", ())
    assert isinstance(repeated, RepeatedItem)
    assert (repeated.item, repeated.offset) == (b"3", 21)


def test_what_is_remembered_of_one_text_is_not_changed_by_another_that_goes_on_from_it() -> None:
    tracker = DocumentTracker(EVERYWHERE)
    start = fed(tracker, b'["a", "b", ', ())
    for items in (b'"c"', b'"d", "c"', b'1, "c"'):
        assert not isinstance(tracker.feed(start, items), RepeatedItem)
    assert isinstance(tracker.feed(start, b'"b"'), RepeatedItem)
