"""What is left to be read, as linked items: a piece of an expression and the item that comes after it.

    "ab" x*  at the start      LiteralText("ab", 0) -> Times(x*, 0) -> End
             after "a"         Text("ab", 1) -> Times(x*, 0) -> End

An item is made when a walk first needs it. Equal items of one table are one object, so positions, which are sets of
items, compare by identity. Items that read nothing themselves (`Alternatives`, `Times`, `LinearPosition`) stand for
those that they lead to. `keys.py` has the items of objects and arrays. This module knows neither positions nor
vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import groupby
from typing import Any, ClassVar, TypeAlias

from espalier.automata.languages.nfa import DONE, ByteSet, utf8_edges
from espalier.automata.lazy.costs import Utf8, least_bytes, rest_of_character
from espalier.automata.lazy.linear import ENDLESS
from espalier.automata.lazy.rules import RuleTable, Start
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    seq,
)
from espalier.time_limit import check as check_time

Arrivals: TypeAlias = "list[tuple[LazyItem, int]] | tuple[tuple[LazyItem, int], ...]"
"""Items after some bytes, each with where in the bytes it stands; none twice."""


class LazyItem:
    """least: the least number of bytes from here to the end of the rule. length: how many items follow. counted: a
    bounded repetition follows. closed: the items that this one stands for, once they are known. alone: the position of
    this item alone, once it is known."""

    __slots__ = ("alone", "closed", "counted", "least", "length")

    def __init__(self, least: int, after: LazyItem | None = None, *, counted: bool = False) -> None:
        self.least: int = least if after is None else least + after.least
        self.length: int = 0 if after is None else after.length + 1
        self.counted: bool = counted or (after is not None and after.counted)
        self.closed: tuple[LazyItem, ...] | None = None
        self.alone: Any = None

    #: Whether it reads something or ends the rule; if not, it only stands for others.
    reads: ClassVar[bool] = True
    #: Whether a text that reads on from here stays in its rule.
    stays: ClassVar[bool] = True

    def forget(self) -> None:
        """Drop what is cached of the items and positions after this one."""
        self.closed = self.alone = None

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        """The bytes that can be read, each with the item after them; the sets of bytes are disjoint, but for those of
        `Keys`, of which two may be equal."""
        return ()

    def step(self, items: Items, byte: int) -> Iterable[LazyItem]:
        """The items after one byte, none where it cannot be read: what `edges` says of it, without the others."""
        return [target for members, target in self.edges(items) if members >> byte & 1]

    def read(self, items: Items, data: bytes, at: int) -> Arrivals:
        """The items after one or more bytes of `data` from `at` on, and where in `data` each stands."""
        return [(target, at + 1) for target in self.step(items, data[at])]

    def ways(self, items: Items) -> Iterable[LazyItem]:
        """For an item that reads nothing itself: the items that it stands for."""
        return ()

    def shortened(self, items: Items, longest: int) -> LazyItem:
        """An item that reads the same texts of at most `longest` bytes. Items with large counts give equal ones."""
        return self


class End(LazyItem):
    """The end of the rule."""

    __slots__ = ()
    stays = False


class LiteralText(LazyItem):
    """The bytes of a text from `at` on, then `after`."""

    __slots__ = ("after", "at", "following", "text")

    def __init__(self, text: bytes, at: int, after: LazyItem) -> None:
        super().__init__(len(text) - at, after)
        self.text, self.at, self.after = text, at, after
        self.following: LazyItem | None = None

    def forget(self) -> None:
        super().forget()
        self.following = None

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        return ((1 << self.text[self.at], self._following(items)),)

    def step(self, items: Items, byte: int) -> Iterable[LazyItem]:
        return (self._following(items),) if byte == self.text[self.at] else ()

    def read(self, items: Items, data: bytes, at: int) -> Arrivals:
        count = min(len(data) - at, len(self.text) - self.at)
        if data[at : at + count] != self.text[self.at : self.at + count]:
            return ()
        past = self.at + count
        return ((self.after if past == len(self.text) else items.text(self.text, past, self.after), at + count),)

    def _following(self, items: Items) -> LazyItem:
        if self.following is None:
            last = self.at + 1 == len(self.text)
            self.following = self.after if last else items.text(self.text, self.at + 1, self.after)
        return self.following

    def shortened(self, items: Items, longest: int) -> LazyItem:
        after = self.after.shortened(items, longest)
        return self if after is self.after else items.text(self.text, self.at, after)


class Char(LazyItem):
    """The rest of one character, from node `at` of its automaton on, then `after`."""

    __slots__ = ("after", "at", "following", "nodes")

    def __init__(self, nodes: Utf8, at: int, rest: int, after: LazyItem) -> None:
        super().__init__(rest, after)
        self.nodes, self.at, self.after = nodes, at, after
        self.following: tuple[tuple[ByteSet, LazyItem], ...] | None = None

    def forget(self) -> None:
        super().forget()
        self.following = None

    def edges(self, items: Items) -> Iterable[tuple[ByteSet, LazyItem]]:
        if self.following is None:
            self.following = tuple(
                (members, self.after if child == DONE else items.char(self.nodes, child, self.after))
                for members, child in self.nodes[self.at]
            )
        return self.following

    def step(self, items: Items, byte: int) -> Iterable[LazyItem]:
        for members, child in self.nodes[self.at]:  # disjoint
            if members >> byte & 1:
                return (self.after if child == DONE else items.char(self.nodes, child, self.after),)
        return ()

    def shortened(self, items: Items, longest: int) -> LazyItem:
        after = self.after.shortened(items, longest)
        return self if after is self.after else items.char(self.nodes, self.at, after)


class RuleCall(LazyItem):
    """Another rule from `start` on, then `after`."""

    __slots__ = ("after", "start")
    stays = False

    def __init__(self, start: Start, cost: int, after: LazyItem) -> None:
        super().__init__(cost, after)
        self.start, self.after = start, after


class TokenItem(LazyItem):
    """A token that the grammar names, then `after`. It counts as one byte."""

    __slots__ = ("after", "ref")

    def __init__(self, ref: TokenRef, after: LazyItem) -> None:
        super().__init__(1, after)
        self.ref, self.after = ref, after

    def shortened(self, items: Items, longest: int) -> LazyItem:
        after = self.after.shortened(items, longest)
        return self if after is self.after else items.named(self.ref, after)


class Alternatives(LazyItem):
    """One of several expressions, then `after`."""

    __slots__ = ("after", "options")
    reads = False
    stays = False

    def __init__(self, options: tuple[Node, ...], least: int, after: LazyItem) -> None:
        super().__init__(least, after)
        self.options, self.after = options, after

    def ways(self, items: Items) -> Iterable[LazyItem]:
        return (items.at(option, self.after) for option in self.options)


class Times(LazyItem):
    """A repetition of which `count` are done, then `after`. Counting stops where more makes no difference."""

    __slots__ = ("after", "count", "node")
    reads = False
    stays = False

    def __init__(self, node: Repeat, count: int, item_cost: int, after: LazyItem) -> None:
        need = max(node.min - count, 0)
        super().__init__(need * item_cost if need else 0, after, counted=node.min > 0 or node.max is not None)
        self.node, self.count, self.after = node, count, after

    def ways(self, items: Items) -> Iterable[LazyItem]:
        node, count = self.node, self.count
        if count >= node.min:
            yield self.after
        if node.max is None:
            yield items.at(node.item, items.times(node, min(count + 1, node.min), self.after))
        elif count < node.max:
            yield items.at(node.item, items.times(node, count + 1, self.after))

    def shortened(self, items: Items, longest: int) -> LazyItem:
        node = self.node
        low = min(max(node.min - self.count, 0), longest)
        high = None if node.max is None or node.max - self.count >= longest else node.max - self.count
        after = self.after.shortened(items, longest)
        if high is not None and high < low:
            high = low
        if (low, high) == (node.min, node.max) and not self.count:
            return self if after is self.after else items.times(node, 0, after)
        return items.times(items.repeat(node.item, low, high), 0, after)


class Items:
    """The items of one table, each kept once. rules: the rules that their expressions name."""

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules
        self.end = End(0)
        #: Each item by what it is made of.
        self.known: dict[Hashable, Any] = {}
        self._costs: dict[Node, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def forget(self) -> None:
        """Drop every item. Those in use stay valid; equal ones are made anew."""
        for item in self.known.values():
            if isinstance(item, LazyItem):
                item.forget()
        self.known = {}
        self.end.forget()

    def release(self) -> None:
        """Drop every item and the rules. Nothing new may be asked for."""
        self.forget()
        self._rules.release()

    def cost(self, node: Node) -> int:
        """The least number of bytes that an expression reads, at least ENDLESS where it matches nothing."""
        bytes_needed = self._costs.get(node)
        if bytes_needed is None:
            bytes_needed = self._costs[node] = least_bytes(node, self._rules.cost_of)
        return bytes_needed

    def at(self, node: Node, after: LazyItem) -> LazyItem:
        """An expression, then `after`."""
        if after.least >= ENDLESS:
            return after
        todo = [node]
        while todo:
            check_time()
            node = todo.pop()
            if not isinstance(node, RuleRef) and (start := self._rules.shared(node)) is not None:
                after = self.call(start, start.least, after)
            elif isinstance(node, Literal):
                after = self.text(node.text.encode(), 0, after)
            elif isinstance(node, Sequence):
                todo += self._in_runs(node.items)
            elif isinstance(node, RuleRef):
                cost = self._rules.cost_of(node.name)
                after = _NOTHING if cost >= ENDLESS else self.call(self._rules.start_of(node.name), cost, after)
            elif isinstance(node, CharClass | AnyChar):
                nodes = utf8_edges(node.scalars())
                after = self.char(nodes, 0, after) if nodes[0:1] and nodes[0] else _NOTHING
            elif isinstance(node, Repeat):
                after = self.times(node, 0, after)
            elif isinstance(node, Alternative):
                after = self.choice(node, after)
            elif isinstance(node, TokenRef):
                after = self.named(node, after)
            else:
                raise TypeError(f"{node!r} is in no automaton that is explored on demand")
            if after.least >= ENDLESS:
                return after
        return after

    def _in_runs(self, nodes: tuple[Node, ...]) -> list[Node]:
        """The nodes, with neighbours that all schemas share as one."""
        if all(type(node) is RuleRef for node in nodes):
            return list(nodes)

        def is_shared(node: Node) -> bool:
            check_time()
            return not isinstance(node, RuleRef) and self._rules.shared(node) is not None

        runs = groupby(nodes, is_shared)
        return [node for shared, run in runs for node in ([seq(*run)] if shared else run)]

    # Each of these makes an item, or finds the equal one.

    def kept(self, key: Hashable, make: Callable[[], LazyItem]) -> LazyItem:
        """The item of this key; `make` makes it."""
        item: LazyItem | None = self.known.get(key)
        if item is None:
            item = self.known[key] = make()
        return item

    def text(self, text: bytes, at: int, after: LazyItem) -> LazyItem:
        key = (text, at, after)
        item: LazyItem | None = self.known.get(key)
        if item is None:
            item = self.known[key] = LiteralText(text, at, after)
        return item

    def char(self, nodes: Utf8, at: int, after: LazyItem) -> LazyItem:
        key = (id(nodes), at, after)
        item: Char | None = self.known.get(key)
        if item is None:
            item = self.known[key] = Char(nodes, at, rest_of_character(nodes, at), after)
        return item

    def call(self, start: Start, cost: int, after: LazyItem) -> LazyItem:
        key = (start, after)
        item: LazyItem | None = self.known.get(key)
        if item is None:
            item = self.known[key] = RuleCall(start, cost, after)
        return item

    def named(self, ref: TokenRef, after: LazyItem) -> LazyItem:
        return self.kept((ref, after), lambda: TokenItem(ref, after))

    def choice(self, node: Alternative, after: LazyItem) -> LazyItem:
        key = (node, after)
        item: LazyItem | None = self.known.get(key)
        if item is None:
            item = self.known[key] = Alternatives(node.options, self.cost(node), after)
        return item

    def times(self, node: Repeat, count: int, after: LazyItem) -> LazyItem:
        key = (node, count, after)
        item: LazyItem | None = self.known.get(key)
        if item is None:
            check_time()
            item = self.known[key] = Times(node, count, self.cost(node.item), after)
        return item

    def repeat(self, item: Node, low: int, high: int | None) -> Repeat:
        key = ("repeat", item, low, high)
        repeat: Repeat | None = self.known.get(key)
        if repeat is None:
            repeat = self.known[key] = Repeat(item, low, high)
        return repeat


_NOTHING = End(ENDLESS)
