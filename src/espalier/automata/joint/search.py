"""Decides which joint states can still reach a common end, and remembers a way there for each.

A state is tried first by the members' own completions: one member after another goes to its nearest end while the
others read along. Only where that fails is there a search over bytes and named tokens, nearest states first, of bounded
size. What is found holds for every state on the way; a search that runs out of states shows that all of them are dead.
What is remembered once is not changed until all is forgotten, so a token that was allowed stays allowed.
It knows no masks and no EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from espalier.automata.joint.lengths import ENDLESS
from espalier.automata.joint.members import JointMember
from espalier.automata.masks.machine import State
from espalier.time_limit import check as check_time
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

DEAD, UNKNOWN = -1, -2
"""What is told of a state instead of the length of its completion."""
MAX_JUDGED = 100_000
"""States about which something is remembered, about 400 bytes each; past that all is forgotten."""
MAX_EXPANDED = 200
"""The most states that one search expands."""
MAX_WORK = 400
"""The most states that the searches for one mask expand together."""
MAX_TRIED = 4_000
"""The longest completion of a member that is tried on the others, in bytes and named tokens."""

MAX_NAMED = 256
"""The most tokens of one reference that a search tries; `!<x>` matches nearly all."""


class JointSearch:
    """Not thread-safe: callers hold a lock. named: the tokens without bytes that some member names. missing: bytes
    without a token of their own. odd: the tokens that hold such a byte, `(W,) int32`; None if there are none.

    any_byte: search as if every byte had a token of its own, to tell a contradiction from a lack of tokens."""

    def __init__(
        self,
        members: Sequence[JointMember],
        vocab: Vocab,
        *,
        any_byte: bool = False,
        max_expanded: int = MAX_EXPANDED,
        max_work: int = MAX_WORK,
        max_judged: int = MAX_JUDGED,
    ) -> None:
        self._members = tuple(members)
        self._machines = tuple(member.machine for member in members)
        self._vocab = vocab
        self._missing = frozenset(() if any_byte else vocab.missing_bytes())
        self._odd: Mask | None = None
        if self._missing:
            odd = [t for t, data in enumerate(vocab.tokens) if not self._missing.isdisjoint(data)]
            self._odd = masks.from_ids(odd, vocab.width)
        self._bounded = any(member.lengths.bytes_left is not None for member in members)
        self._far: dict[State, int] = {}
        self._next: dict[State, tuple[int, State]] = {}
        self._max_expanded, self._max_work, self._max_judged = max_expanded, max_work, max_judged
        self._work = 0
        self._whole = True  # the search that runs has left nothing out
        count = len(members)
        # Each member is once the last to go to its end; the others go first, in their order. The first member comes
        # first at first: it is the text's structure mostly, and filters have no near end that is quick to find.
        self._orders = [(*(i for i in range(count) if i != last), last) for last in reversed(range(count))]

    def begin(self) -> None:
        """Call it before each mask or token: only then may anything be forgotten."""
        self._work = 0
        if len(self._far) > self._max_judged:
            self._far = {}
            self._next = {}

    @property
    def size(self) -> int:
        """Bytes held in memory, about."""
        return 400 * len(self._far)

    def accepts(self, state: State) -> bool:
        return all(machine.accepts(part) for machine, part in zip(self._machines, state, strict=True))

    def far(self, state: State) -> int:
        """How many bytes and named tokens complete the text at most; DEAD if nothing does, UNKNOWN if the search was
        given up."""
        length = self._far.get(state)
        if length is None:
            length = self._judge(state)
        return length

    def safe_step(self, number: int, part: State) -> tuple[int, State] | None:
        """The first symbol of a member's own completion and its state after it; None where that says nothing of other
        members' states, or the member is complete."""
        step = None if self._bounded else self._members[number].step(part)
        return None if step is None or step[0] in self._missing else step

    def way(self, state: State) -> list[int]:
        """The symbols of the known completion of a state that `far` finds alive."""
        symbols: list[int] = []
        if self.far(state) < 0:
            raise AssertionError("no completion of this state is known")
        while not self.accepts(state):
            symbol, state = self._next[state]
            symbols.append(symbol)
        return symbols

    def take(self, state: State, symbol: int) -> State | None:
        """The joint state after a symbol, whether it is alive or not."""
        after = []
        for member, part in zip(self._members, state, strict=True):
            ahead = member.take(part, symbol)
            if ahead is None:
                return None
            after.append(ahead)
        return tuple(after)

    def least(self, state: State) -> int:
        """A lower bound on the bytes and named tokens of a completion."""
        return max(machine.least(part) for machine, part in zip(self._machines, state, strict=True))

    def _judge(self, state: State) -> int:
        if self._too_long(state):
            self._far[state] = DEAD
            return DEAD
        if self._work >= self._max_work:
            self._far[state] = UNKNOWN
            return UNKNOWN
        if self._tried(state):
            return self._far[state]
        return self._searched(state)

    def _too_long(self, state: State) -> bool:
        """Whether one member needs more than another can still take."""
        if not self._bounded:
            return False
        bytes_left, characters_left = ENDLESS, ENDLESS
        for member, part in zip(self._members, state, strict=True):
            most, wide = member.lengths.most(part)
            bytes_left, characters_left = min(bytes_left, most), min(characters_left, wide)
        if bytes_left >= ENDLESS:
            return False
        return self.least(state) > bytes_left or any(
            member.lengths.needs(member.machine, part) > characters_left
            for member, part in zip(self._members, state, strict=True)
        )

    def _tried(self, state: State) -> bool:
        """Whether the members' own completions lead to a common end, which is then remembered."""
        return any(self._in_order(state, order) for order in self._orders)

    def _in_order(self, state: State, order: tuple[int, ...]) -> bool:
        members, far = self._members, self._far
        path: list[tuple[State, int]] = []
        at, place = state, 0
        while place < len(order):
            leader = order[place]
            step = members[leader].step(at[leader])
            if step is None:
                place += 1
                continue
            symbol = step[0]
            if len(path) >= MAX_TRIED or symbol in self._missing:
                return False
            after = []
            for number, member in enumerate(members):
                ahead = step[1] if number == leader else member.take(at[number], symbol)
                if ahead is None:
                    return False
                after.append(ahead)
            path.append((at, symbol))
            at = tuple(after)
            known = far.get(at)
            if known is not None:
                if known < 0:
                    return False
                self._mark(path, at, known)
                return True
        if not self.accepts(at):
            return False
        self._mark(path, at, 0)
        return True

    def _mark(self, path: list[tuple[State, int]], end: State, rest: int) -> None:
        """Remember a path to a state whose completion has `rest` symbols."""
        self._far[end] = rest
        after = end
        for state, symbol in reversed(path):
            rest += 1
            known = self._far.get(state)
            if known is None or known < 0 or known > rest:
                self._far[state] = rest
                self._next[state] = (symbol, after)
            rest = self._far[state]
            after = state

    def _searched(self, start: State) -> int:
        came: dict[State, tuple[State, int] | None] = {start: None}
        heap: list[tuple[int, int, State]] = [(self.least(start), 0, start)]
        count = 0
        self._whole = True
        while heap:
            check_time()
            _, _, state = heappop(heap)
            known = self._far.get(state)
            if known == UNKNOWN:
                self._whole = False
                continue
            if known is None and state is not start and self._tried(state):
                known = self._far[state]
            if known is not None and known >= 0:
                self._mark(self._path(came, state), state, known)
                return self._far[start]
            if count >= self._max_expanded or self._work >= self._max_work:
                self._far[start] = UNKNOWN
                return UNKNOWN
            count += 1
            self._work += 1
            for symbol, after in self._moves(state):
                if after in came:
                    continue
                known = self._far.get(after)
                if known == DEAD or (known is None and self._too_long(after)):
                    continue
                came[after] = state, symbol
                heappush(heap, (self.least(after), len(came), after))
        if not self._whole:
            self._far[start] = UNKNOWN
            return UNKNOWN
        for state in came:
            self._far[state] = DEAD
        return DEAD

    def _path(self, came: dict[State, tuple[State, int] | None], state: State) -> list[tuple[State, int]]:
        path: list[tuple[State, int]] = []
        before = came[state]
        while before is not None:
            path.append(before)
            before = came[before[0]]
        return path[::-1]

    def _moves(self, state: State) -> list[tuple[int, State]]:
        """The symbols that every member takes, and the state after each. Where bytes have no token of their own, the
        tokens that hold such a byte count as one symbol."""
        members = -1
        named: dict[int, None] = {}
        for member, part in zip(self._members, state, strict=True):
            read, refs = member.machine.options(part)
            members &= read
            for ref in refs:
                matching = member.references[ref][1]
                self._whole = self._whole and len(matching) <= MAX_NAMED
                named |= dict.fromkeys(matching[:MAX_NAMED].tolist())
        moves: list[tuple[int, State]] = []
        while members:
            lowest = members & -members
            members ^= lowest
            byte = lowest.bit_length() - 1
            if byte not in self._missing and (after := self.take(state, byte)) is not None:
                moves.append((byte, after))
        if self._odd is not None:
            allowed = self._odd.copy()
            for member, part in zip(self._members, state, strict=True):
                allowed &= member.machine.mask(part)
            named |= dict.fromkeys(masks.allowed_ids(allowed, self._vocab.width).tolist())
        moves += [(-1 - token, after) for token in named if (after := self.take(state, -1 - token)) is not None]
        return moves
