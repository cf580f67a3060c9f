"""States as rows of the table that walks of the token trie read, filled when a walk meets them; and the states that a
walk leaves to others. It knows no vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.nfa import ByteSet, bytes_in, utf8_edges
from espalier.automata.lazy.explored import LazyState
from espalier.automata.lazy.items import Alternatives, Char, End, LazyItem, LiteralText, Times
from espalier.automata.masks.layout import KIND
from espalier.automata.masks.parts import Hand, PartStore, nodes_of_any
from espalier.automata.masks.stacks import StackAutomaton
from espalier.automata.masks.states import Stacks
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Alternative, AnyChar, CharClass, Node
from espalier.time_limit import check as check_time

State = TypeVar("State", bound=Hashable)
FIRST_ROWS = 16
"""Rows of a new table: many constraints need no more, and the table counts as theirs."""


class StateRows(ABC, Generic[State]):
    """The states met so far as rows of a table, see `walker.Rows`. Clear it only between walks."""

    def __init__(self, classes: NDArray[np.uint8], letters: int, max_rows: int) -> None:
        self._max_rows = max_rows
        self.classes = classes
        self._letters = letters
        self.clear()

    def clear(self) -> None:
        self.number: dict[State, int] = {}
        self.states: list[State] = []
        self._allocate(FIRST_ROWS)

    def _allocate(self, size: int) -> None:
        old = len(self.states)
        table = np.empty((size, self._letters), dtype=np.int32)  # (S, C), set row by row: memory comes as it is used
        flags = np.zeros((3, size), dtype=np.uint8)
        readings = np.zeros((size, 5), dtype=np.int32)
        if old:
            table[:old] = self.table[:old]
            flags[:, :old] = (self.known[:old], self.leaves[:old], self.ends[:old])
            readings[:old] = self.readings[:old]
        self.table: NDArray[np.int32] = table
        self.known: NDArray[np.uint8] = flags[0]
        self.leaves: NDArray[np.uint8] = flags[1]
        self.ends: NDArray[np.uint8] = flags[2]
        self.ends[:] = 1
        self.readings: NDArray[np.int32] = readings

    def row(self, state: State) -> int:
        """The number of a state's row, a new one if it has none."""
        number = self.number.get(state)
        if number is None:
            check_time()
            number = len(self.states)
            if number >= self._max_rows:
                raise LimitExceeded(
                    f"one mask of the grammar meets more than {self._max_rows} states",
                    hint="the grammar is highly ambiguous; write it with repetitions",
                )
            if number >= self.table.shape[0]:
                self._allocate(2 * number)
            self.number[state] = number
            self.states.append(state)
            self.table[number] = -1
            self.leaves[number] = self.may_return(state)
            self.readings[number, 2:] = self.simpler(state, number)
        return number

    def fill(self, number: int) -> None:
        """See `Rows`."""
        moves = [(_selector(letters), target) for letters, target in self.moves(self.states[number])]
        row = self.table[number]  # the table may have been replaced by a larger one meanwhile
        for selector, target in moves:
            row[selector] = target
        self.known[number] = 1

    def simpler(self, state: State, number: int) -> tuple[int, int, int]:
        """The row of a state that is easier to look at, the kinds with which the rule may end, and the most characters,
        0 for any number, see `kernels.UNIFORM`."""
        return number, 0, 0

    @abstractmethod
    def may_return(self, state: State) -> bool:
        """Whether the rule may end in a state."""

    @abstractmethod
    def moves(self, state: State) -> Iterable[tuple[ByteSet, int]]:
        """The sets of letters that a state reads, each with the row of the state after them."""


class StackRows(StateRows[Stacks]):
    """Sets of stacks."""

    def __init__(self, automaton: StackAutomaton, max_rows: int) -> None:
        super().__init__(automaton.network.classes, automaton.network.letters, max_rows)
        self.automaton = automaton

    def may_return(self, state: Stacks) -> bool:
        return state.accepting

    def moves(self, state: Stacks) -> Iterable[tuple[ByteSet, int]]:
        return [(letters, -1 if after is None else self.row(after)) for letters, after in self.automaton.spread(state)]


