"""Which items a token ends, and which one is open after it, told from its bytes and the brackets that are open.

Whether such a token repeats an item is told by what it adds to the open ones, and whether a completion is left by what
the item after it may become: neither needs the text before. It knows no automaton.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from espalier.constraints.unique.tracker import COMMA, ESCAPE, OPENS, QUOTE
from espalier.constraints.unique.values import BLANK, PLAIN, equal, is_among
from espalier.constraints.watching import OpenItem, Seen, Tracker

CLOSES = b"]}"


class ItemEnding(NamedTuple):
    """An item that ends. level: of its array among the open ones with unique items, the innermost first."""

    level: int
    #: What is added to the open item, or all of an item that begins with it.
    text: bytes
    is_begun: bool
    #: It is an array or an object, or may be one.
    is_container: bool = False


class ItemsAfter(NamedTuple):
    """What some bytes do. ends: the items that they end. open: the innermost open item after them; None where none is,
    as far as a comma or the end of the outermost array may come."""

    ends: tuple[ItemEnding, ...]
    open: OpenItem | None


class OpenItems:
    """The open items at one position, by level. Each is asked for once."""

    __slots__ = ("_items", "_point", "_tracker")

    def __init__(self, tracker: Tracker, point: Hashable) -> None:
        """Where `tracker.open_item` knows of one."""
        self._tracker, self._point = tracker, point
        self._items: dict[int, tuple[bytes, Seen]] = {}

    def at(self, level: int) -> tuple[bytes, Seen]:
        """The beginning of one, as it is written, and the keys of those before it."""
        item = self._items.get(level)
        if item is None:
            item = self._items[level] = self._tracker.begun_item(self._point, level)
        return item

    def repeats(self, end: ItemEnding) -> bool:
        """Whether an item that ends so equals one before it."""
        begun, seen = self.at(end.level)
        return is_among(begun + end.text if end.is_begun else end.text, seen)

    def are_new(self, ends: Sequence[ItemEnding], settled: Sequence[ItemEnding]) -> bool:
        """Whether items that end all differ from those before them, from one another, and from those of `ends` before
        them in their array."""
        if any(map(self.repeats, settled)):
            return False
        begun = [end for end in (*ends, *settled) if end.is_begun]
        whole = [end for end in settled if not end.is_begun]  # these are known to differ from one another
        return not any(
            end.level == other.level and equal(self.at(end.level)[0] + end.text, other.text)
            for end in begun
            for other in whole
        )

    def are_plainly_new(self, texts: tuple[frozenset[bytes] | None, frozenset[bytes] | None]) -> bool:
        """Whether items of these texts differ from those before them, and from the open one; False where that is not
        known at a glance. texts: see `StateGroups.settled_texts`."""
        begun, seen = self.at(0)
        plain = texts[bool(begun)]
        if plain is None or (begun and (begun in plain or not PLAIN.fullmatch(begun))):
            return False
        for some in seen:  # noqa: SIM110 (half as long as `all`, and asked for each mask)
            if not plain.isdisjoint(some):
                return False
        return True


def items_after(data: bytes, levels: tuple[int, ...], *, in_string: bool, is_nested: bool) -> ItemsAfter | None:
    """What some bytes do to the items of the open arrays with unique items; None where that is not known: arrays are
    opened in which items might be repeated, or the bytes end after a backslash.

    levels: as of an `OpenItem`. is_nested: arrays that are opened may have unique items as well.
    """
    level, depth = 0, levels[0]  # of the open item, and of its brackets
    begin, is_begun, is_whole = 0, True, False  # where it begins, or that it is open already; and that it has ended
    inside, is_escaped, is_closed, in_new_array = in_string, False, False, False
    ends: list[ItemEnding] = []

    def end(stop: int, *, is_container: bool = False) -> None:
        nonlocal is_whole
        text = data[begin:stop] if is_begun and in_string else data[begin:stop].strip(BLANK)
        if text or is_begun:
            ends.append(ItemEnding(level, text, is_begun, is_container))
        is_whole = True

    for at, byte in enumerate(data):
        if inside:
            if is_escaped or byte == ESCAPE:
                is_escaped = not is_escaped
            elif byte == QUOTE:
                inside = False
                if not (depth or is_closed):
                    end(at + 1)
        elif byte == QUOTE:
            inside = True
        elif byte in OPENS:
            if is_closed or (in_new_array and is_nested):
                return None
            in_new_array = in_new_array or byte == OPENS[0]
            depth += 1
        elif is_closed or (depth and byte not in CLOSES):
            if byte == COMMA and in_new_array and is_nested and not is_closed:
                return None
        elif byte == COMMA:
            if not is_whole:
                end(at)
            begin, is_begun, is_whole = at + 1, False, False
        elif byte in CLOSES:
            if depth:
                depth -= 1
            else:
                if not is_whole:
                    end(at)
                level += 1
                is_closed = level == len(levels)
                if is_closed:
                    continue
                depth = levels[level] - levels[level - 1] - 1
                begin, is_begun, is_whole = 0, True, False
            if not depth:
                end(at + 1, is_container=True)
    if is_escaped:
        return None
    if is_closed or (is_whole and level + 1 == len(levels)):
        return ItemsAfter(tuple(ends), None)
    if is_whole:  # the array may end, and with it the item of the array around
        around = (levels[level + 1] - levels[level], *levels[level + 2 :])
        return ItemsAfter(tuple(ends), OpenItem(0, around, in_string=False, is_escaped=False))
    item = OpenItem(0, (depth, *levels[level + 1 :]), in_string=inside, is_escaped=False)
    return ItemsAfter(tuple(ends), item)
