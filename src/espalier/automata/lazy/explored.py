"""Deterministic positions over items, made when a walk first meets them: a lazy subset construction.

A position is a set of items. What can be read there, where each byte leads and which rules are called is worked out
once, when it is asked for. It knows no stacks and no vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from espalier.automata.languages.fragment import disjoint
from espalier.automata.languages.nfa import ByteSet, bytes_in
from espalier.automata.lazy.held import take_held
from espalier.automata.lazy.items import Items, LazyItem, RuleCall, TokenItem
from espalier.automata.lazy.keys import Keys, begin, excepted
from espalier.automata.lazy.linear import ENDLESS, Linear
from espalier.automata.lazy.rules import Later, RuleTable
from espalier.grammar.ast import Node, TokenRef
from espalier.time_limit import WorkLock
from espalier.time_limit import check as check_time

MAX_LENGTH = 60
"""Positions whose items have more items after them are not shortened."""


def lowest(edge: tuple[ByteSet, Any]) -> int:
    """The lowest bit of an edge's bytes."""
    return edge[0] & -edge[0]


class LazyState:
    """A position of the items in `core`. What follows it is worked out when it is asked for."""

    __slots__ = (
        "apart",
        "calls",
        "core",
        "edges",
        "explored",
        "final",
        "has_calls",
        "is_called",
        "is_met",
        "item",
        "least",
        "loops",
        "short",
        "steps",
    )

    def __init__(self, explored: LazyStates, core: Collection[LazyItem]) -> None:
        self.explored = explored
        self.core = core
        #: The least number of bytes to the end of its rule.
        self.least: int
        #: The rule may end here.
        self.final: bool
        #: Other rules begin here.
        self.has_calls: bool
        if len(core) == 1:
            (only,) = core
            self.least = only.least
            self.final = only is explored.items.end
            self.has_calls = isinstance(only, RuleCall)
        else:
            self.least = min([item.least for item in core], default=ENDLESS)
            self.final = explored.items.end in core
            self.has_calls = any(isinstance(item, RuleCall) for item in core)
        self.is_met = False
        self.is_called = not self.has_calls
        #: The disjoint sets of bytes that can be read, each with the position after it; filled by `met`.
        self.edges: Sequence[tuple[ByteSet, LazyState]] = ()
        #: (First position of the called rule, position to return to); filled by `called`.
        self.calls: Sequence[tuple[LazyState, LazyState]] = ()
        #: The position after a byte, for those that were asked for.
        self.steps: dict[int, LazyState | None] = {}
        #: The bytes after which a position that all schemas share is the same, None for none or while unknown.
        self.loops: bytes | None = None
        #: One item that stands for all of the core, None where none is known.
        self.item: LazyItem | None = None
        self.short: dict[int, LazyState] | None = None
        #: Whether masks find what it allows without its rows, None while unknown; see `masks/shared.py`.
        self.apart: bool | None = None

    def met(self) -> LazyState:
        """Itself, with its edges worked out."""
        if not self.is_met:
            self.explored.meet(self)
        return self

    def called(self) -> LazyState:
        """Itself, with its calls worked out."""
        if not self.is_called:
            self.explored.call(self)
        return self

    def step(self, byte: int) -> LazyState | None:
        """The position after a byte, None where it cannot be read. Nothing else is worked out."""
        return self.steps[byte] if byte in self.steps else self.explored.step(self, byte)

    def forget(self) -> None:
        """Drop what was worked out of it; `met` works it out again."""
        self.is_met, self.is_called = False, not self.has_calls
        self.edges = self.calls = ()
        self.short = self.loops = None
        if self.steps:
            self.steps = {}

    @property
    def is_shared(self) -> bool:
        """Whether all schemas share the table of this position."""
        return self.explored.is_shared

    @property
    def is_over(self) -> bool:
        """Whether the rule ends here and nothing can be read."""
        return self.final and len(self.core) == 1