class LeafRows(StateRows[LazyState]):
    """Positions of automata that call no rules."""

    def __init__(self, max_rows: int) -> None:
        super().__init__(np.arange(256, dtype=np.uint8), 256, max_rows)

    def may_return(self, state: LazyState) -> bool:
        return state.final

    def moves(self, state: LazyState) -> Iterable[tuple[ByteSet, int]]:
        return [(letters, self.row(after)) for letters, after in state.met().edges]

    def simpler(self, state: LazyState, number: int) -> tuple[int, int, int]:
        """Where a character may follow again and again, all texts of such characters can be read, whatever else may:
        in a pattern that may begin anywhere, the text around it. For this, a repetition of these characters alone is
        looked at, which many states share."""
        loops = [(item, *loop) for item in state.core if (loop := repeated_class(item)) is not None]
        last = {last_byte(item) for item in state.core} if loops else {None}
        if None in last:
            return number, 0, 0
        items = state.explored.items
        item, times, node = max(loops, key=lambda loop: sum(letters.bit_count() for letters, _ in loop[0].edges(items)))
        limit = 0 if times.node.max is None else 1 + times.node.max - times.count
        end = items.text(bytes([last_byte(item) or 0]), 0, items.end)
        base = self.row(state.explored.start([items.times(items.repeat(node, 0, None), 0, end)]))
        return base, int(np.bitwise_or.reduce(KIND[[*last]])), limit


def repeated_class(item: LazyItem) -> tuple[Times, Node] | None:
    """The repetition and its class of characters, of which an item reads one, if others of it may follow."""
    if not isinstance(item, Char) or item.at or not isinstance(item.after, Times):
        return None
    node = item.after.node.item
    for option in node.options if isinstance(node, Alternative) else (node,):
        if isinstance(option, CharClass | AnyChar) and utf8_edges(option.scalars()) is item.nodes:
            return item.after, option
    return None


def last_byte(item: LazyItem) -> int | None:
    """The byte with which all texts from an item on end; None where they may end with several."""
    while isinstance(item, Char | LiteralText | Alternatives | Times):
        if isinstance(item.after, End):
            return item.text[-1] if isinstance(item, LiteralText) else None
        item = item.after
    return None


class HandedStates:
    """The states of one walk all of whose positions are apart, see `Sharing`; and the nodes below which the walk left
    them out."""

    def __init__(self, rows: StackRows) -> None:
        self._rows = rows
        self._found: dict[int, list[NDArray[np.int32]]] = {}
        self._known: dict[int, list[tuple[int, tuple[int, ...]]]] = {}

    def takes(self, state: int) -> bool:
        stacks = self._known.get(state)
        if stacks is None:
            stacks = self._known[state] = self._stacks(state)
        return bool(stacks)

    def take(self, state: int, nodes: NDArray[np.int32]) -> None:
        self._found.setdefault(state, []).append(nodes)

    def hands(self, store: PartStore) -> tuple[Hand, ...]:
        hands: list[Hand] = []
        for state, some in self._found.items():
            nodes = store.nodes(nodes_of_any(some))
            hands += [Hand(nodes, position, pushed) for position, pushed in self._known[state]]
        return tuple(hands)

    def _stacks(self, state: int) -> list[tuple[int, tuple[int, ...]]]:
        """The stacks of a state, empty if they are not simple or not all apart."""
        automaton = self._rows.automaton
        pushes: list[tuple[int, tuple[int, ...]]] = []
        for position, below in self._rows.states[state].items:
            if automaton.is_apart is None or not automaton.is_apart(position):
                return []
            pushed = automaton.pushed(below)
            if pushed is None:
                return []
            pushes.append((position, pushed))
        return pushes


@lru_cache(maxsize=4096)
def _selector(letters: ByteSet) -> int | NDArray[np.intp]:
    """A set of letters as an index into a row."""
    numbers = bytes_in(letters)
    return numbers[0] if len(numbers) == 1 else np.array(numbers, dtype=np.intp)
