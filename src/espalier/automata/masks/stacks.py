"""The states of the pushdown automaton: sets of stacks of network positions, interned and shared (a graph-structured
stack).

A network has the positions of each rule (`positions.py`). A rule that calls another one is left at a position, and goes
on at a second one when the call returns; a stack holds those positions, one for each open call. A text may be read in
several ways, so a state is a set of stacks:

    root ::= "[" root? "]"           0 --"["--> 1 --"]"--> 2 ends
                                                1 --root--> 3 --"]"--> 2

    after "[["    0 --> 3 --> 3 --> .      a third "[" can be read; the calls then return to 3, to 3, to the end
                  1 ---------> 3 --> .     or the "]" of the second one

    >>> from espalier.automata.languages.network import build_network
    >>> from espalier.grammar.parser import parse
    >>> network = build_network(parse('root ::= "[" root? "]"'))
    >>> automaton = StackAutomaton(network)
    >>> state = automaton.start
    >>> for byte in b"[[":
    ...     state = automaton.step(state, int(network.classes[byte]))
    >>> [(top, automaton.pushed(below)) for top, below in state.items]
    [(0, (3, 3)), (1, (3,))]

A set of stacks is a map from each top position to the set of stacks below it, plus whether it holds the empty stack
(the dot above). Equal sets are one object, `3 --> .` in both rows, so nullable loops and ambiguity only merge equal
parts, and each set can cache its transitions:

    >>> (_, deep), (_, flat) = state.items
    >>> deep.items[0][1] is flat
    True

A call whose return position has nothing left to do pushes nothing (tail call), so right recursion does not grow the
stack, even if each call is followed by the same repetition.

In a *state*, a pair (position, below) stands for the bytes and tokens that can be read at that very position: 0 and 1
above. In a *frame*, it stands for everything the position can continue with, calls and returns included: after "[[" the
frame is 1 alone. `close` computes the state of a frame. This module knows no vocabulary and no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from espalier.automata.languages.fragment import Targets, disjoint
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.lazy.explored import lowest
from espalier.automata.lazy.held import take_held
from espalier.automata.masks.positions import PositionNetwork
from espalier.automata.masks.repetitions import Repetitions
from espalier.automata.masks.states import FrameOutline, Items, Stacks, pair
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time

MAX_INTERNED = 200_000
"""The most sets kept for reuse; past that all but those in use are forgotten."""
ITEMS_A_SET = 8
"""So many items count as one more set."""
MAX_FOLLOWED = 100
"""Calls within calls that are followed one by one."""
MAX_WORK = 2_000_000
"""The most stacks looked at in one step."""


class StackAutomaton:
    """The pushdown automaton of a network. Not thread-safe: callers hold a lock."""

    def __init__(self, network: PositionNetwork, *, max_interned: int = MAX_INTERNED, max_work: int = MAX_WORK) -> None:
        self.network = network
        self.max_interned = max_interned
        self._max_work = max_work
        self.spent = 0  # stacks looked at since the caller last reset it, before a mask or a token
        self._known: dict[tuple[Items, bool], Stacks] = {}
        self._held = 0  # items of all sets in `_known`
        self._made: list[Stacks] = []  # what is in `_known` or in some set's `frames`, in the order of making
        self._earlier: list[Stacks] = []  # in use when all was forgotten last
        self._unions: dict[tuple[Stacks, Stacks], Stacks] = {}
        self._repetitions = Repetitions(network)
        self._outlines: dict[int, FrameOutline] = {}
        self._entered_once: set[int] = set()  # an outline is worth its work from the second time on
        self.is_apart: Callable[[int], bool] | None = None  # whether a position makes a group of its own
        self._live, self._plain = network.live, network.plain
        self._follow_calls = network.follow_calls
        self.end = self.make((), True)
        self.start = self.enter(network.start, self.end)

    def __del__(self) -> None:
        """Break the cycles of sets and what stands on them, one by one: what compiling left behind when it ran out of
        time is free at once, and no collection of garbage, which stops every thread, has to find it."""
        self._known = {}
        while self._made:
            stacks = self._made.pop()  # as `forget` does, whose calls would take as long again
            stacks.closed = stacks.groups = stacks.steps = stacks.moves = stacks.frames = None

    def make(self, items: Items, accepting: bool) -> Stacks:
        """The interned set with these items, which are sorted by position."""
        if len(items) == 1 and not accepting:
            return self.push(*items[0])
        key = (items, accepting)
        stacks = self._known.get(key)
        if stacks is None:
            # A set without items accepts, or is empty and its `least` is never used.
            costs = self.network.least
            least = 0 if accepting else min([costs[p] + below.least for p, below in items], default=0)
            stacks = self._known[key] = Stacks(items, accepting, least)
            self._made.append(stacks)
            self._held += len(items)
        return stacks

    def push(self, position: int, below: Stacks) -> Stacks:
        """The interned set of one position on top of a set."""
        frames = below.frames
        if frames is None:
            frames = below.frames = {}
        stacks = frames.get(position)
        if stacks is None:
            stacks = Stacks(((position, below),), False, self.network.least[position] + below.least)
            if self._plain[position]:
                stacks.closed = stacks
            frames[position] = stacks
            self._made.append(stacks)
        return stacks

    def forget(self) -> None:
        """Drop every cache but the start. States in use stay valid; their transitions are computed again."""
        self._earlier = take_held(self._dropped())
        for stacks in (self.end, self.start):
            self._made.append(stacks)
            if len(stacks.items) == 1 and not stacks.accepting:
                position, below = stacks.items[0]
                below.frames = {position: stacks}
            else:
                self._known[stacks.items, stacks.accepting] = stacks

    def _dropped(self) -> list[Stacks]:
        """All sets, which know nothing but what is below them any more and are no longer in the tables."""
        dropped = list(dict.fromkeys((*reversed(self._earlier), *self._made)))
        for stacks in dropped:
            stacks.forget()
        self._earlier, self._made, self._known, self._unions, self._held = [], [], {}, {}, 0
        return dropped

    def forget_positions(self) -> None:
        """The same, and the positions that no state in use holds. Not while someone walks, nor while a cache of the
        caller holds states."""
        self.forget()
        self._repetitions.forget()
        self._outlines.clear()
        self._entered_once.clear()
        self.network.forget({position for state in self._earlier for position, _ in state.items})

    @property
    def interned(self) -> int:
        # A set of many stacks counts more than one of a few.
        return len(self._made) + len(self._unions) + self._held // ITEMS_A_SET

    def step(self, state: Stacks, letter: int) -> Stacks | None:
        """The state after a byte of class `letter`, None if no stack can read it."""
        if state.steps is None:
            state.steps = {}
        elif letter in state.steps:
            return state.steps[letter]
        move = self.network.move
        after = self._after([(targets, below) for p, below in state.items if (targets := move(p, letter))])
        state.steps[letter] = after
        return after

    def read(self, state: Stacks, data: bytes) -> Stacks | None:
        """The state after some bytes, None if no stack can read them. Each stack is read as far as its position goes by
        itself, so no state is made where nothing returns and nothing is called."""
        read, end, at = self.network.read, len(data), 0
        waiting: dict[int, dict[int, Stacks]] = {}  # by where in `data` they stand
        while True:
            for position, below in state.items:
                arrivals = read(position, data, at)
                if len(arrivals) == len(state.items) == 1 and not waiting and len(arrivals[0][0]) == 1:
                    ((position,), at) = arrivals[0]
                    state = self.enter(position, below)
                    break
                for targets, past in arrivals:
                    merged = waiting.setdefault(past, {})
                    for target in targets:
                        self._put(merged, target, below)
            else:
                if not waiting:
                    return None
                at = min(waiting)
                merged = waiting.pop(at)
                is_alone = len(merged) == 1
                state = self.enter(*merged.popitem()) if is_alone else self.close(self._intern_stacks(merged, False))
            if at == end:
                return state

    def spread(self, state: Stacks) -> list[tuple[ByteSet, Stacks | None]]:
        """The disjoint sets of letters that the state reads, each with the state after them."""
        edges = self.network.edges
        if len(state.items) == 1:
            position, below = state.items[0]
            return [
                (letters, self.enter(targets[0], below) if len(targets) == 1 else self._after([(targets, below)]))
                for letters, targets in edges(position)
            ]
        by_letters: dict[ByteSet, set[int]] = {}
        pairs: list[tuple[Targets, Stacks]] = []
        for position, below in state.items:
            for letters, targets in edges(position):
                by_letters.setdefault(letters, set()).add(len(pairs))
                pairs.append((targets, below))
        groups = sorted(disjoint(by_letters), key=lowest)
        return [(letters, self._after([pairs[i] for i in sorted(some)])) for letters, some in groups]

    def _after(self, taken: list[tuple[Targets, Stacks]]) -> Stacks | None:
        if not taken:
            return None
        targets, below = taken[0]
        if len(taken) == 1 and len(targets) == 1:
            return self.enter(targets[0], below)
        merged: dict[int, Stacks] = {}
        for targets, below in taken:
            for target in targets:
                self._put(merged, target, below)
        return self._enter_calls(merged)

    def enter(self, position: int, below: Stacks) -> Stacks:
        """The state of one position on top of a set of stacks."""
        frame = self.push(position, below)
        return frame.closed or self._follow(frame)

    def _follow(self, frame: Stacks) -> Stacks:
        """The state of a frame of one position: where it only calls one rule, and so on, each set is known at once."""
        net, inner = self.network, frame
        state: Stacks | None = None
        for _ in range(MAX_FOLLOWED):
            position, below = inner.items[0]
            if net.pure[position]:
                state = below.closed
                break
            if self._live[position] or net.final[position]:
                break
            self._follow_calls(position)
            if len(net.calls[position]) != 1:
                break
            ((start, after),) = net.calls[position]
            if not net.pure[after] and not self._repetitions.is_on(below, after):
                below = self.push(after, below)
            inner = self.push(start, below)
            state = inner.closed
            if state is not None:
                break
        frame.closed = self.close(inner) if state is None else state
        return frame.closed

    def take_token(self, state: Stacks, ref: int) -> Stacks | None:
        """The state after a token that matches reference number `ref`, by that reference alone."""
        merged: dict[int, Stacks] = {}
        for position, below in state.items:
            for known, targets in self.network.tokens[position]:
                if known == ref:
                    for target in targets:
                        self._put(merged, target, below)
        return self._enter_calls(merged)

    def split(self, state: Stacks, owners: Sequence[int]) -> dict[int, Stacks]:
        """See `PushdownMachine.split`."""
        items: dict[int, list[tuple[int, Stacks]]] = {}
        for position, below in state.items:
            items.setdefault(owners[position], []).append((position, below))
        if state.accepting:
            items.setdefault(-1, [])
        if len(items) == 1:
            return dict.fromkeys(items, state)
        return {owner: self.make(tuple(pairs), state.accepting and owner < 0) for owner, pairs in items.items()}

    def leave(self, state: Stacks, owners: Sequence[int]) -> Stacks:
        """See `PushdownMachine.leave`."""
        merged: dict[int, Stacks] = {}
        accepting = False
        todo, seen = [state], {state}
        while todo:
            check_time()
            frame = todo.pop()
            accepting = accepting or frame.accepting
            for position, below in frame.items:
                if owners[position] < 0:
                    self._put(merged, position, below)
                elif below not in seen:
                    seen.add(below)
                    todo.append(below)
        return self.close(self._intern_stacks(merged, accepting))

    def _enter_calls(self, merged: dict[int, Stacks]) -> Stacks | None:
        return self.close(self._intern_stacks(merged, False)) if merged else None

    def _intern_stacks(self, merged: dict[int, Stacks], accepting: bool) -> Stacks:
        items = tuple(merged.items())
        return self.make(items if len(items) == 1 else tuple(sorted(items, key=itemgetter(0))), accepting)

    def _put(self, merged: dict[int, Stacks], position: int, below: Stacks) -> bool:
        """Add a pair to a map under construction; returns whether the map changed."""
        known = merged.get(position)
        if known is below:
            return False
        merged[position] = below if known is None else self.union(known, below)
        return merged[position] is not known

    def close(self, frame: Stacks, *, plainly: bool = False) -> Stacks:
        """The state of a frame: all calls followed, and returns taken where a rule can end. plainly: without
        outlines."""
        if frame.closed is not None:
            return frame.closed
        if all(self._plain[position] for position, _ in frame.items):
            frame.closed = frame
            return frame
        self._close_below(frame, plainly)
        return self.close(frame)

    def _close_below(self, frame: Stacks, plainly: bool) -> None:
        """Set `closed` of a frame, and of all those below it that it needs."""
        todo = [frame]
        waiting: set[Stacks] = set()  # frames that wait for frames below them to be closed
        while todo:
            check_time()
            current = todo[-1]
            if current.closed is not None:
                todo.pop()
                continue
            if len(current.items) == 1 and not current.accepting and not plainly:
                position, below = current.items[0]
                outline = self._outlines.get(position)
                if outline is None and position in self._entered_once:
                    outline = self._outline(position)
                self._entered_once.add(position)
                if outline is not None and outline.holds and below is not self.end:
                    if not outline.accepting or below.closed is not None:
                        current.closed = self._filled_in(outline, below)
                        self.spent += len(current.closed.items)
                        todo.pop()
                        continue
                    if below not in waiting:
                        waiting.add(current)
                        todo.append(below)
                        continue
            result: dict[int, Stacks] = {}
            accepting, missing, cost = self._expand(current, result, waiting)
            self._spend(cost)
            if missing:
                waiting.add(current)
                todo += missing
                continue
            current.closed = self._intern_stacks(result, accepting)
            todo.pop()

    def _spend(self, cost: int) -> None:
        """Count stacks that were looked at. Raises LimitExceeded."""
        self.spent += cost
        if self.spent > self._max_work:
            raise LimitExceeded(
                f"one step of the grammar looks at more than {self._max_work} stacks",
                hint="the grammar is highly ambiguous; write it with repetitions",
            )

    def _outline(self, position: int) -> FrameOutline:
        """The state of a frame of this position, whatever set lies below."""
        net = self.network
        holds = True
        reached = {position}
        todo = [position]
        while todo and holds:
            at = todo.pop()
            self._follow_calls(at)
            for call in net.calls[at]:
                # Where `_expand` looks at the set below, the result depends on that set.
                holds = holds and (net.pure[call[1]] or not self._repetitions.begins_at(call[1]))
                may_be_empty = net.least[call[0]] == 0  # only then does it return at once
                for place in call if may_be_empty else call[:1]:
                    if place not in reached:
                        reached.add(place)
                        if not self._plain[place]:
                            todo.append(place)
        items: list[tuple[int, tuple[int, ...]]] = []
        outline = FrameOutline((), False, False)
        if holds:
            local = self.close(self.push(position, self.end), plainly=True)
            for top, below in local.items:
                pushed = self.pushed(below)
                holds = holds and pushed is not None
                items.append((top, pushed or ()))
            outline = FrameOutline(tuple(items), local.accepting, holds)
        self._outlines[position] = outline
        return outline

    def _filled_in(self, outline: FrameOutline, below: Stacks) -> Stacks:
        """The state of an outline over a set; the set must be closed if the outline accepts."""
        merged: dict[int, Stacks] = {}
        for top, pushed in outline.items:
            under = below
            for position in pushed:
                under = self.push(position, under)
            merged[top] = under
        if not outline.accepting:
            return self.make(tuple(merged.items()), False)
        if below.closed is None:
            raise AssertionError("what lies below was to be closed first")
        for position, deeper in below.closed.items:
            self._put(merged, position, deeper)
        return self._intern_stacks(merged, below.closed.accepting)

    def _expand(self, frame: Stacks, result: dict[int, Stacks], waiting: set[Stacks]) -> tuple[bool, list[Stacks], int]:
        """Fill `result` with the state of a frame. Returns whether it accepts, the frames below that must be closed
        first, and the work done."""
        net = self.network
        accepting = frame.accepting
        missing: list[Stacks] = []
        reached: dict[int, Stacks] = {}
        work = 0
        todo: list[tuple[int, Stacks]] = list(frame.items)
        while todo:
            position, below = todo.pop()
            if not self._put(reached, position, below):
                continue
            below = reached[position]
            work += 1
            self._follow_calls(position)
            if self._live[position]:
                self._put(result, position, below)
            if net.final[position]:
                if below.closed is not None:
                    accepting = accepting or below.closed.accepting
                    work += len(below.closed.items)
                    for other, deeper in below.closed.items:
                        self._put(result, other, deeper)
                elif below in waiting or below is frame:
                    # A cycle: follow it here, where `reached` ends it.
                    accepting = accepting or below.accepting
                    todo += below.items
                else:
                    missing.append(below)
            for start, after in net.calls[position]:
                flat = net.pure[after] or self._repetitions.is_on(below, after)
                todo.append((start, below if flat else self.push(after, below)))
            if work > self._max_work:
                break
        return accepting, missing, work

    def union(self, stacks: Stacks, other: Stacks) -> Stacks:
        """The union of two sets. Raises LimitExceeded, and what `check_time` raises: sets of an ambiguous text have
        exponentially many unions."""
        if stacks is other:
            return stacks
        todo = [pair(stacks, other)]
        unions = self._unions
        while todo:
            check_time()
            both = todo[-1]
            if both in unions:
                todo.pop()
                continue
            left, right = both
            rest = dict(right.items)
            merged: dict[int, Stacks] = {}
            missing: list[tuple[Stacks, Stacks]] = []
            for position, below in left.items:
                also = rest.pop(position, None)
                if also is None or also is below:
                    merged[position] = below
                elif (deeper := pair(below, also)) in unions:
                    merged[position] = unions[deeper]
                else:
                    missing.append(deeper)
            if missing:
                todo += missing
                continue
            merged |= rest
            self._spend(len(merged))
            unions[both] = self._intern_stacks(merged, left.accepting or right.accepting)
            todo.pop()
        return unions[pair(stacks, other)]

    def groups(self, state: Stacks) -> tuple[tuple[Stacks, Stacks], ...]:
        """The state's pairs grouped by the set below: (their positions over the empty stack, the set below)."""
        if state.groups is None:
            alone, by_below = list[tuple[Stacks, Stacks]](), dict[Stacks, list[tuple[int, Stacks]]]()
            for position, below in state.items:
                if self.is_apart is not None and self.is_apart(position):
                    alone.append((self.push(position, self.end), below))
                else:
                    by_below.setdefault(below, []).append((position, self.end))
            state.groups = (*alone, *[(self.make(tuple(items), False), below) for below, items in by_below.items()])
        return state.groups

    def pushed(self, below: Stacks) -> tuple[int, ...] | None:
        """The positions of a set that is one stack, lowest first; None for others."""
        positions: list[int] = []
        while below is not self.end:
            if len(below.items) != 1 or below.accepting:
                return None
            position, below = below.items[0]
            positions.append(position)
        return tuple(reversed(positions))
