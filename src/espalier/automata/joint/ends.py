"""Completions of a joint machine's texts, in tokens: `Ends` over the ways that the search for common ends remembers."""

from __future__ import annotations

from espalier.automata.ends.closing import Ends
from espalier.automata.joint.lengths import ENDLESS
from espalier.automata.joint.machine import JointMachine
from espalier.automata.masks.machine import State
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_WALKS = 6
"""States that one search under a token limit expands: what follows each is costly to list for several members."""
SHORTEST_WALKS = 12
DEEP = 3


class JointNearest:
    """The known completion of each joint state, spelled with few tokens."""

    def __init__(self, machine: JointMachine, trie: TokenTrie, vocab: Vocab) -> None:
        self._machine = machine
        self._trie = trie
        self._vocab = vocab

    def count(self, state: State) -> int:
        """How many tokens the completion has. Raises LimitExceeded as `completion` does."""
        return len(self.completion(state))

    def completion(self, state: State) -> tuple[int, ...]:
        """The tokens of the completion. Raises LimitExceeded where none is known."""
        tokens: list[int] = []
        run = bytearray()
        for symbol in self._machine.way(state):
            if symbol >= 0:
                run.append(symbol)
            else:
                tokens += [*self._spell_bytes(bytes(run)), -1 - symbol]
                run.clear()
        return (*tokens, *self._spell_bytes(bytes(run)))

    def _spell_bytes(self, data: bytes) -> tuple[int, ...]:
        tokens = self._trie.segment(data)
        if tokens is None:
            raise AssertionError("a way to the end has a byte without a token")
        return tokens


class JointEnds(Ends):
    """`Ends` of a joint machine. What is exact there is a bound here: a completion is looked for near the known one."""

    _machine: JointMachine

    def __init__(self, machine: JointMachine, trie: TokenTrie, vocab: Vocab) -> None:
        super().__init__(
            machine, trie, vocab, max_walks=MAX_WALKS, deep=DEEP, nearest=JointNearest(machine, trie, vocab)
        )

    def _at_most(self, state: State) -> int:
        length = self._machine.far(state)
        return ENDLESS if length is None else length

    def _is_near(self, state: State, most: int) -> bool:
        return self._machine.far(state) is not None and self._nearest.count(state) <= most

    def shortest(self, state: State, *, max_walks: int = SHORTEST_WALKS) -> tuple[int, ...]:
        """See `Ends.shortest`. Raises LimitExceeded where no completion is known."""
        return super().shortest(state, max_walks=max_walks)

    def plainest(self, state: State) -> tuple[int, ...]:
        """The known completion, not always that of fewest bytes. Raises LimitExceeded where none is known."""
        return self._nearest.completion(state)