class LazyStates:
    """The positions met so far of the rules that share one table. rules: those that their expressions name.
    name: of the rule, where the table has only one and explanations want its name. is_shared: what its
    positions allow is kept with the vocabulary, not with a schema, as that of strings and numbers is; they call no
    other rules. Thread-safe."""

    def __init__(self, rules: RuleTable, *, name: str | None = None, is_shared: bool = False) -> None:
        self.name = name
        self.is_shared = is_shared
        self.items = Items(rules)
        self._places: dict[Hashable, LazyState] = {}  # by the only item, or the set of items
        self._lock = WorkLock()

    def __len__(self) -> int:
        return len(self._places) + len(self.items)

    def forget(self) -> None:
        """Drop all positions that nobody holds, and what was worked out of the others. Those stay valid. Only while no
        one reads what a position of this table has worked out."""
        with self._lock:
            held = take_held(self._dropped())
            self._places = {_key(place.core): place for place in reversed(held)}

    def release(self) -> None:
        """Drop all positions, which nobody holds any more, and the rules, so that none holds another. Nothing new may
        be asked for."""
        with self._lock:
            self._dropped()
            self.items.release()

    def _dropped(self) -> list[LazyState]:
        """All positions, which know nothing of one another any more and are no longer in the table."""
        self.items.forget()
        for place in self._places.values():
            place.forget()
            for item in place.core:
                item.forget()
        dropped = list(self._places.values())
        self._places = {}
        return dropped

    def named(self, place: LazyState) -> list[tuple[TokenRef, LazyState]]:
        """The tokens that can be read at a position by their names, each with the position after it."""
        with self._lock:
            return [(item.ref, self._alone(item.after)) for item in place.core if isinstance(item, TokenItem)]

    def start(self, options: Iterable[LazyItem]) -> LazyState:
        """The position at the start of these."""
        with self._lock:
            return self._place(tuple(options))

    def begin(self, automata: Iterable[Node | Linear]) -> LazyState:
        """The position at the start of a rule that is one of these expressions and automata."""
        return self.start([begin(self.items, automaton) for automaton in automata])

    def excepted(self, start: LazyState, words: tuple[bytes, ...]) -> LazyState | None:
        """The position at the start of a text of a shared automaton that is none of these words, which are in order;
        None where every text is one."""
        rest = excepted(self.items, start, words, 0, self.items.end)
        return self.start([rest]) if rest.least < ENDLESS else None

    def after_key(self, keys: Keys, key: int) -> LazyState:
        """The position after the text of a key."""
        with self._lock:
            return self._alone(keys.after(self.items, key))

    def meet(self, place: LazyState) -> None:
        """Work out what can be read at a position."""
        with self._lock:
            if place.is_met:
                return
            check_time()
            if len(place.core) == 1 and not place.has_calls and not isinstance(only := next(iter(place.core)), Keys):
                alone: dict[LazyState, ByteSet] = {}
                for members, target in only.edges(self.items):  # disjoint already
                    after = target.alone or self._alone(target)
                    if after.least < ENDLESS:
                        alone[after] = alone.get(after, 0) | members
                place.edges = [(members, after) for after, members in alone.items()]
                place.is_met = True
                self._note_loops(place, alone)
                return
            by_mask: dict[ByteSet, set[LazyItem]] = {}
            for item in place.core:
                for members, target in item.edges(self.items):
                    known = by_mask.get(members)
                    if known is None:
                        by_mask[members] = {target}
                    else:
                        known.add(target)
            joined: dict[LazyState, ByteSet] = {}
            for members, targets in disjoint(by_mask):
                after = self._place(targets)
                if after.least < ENDLESS:
                    joined[after] = joined.get(after, 0) | members
            # Items come in no order; what is numbered after edges is the same in every process.
            place.edges = sorted([(members, after) for after, members in joined.items()], key=lowest)
            place.is_met = True
            self._note_loops(place, joined)

    def _note_loops(self, place: LazyState, after: Mapping[LazyState, ByteSet]) -> None:
        """after: the bytes that lead to each position after this one."""
        if self.is_shared and not place.final and place in after:
            place.loops = bytes(bytes_in(after[place]))

    def call(self, place: LazyState) -> None:
        """Work out which rules begin at a position."""
        with self._lock:
            if place.is_called:
                return
            check_time()
            calls = [item for item in place.core if isinstance(item, RuleCall)]
            if len(calls) == 1:
                (only,) = calls
                place.calls = ((_start_of(only), only.after.alone or self._alone(only.after)),)
            else:
                called: dict[LazyState, set[LazyItem]] = {}
                for item in calls:
                    called.setdefault(_start_of(item), set()).add(item.after)
                place.calls = [(start, self._place(targets)) for start, targets in called.items()]
            place.is_called = True

    def step(self, place: LazyState, byte: int) -> LazyState | None:
        """Work out which position follows a byte."""
        with self._lock:
            check_time()
            after: LazyState | None = None
            if place.is_met:
                after = next((after for members, after in place.edges if members >> byte & 1), None)
            else:
                targets: dict[LazyItem, None] = {}
                for item in place.core:
                    targets.update(dict.fromkeys(item.step(self.items, byte)))
                if targets:
                    after = self._place(targets)
                    if after.least >= ENDLESS:
                        after = None
            place.steps[byte] = after
            if after is place and self.is_shared and not place.final:
                place.loops = bytes([byte]) if place.loops is None else place.loops + bytes([byte])
            return after

    def read(self, place: LazyState, data: bytes, at: int) -> list[tuple[LazyState, int]]:
        """The positions after bytes of `data` from `at` on, each with where in `data` it stands: at the end, or where
        the rule may end or others are called. Empty where they cannot be read. No position in between is made."""
        with self._lock:
            check_time()
            items, end = self.items, len(data)
            if len(place.core) == 1:
                (item,) = place.core
                while len(arrivals := item.read(items, data, at)) == 1:
                    item, at = arrivals[0]
                    if item.least >= ENDLESS:
                        return []
                    if at == end or not item.stays:
                        return [(after, at)] if (after := item.alone or self._alone(item)).least < ENDLESS else []
            else:
                arrivals = [arrival for item in place.core for arrival in item.read(items, data, at)]
            arrived: dict[int, dict[LazyItem, None]] = {}
            todo = list(dict.fromkeys(arrivals))
            met = set(todo)
            for target, past in todo:  # grows as bytes are read
                if target.least >= ENDLESS:
                    continue
                if target.stays and past < end:
                    fresh = [arrival for arrival in target.read(items, data, past) if arrival not in met]
                    met.update(fresh)
                    todo += fresh
                else:
                    arrived.setdefault(past, {})[target] = None
            return [
                (after, past) for past, targets in arrived.items() if (after := self._place(targets)).least < ENDLESS
            ]

    def shortened(self, place: LazyState, longest: int) -> LazyState:
        """A position that reads the same texts of at most `longest` bytes; one for all large counts."""
        items = place.core if place.item is None else (place.item,)
        if not any(item.counted for item in items):
            return place
        with self._lock:
            if place.short is None:
                place.short = {}
            short = place.short.get(longest)
            if short is None:
                short = place
                if all(item.length <= MAX_LENGTH for item in items):
                    short = self._place([item.shortened(self.items, longest) for item in items])
                place.short[longest] = short
            return short

    def _place(self, targets: Iterable[LazyItem]) -> LazyState:
        targets = tuple(targets)
        if len(targets) == 1:
            return targets[0].alone or self._alone(targets[0])
        core = {item: None for target in targets for item in self._closed(target)}
        return self._known(tuple(core))

    def _alone(self, only: LazyItem) -> LazyState:
        """The position of one item."""
        place: LazyState | None = only.alone
        if place is None:
            is_read = only.reads and only.least < ENDLESS
            place = only.alone = self._known((only,) if is_read else self._closed(only))
            if place.item is None:
                place.item = only
        return place

    def _known(self, core: tuple[LazyItem, ...]) -> LazyState:
        key = _key(core)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = LazyState(self, core)
        return place

    def _closed(self, item: LazyItem) -> tuple[LazyItem, ...]:
        """The items that one stands for, which read something or end the rule."""
        if item.reads:
            return (item,) if item.least < ENDLESS else ()
        if item.closed is not None:
            return item.closed
        items: dict[LazyItem, None] = {}
        seen = {item}
        todo = [item]
        while todo:
            check_time()
            for way in todo.pop().ways(self.items):
                if way not in seen and way.least < ENDLESS:
                    seen.add(way)
                    if way.reads:
                        items[way] = None
                    elif way.closed is not None:
                        items.update(dict.fromkeys(way.closed))
                    else:
                        todo.append(way)
        item.closed = tuple(items)
        return item.closed


def _key(core: Collection[LazyItem]) -> Hashable:
    """What tells the position of these items from others."""
    return next(iter(core)) if len(core) == 1 else frozenset(core)


def _start_of(call: RuleCall) -> LazyState:
    start: LazyState = call.start.place() if isinstance(call.start, Later) else call.start
    return start
