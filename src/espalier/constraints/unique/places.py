"""Trackers of texts that hold several documents, or one that several constraints watch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler, find_kind
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.spec import JsonObject, Spec
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.structure import StructuralTokens
from espalier.constraints.unique.tracker import DocumentTracker, InnerDocuments, ItemPosition
from espalier.constraints.watching import OpenItem, OpenString, RepeatedItem, Seen, Tracker, WatchedLanguage


def watched_language(spec: Spec, compiler: Compiler, *, wanted_by: str) -> WatchedLanguage:
    """As `Compiler.language`, with the tracker that the automaton needs beside it, if any. Raises as that does."""
    kind = find_kind(spec)
    watched = None if kind is None else kind.watched(spec, compiler)
    if watched is not None:
        return watched
    is_document = isinstance(spec, JsonObject) and {"object", "array"}.issuperset(spec.kinds)
    return WatchedLanguage(automaton=compiler.language(spec, wanted_by=wanted_by), is_document=is_document)


def with_tracker(
    compiled: CompiledAutomaton, tracker: Tracker | None, compiler: Compiler, *, is_easy: bool
) -> Compiled:
    """The compiled automaton, with a tracker beside it if it needs one. Raises as `CompiledUniqueItems` does."""
    return (
        compiled
        if tracker is None
        else CompiledUniqueItems(compiled, tracker, compiler.part(StructuralTokens), is_easy=is_easy)
    )


class SeveralTrackers:
    """Several constraints that watch the same text."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)
        self.start: Hashable = tuple(tracker.start for tracker in self._trackers)
        self.is_nested = any(tracker.is_nested for tracker in self._trackers)

    def _pairs(self, point: Hashable) -> list[tuple[Tracker, Hashable]]:
        assert isinstance(point, tuple)
        return list(zip(self._trackers, point, strict=True))

    def feed(self, point: Hashable, data: bytes) -> Hashable | RepeatedItem:
        points: list[Hashable] = []
        for tracker, own in self._pairs(point):
            after = tracker.feed(own, data)
            if isinstance(after, RepeatedItem):
                return after
            points.append(after)
        return tuple(points)

    def is_watching(self, point: Hashable) -> bool:
        return any(tracker.is_watching(own) for tracker, own in self._pairs(point))

    def in_string(self, point: Hashable) -> bool:
        return all(tracker.in_string(own) for tracker, own in self._pairs(point))

    def is_idle(self, point: Hashable) -> bool:
        return all(tracker.is_idle(own) for tracker, own in self._pairs(point))

    def open_string(self, point: Hashable) -> OpenString | None:
        strings = [string for tracker, own in self._pairs(point) if (string := tracker.open_string(own)) is not None]
        return (
            OpenString(strings[0].begun, frozenset().union(*(string.rivals for string in strings))) if strings else None
        )

    def _watching(self, point: Hashable) -> tuple[Tracker, Hashable] | None:
        """The one that watches, None where several do: together they may leave less than each."""
        watching = [pair for pair in self._pairs(point) if pair[0].is_watching(pair[1])]
        return watching[0] if len(watching) == 1 else None

    def open_item(self, point: Hashable) -> OpenItem | None:
        pair = self._watching(point)
        return None if pair is None else pair[0].open_item(pair[1])

    def begun_item(self, point: Hashable, level: int) -> tuple[bytes, Seen]:
        pair = self._watching(point)
        assert pair is not None, "no item is open"
        return pair[0].begun_item(pair[1], level)

    def differs(self, point: Hashable) -> bool:
        return all(tracker.differs(own) for tracker, own in self._pairs(point))

    def open_number(self, point: Hashable) -> bytes:
        pair = self._watching(point)
        return b"" if pair is None else pair[0].open_number(pair[1])

    def count(self, point: Hashable) -> int:
        return sum(tracker.count(own) for tracker, own in self._pairs(point))

    def is_fresh(self, point: Hashable) -> bool:
        return False  # what one of them leaves endless, another may not

    def listed(self, point: Hashable) -> Sequence[bytes]:
        return [text for tracker, own in self._pairs(point) for text in tracker.listed(own)]


class RegionPosition(NamedTuple):
    """A position in free text with regions. before: the end of the free text, as far as a trigger may begin in it.
    region: the index of the open region, -1 for none. inside: its document's position; after the document, `left` of
    its end is still to come."""

    before: bytes = b""
    region: int = -1
    inside: ItemPosition = ItemPosition()
    left: bytes = b""


class RegionTracker(InnerDocuments):
    """Free text in which each trigger starts a JSON object or array, which its last bracket ends, and then its end.

    regions: by trigger, the tracker of its documents and the text after them. No trigger holds another.
    """

    def __init__(self, regions: Mapping[bytes, tuple[DocumentTracker, bytes]]) -> None:
        self._triggers = tuple(regions)
        self._documents = tuple(tracker for tracker, _ in regions.values())
        self._ends = tuple(end for _, end in regions.values())
        self.is_nested = any(tracker.is_nested for tracker in self._documents)
        self._longest = max(map(len, regions)) - 1
        self.start = RegionPosition()

    def feed(self, point: Hashable, data: bytes) -> RegionPosition | RepeatedItem:
        assert isinstance(point, RegionPosition)
        before, region, inside, left = point
        at = 0
        while at < len(data):
            if region >= 0:
                after, stop = self._documents[region].scan(inside, data, at)
                if isinstance(after, RepeatedItem):
                    return after
                at, inside = stop, after
                if inside.closed:
                    left, region, before = self._ends[region], -1, b""
            elif left:
                left, at = left[1:], at + 1
            else:
                before += data[at : at + 1]
                at += 1
                met = next((i for i, trigger in enumerate(self._triggers) if before.endswith(trigger)), -1)
                if met >= 0:
                    region, inside, before = met, self._documents[met].start, b""
                elif len(before) > self._longest:
                    before = before[1:] if self._longest else b""
        return RegionPosition(before, region, inside, left)

    def open_document(self, point: Hashable) -> tuple[DocumentTracker, ItemPosition] | None:
        assert isinstance(point, RegionPosition)
        return (self._documents[point.region], point.inside) if point.region >= 0 else None
