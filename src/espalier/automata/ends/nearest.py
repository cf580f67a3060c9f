"""The completion of fewest bytes from each state, spelled with the fewest tokens.

Completions that meet share their rest, so a state next to one that is known costs only the bytes between the two. It is
for machines that need no byte without a token of its own, and knows nothing of EOS.
"""

from __future__ import annotations

from typing import NamedTuple

from espalier.automata.masks.machine import Machine, State
from espalier.errors import LimitExceeded
from espalier.time_limit import WorkLock
from espalier.time_limit import check as check_time
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_LENGTH = 100_000
"""The longest completion, in bytes and named tokens."""
MAX_LINKS = 200_000
"""States whose completion is remembered; past that all are forgotten."""


class _Link(NamedTuple):
    """The first step of a state's completion.

    byte: the next byte, -1 for a named token. after: the state after that byte. token: the first token of the
    completion. jump: the state after that token. cost: how many tokens the completion has.
    """

    byte: int
    after: State
    token: int
    jump: State
    cost: int


class Nearest:
    """The completions of fewest bytes of one machine. Safe across threads."""

    def __init__(self, machine: Machine, trie: TokenTrie, vocab: Vocab) -> None:
        self._machine = machine
        self._trie = trie
        self._tokens = vocab.tokens
        self._longest = trie.max_depth
        self._links: dict[State, _Link] = {}
        self._lock = WorkLock()

    def count(self, state: State) -> int:
        """How many tokens the completion has. Raises LimitExceeded as `completion` does."""
        if self._machine.least(state) == 0:
            return 0
        with self._lock:
            return self._link(state).cost

    def completion(self, state: State) -> tuple[int, ...]:
        """The tokens of the completion. Raises LimitExceeded for more than MAX_LENGTH bytes."""
        tokens: list[int] = []
        with self._lock:
            while self._machine.least(state) > 0:
                link = self._link(state)
                tokens.append(link.token)
                state = link.jump
        return tuple(tokens)

    def _link(self, state: State) -> _Link:
        links = self._links
        if state in links:
            return links[state]
        if self._machine.least(state) > MAX_LENGTH:
            raise LimitExceeded(f"the shortest completion has more than {MAX_LENGTH} bytes")
        if len(links) > MAX_LINKS:
            links = self._links = {}
        machine = self._machine
        steps: list[tuple[State, int, int, State]] = []
        at = state
        while at not in links and machine.least(at) > 0:
            check_time()
            steps.append((at, *first_step(machine, at)))
            at = steps[-1][3]
        for before, byte, token, after in reversed(steps):
            links[before] = self._spell_link(byte, token, after)
        return links[state]

    def _spell_link(self, byte: int, token: int, after: State) -> _Link:
        links = self._links
        if byte < 0:
            return _Link(byte, after, token, after, 1 + self._rest(after))
        ahead = bytearray([byte])
        ends = [after]
        while len(ahead) < self._longest and (link := links.get(ends[-1])) is not None and link.byte >= 0:
            ahead.append(link.byte)
            ends.append(link.after)
        best: tuple[int, int, int] | None = None  # tokens, bytes not taken by the first one, its id
        for prefix in self._trie.prefixes(bytes(ahead)):
            length = len(self._tokens[prefix])
            cost = (1 + self._rest(ends[length - 1]), -length, prefix)
            best = cost if best is None else min(best, cost)
        if best is None:
            raise AssertionError("a byte has no token of its own")
        return _Link(byte, after, best[2], ends[-best[1] - 1], best[0])

    def _rest(self, state: State) -> int:
        return 0 if self._machine.least(state) == 0 else self._links[state].cost


def first_step(machine: Machine, state: State) -> tuple[int, int, State]:
    """The first byte of a completion of fewest bytes and named tokens, or -1 and a named token; and the state after it.
    The text must not be complete."""
    members, refs = machine.options(state)
    wanted = machine.least(state) - 1
    while members:
        lowest = members & -members
        byte = lowest.bit_length() - 1
        after = machine.step(state, byte)
        if after is not None and machine.least(after) == wanted:
            return byte, -1, after
        members ^= lowest
    for ref in refs:
        for token in machine.reference(ref)[1].tolist():
            after = machine.advance(state, token)
            if after is not None and machine.least(after) <= wanted:
                return -1, token, after
    raise AssertionError("a state is further from the end than all that follow it")
