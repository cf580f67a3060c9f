"""From each state the way of fewest bytes to the end, and the fewest tokens that spell it.

Ways that meet share what follows, so a state beside one that was asked costs the bytes up to there. It is for machines
each of whose bytes has a token of its own, and knows nothing of EOS.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from espalier.automata.ends.complete import named
from espalier.automata.masks.machine import Machine, State
from espalier.time_limit import check as check_time
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_LINKS = 200_000
"""States of which the way is remembered; past that all are forgotten."""


class _Link(NamedTuple):
    """byte: the next one, -1 where a named token comes. after: the state then. token: of the fewest that spell the
    way, the first. jump: the state after it. cost: how many they are."""

    byte: int
    after: State
    token: int
    jump: State
    cost: int


class Nearest:
    """Safe across threads."""

    def __init__(self, machine: Machine, trie: TokenTrie, vocab: Vocab) -> None:
        self._machine = machine
        self._trie = trie
        self._lengths = [len(data) for data in vocab.tokens]
        self._longest = trie.max_depth
        self._links: dict[State, _Link] = {}
        self._lock = threading.Lock()

    def count(self, state: State) -> int:
        """How many tokens spell the way."""
        if self._machine.least(state) == 0:
            return 0
        with self._lock:
            return self._link(state).cost

    def way(self, state: State) -> tuple[int, ...]:
        """The tokens that spell it."""
        found: list[int] = []
        with self._lock:
            while self._machine.least(state) > 0:
                link = self._link(state)
                found.append(link.token)
                state = link.jump
        return tuple(found)

    def _link(self, state: State) -> _Link:
        links = self._links
        if state in links:
            return links[state]
        if len(links) > MAX_LINKS:
            links = self._links = {}
        machine = self._machine
        steps: list[tuple[State, int, int, State]] = []
        at = state
        while at not in links and machine.least(at) > 0:
            check_time()
            steps.append((at, *self._step(at)))
            at = steps[-1][3]
        for before, byte, token, after in reversed(steps):
            links[before] = self._spelled(byte, token, after)
        return links[state]

    def _step(self, state: State) -> tuple[int, int, State]:
        """The next byte, or -1 and the token that comes by its name; and the state then."""
        machine = self._machine
        members, refs = machine.options(state)
        wanted = machine.least(state) - 1
        while members:
            lowest = members & -members
            byte = lowest.bit_length() - 1
            after = machine.step(state, byte)
            if after is not None and machine.least(after) == wanted:
                return byte, -1, after
            members ^= lowest
        return -1, *named(machine, state, refs, wanted)

    def _spelled(self, byte: int, token: int, after: State) -> _Link:
        links = self._links
        if byte < 0:
            return _Link(byte, after, token, after, 1 + self._rest(after))
        ahead = bytearray([byte])
        ends = [after]
        while len(ahead) < self._longest and (link := links.get(ends[-1])) is not None and link.byte >= 0:
            ahead.append(link.byte)
            ends.append(link.after)
        best: tuple[int, int, int] | None = None  # tokens, bytes not taken by the first one, its id
        for one in self._trie.prefixes(bytes(ahead)):
            length = self._lengths[one]
            found = (1 + self._rest(ends[length - 1]), -length, one)
            best = found if best is None else min(best, found)
        if best is None:
            raise AssertionError("a byte has no token of its own")
        return _Link(byte, after, best[2], ends[-best[1] - 1], best[0])

    def _rest(self, state: State) -> int:
        return 0 if self._machine.least(state) == 0 else self._links[state].cost
