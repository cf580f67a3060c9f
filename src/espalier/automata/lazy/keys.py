"""Items of objects and arrays: states of `Linear` automata, keys that are read byte by byte, and names that are none of
some others. It knows neither schemas nor vocabularies.

    {"id": …, "ids": …}    Keys(id, ids at 0) --i--> Keys(… at 1) --d--> what follows "id", Keys(ids at 2)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable

from espalier.automata.languages.nfa import ByteSet
from espalier.automata.lazy.costs import least_without, narrowed
from espalier.automata.lazy.items import Arrivals, Items, LazyItem
from espalier.automata.lazy.linear import ANY_BYTE, ENDLESS, KeyedLinear, Linear, LinearCosts, State
from espalier.automata.lazy.rules import Start
from espalier.grammar.ast import Node
from espalier.time_limit import check as check_time


class LinearPosition(LazyItem):
    """A state of a `Linear` automaton."""

    __slots__ = ("automaton", "state")
    reads = False
    stays = False

    def __init__(self, automaton: LinearCosts, state: State, least: int) -> None:
        super().__init__(least)
        self.automaton, self.state = automaton, state

    def forget(self) -> None:
        super().forget()
        self.automaton.forget()

    def ways(self, items: Items) -> Iterable[LazyItem]:
        walked, state = self.automaton, self.state
        linear = walked.linear
        if linear.final(state):
            yield items.end
        edges, choice = (linear.edges(state), None) if walked.keyed is None else walked.keyed.explore(state)
        for label, target in edges:
            check_time()
            if walked.least(target) < ENDLESS:
                yield items.at(label, point(items, walked, target))
        if choice is not None:
            place = choice.place
            costs = walked.costs(place)
            keys = keys_from(items, walked, tuple([i for i in choice.keys if costs[i] < ENDLESS]), 0, place)
            if keys is not None:
                yield items.at(choice.before, keys)


class Keys(LazyItem):
    """One of the keys of an object from byte `at` on, and what follows it. wanted: the keys that can still come, as
    numbers in the order of their texts. place: where in the object; see `KeyedLinear`."""

    __slots__ = ("at", "automaton", "place", "wanted")

    def __init__(self, automaton: LinearCosts, wanted: tuple[int, ...], at: int, place: Hashable, least: int) -> None:
        super().__init__(least)
        self.automaton, self.wanted, self.at, self.place = automaton, wanted, at, place

    def forget(self) -> None:
        super().forget()
        self.automaton.forget()

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        at, wanted = self.at, self.wanted
        texts = self._keyed.texts
        first = 0
        while first < len(wanted):
            byte = texts[wanted[first]][at]
            past = first + 1
            if past < len(wanted) and texts[wanted[past]][at] == byte:
                # The texts are sorted, so those with this byte are neighbours.
                past = bisect_left(wanted, byte + 1, lo=past, key=lambda i: texts[i][at])
            for target in self._following(items, wanted[first:past], at + 1):
                yield 1 << byte, target
            first = past

    def step(self, items: Items, byte: int) -> Iterable[LazyItem]:
        return [target for target, _ in self.read(items, bytes([byte]), 0)]

    def read(self, items: Items, data: bytes, at: int) -> Arrivals:
        """See `LazyItem.read`: no item within a key is made on the way."""
        keyed, wanted, begin = self._keyed, self.wanted, self.at
        texts = keyed.texts
        rest = data[at:]
        targets: list[tuple[LazyItem, int]] = []
        # A key that ends before `data` does is followed by its last byte, which may also be part of a key.
        for size in range(1, len(rest)):
            if keyed.last in (rest[size], ANY_BYTE):
                key = self._first(rest[:size])
                if key < len(wanted) and texts[wanted[key]][begin:] == rest[:size]:
                    targets.append((self.after(items, wanted[key]), at + size))
        first = self._first(rest)
        past = first
        if first < len(wanted) and texts[wanted[first]].startswith(rest, begin):
            size = begin + len(rest)
            past = bisect_left(wanted, True, lo=first, key=lambda i: texts[i][begin:size] > rest)
            targets += [(target, len(data)) for target in self._following(items, wanted[first:past], size)]
        return targets

    def _first(self, rest: bytes) -> int:
        """The number of the keys whose rest is smaller."""
        wanted, begin, texts = self.wanted, self.at, self._keyed.texts
        if len(wanted) == 1:
            return int(texts[wanted[0]][begin:] < rest)
        return bisect_left(wanted, rest, key=lambda i: texts[i][begin:])

    @property
    def _keyed(self) -> KeyedLinear:
        keyed = self.automaton.keyed
        assert keyed is not None
        return keyed

    def _following(self, items: Items, some: tuple[int, ...], at: int) -> list[LazyItem]:
        """The items after what some of the keys, which are neighbours, have in common before their byte `at`."""
        targets: list[LazyItem] = []
        if at == len(self._keyed.texts[some[0]]):  # the shortest comes first
            targets.append(self.after(items, some[0]))
            some = some[1:]
        keys = keys_from(items, self.automaton, some, at, self.place)
        if keys is not None:
            targets.append(keys)
        return targets

    def after(self, items: Items, key: int) -> LazyItem:
        """What follows the text of a key."""
        label, target = self._keyed.member(key, self.place)
        return items.at(label, point(items, self.automaton, target))


class Except(LazyItem):
    """A text of a shared automaton from `start` on that is none of `words`, of which the first `at` bytes are read;
    then `after`. Only words that agree with what is read are listed, in order; there is at least one."""

    __slots__ = ("after", "at", "start", "words")

    def __init__(self, start: Start, words: tuple[bytes, ...], at: int, least: int, after: LazyItem) -> None:
        super().__init__(least, after)
        self.start, self.words, self.at, self.after = start, words, at, after

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        at = self.at
        by_byte = narrowed(self.words, at)
        for members, target in self.start.met().edges:
            rest = members
            for byte, words in by_byte.items():
                if members >> byte & 1:
                    rest &= ~(1 << byte)
                    remainder = excepted(items, target, words, at + 1, self.after)
                    if remainder.least < ENDLESS:
                        yield 1 << byte, remainder
            if rest:
                yield rest, leaf(items, target, self.after)

    def step(self, items: Items, byte: int) -> Iterable[LazyItem]:
        return [target for target, _ in self.read(items, bytes([byte]), 0)]

    def read(self, items: Items, data: bytes, at: int) -> Arrivals:
        """See `LazyItem.read`: up to where no word is left, or the shared automaton may end."""
        start, begin, words = self.start, self.at, self.words
        first = at
        while at < len(data) and words:
            start = start.step(data[at])
            if start is None:
                return ()
            at += 1
            read = data[first:at]
            words = tuple([word for word in words if len(word) >= begin + len(read) and word.startswith(read, begin)])
            if start.final:
                break
        return ((excepted(items, start, words, begin + at - first, self.after), at),)


def begin(items: Items, automaton: Node | Linear) -> LazyItem:
    """The start of an expression or an automaton that is a whole rule."""
    if isinstance(automaton, Node):
        return items.at(automaton, items.end)
    return point(items, LinearCosts(automaton, items.cost), automaton.start)


def point(items: Items, automaton: LinearCosts, state: State) -> LazyItem:
    """A state of a `Linear` automaton."""
    key = (automaton, state)
    item: LazyItem | None = items.known.get(key)
    if item is None:
        item = items.known[key] = LinearPosition(automaton, state, automaton.least(state))
    return item


def keys_from(
    items: Items, automaton: LinearCosts, wanted: tuple[int, ...], at: int, place: Hashable
) -> LazyItem | None:
    """Some keys of an object from their byte `at` on; None for no keys."""
    if not wanted:
        return None
    key = (automaton, wanted, at, place)
    item: LazyItem | None = items.known.get(key)
    if item is None:
        least = min(map(automaton.costs(place).__getitem__, wanted)) - at
        item = items.known[key] = Keys(automaton, wanted, at, place, least)
    return item


def leaf(items: Items, start: Start, after: LazyItem) -> LazyItem:
    """A shared automaton from a position on."""
    return after if start.met().is_over else items.call(start, start.least, after)


def excepted(items: Items, start: Start, words: tuple[bytes, ...], at: int, after: LazyItem) -> LazyItem:
    """A text of a shared automaton that is none of these words, of which `at` bytes are read."""
    if not words:
        return leaf(items, start, after)
    key = ("except", start, words, at, after)
    item: LazyItem | None = items.known.get(key)
    if item is None:
        item = items.known[key] = Except(start, words, at, least_without(start, words, at), after)
    return item
