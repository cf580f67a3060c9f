"""One member of a joint machine: its machine, the tokens that it names, and its own completions symbol by symbol.

A symbol is a byte, or a token that is named by its id, written `-1 - id`. A token without bytes of its own that a
member names nowhere is read by that member as its spelling in the text, which may be empty. It knows no other member.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from espalier.automata.ends.nearest import first_step
from espalier.automata.joint.lengths import Lengths
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Machine, State
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

MAX_STEPS = 100_000
"""States whose first step to the end is remembered; past that all are forgotten."""
LANDINGS_BYTES = 16 * 2**20
"""The limit on the remembered landings of one member."""


class TokenLandings:
    """which: for each token 0 if it is refused, else 1 + the index into `states` of the state after it, `(32 W,)`,
    uint16 or int32. states: the distinct states after a token."""

    __slots__ = ("_after", "states", "which")

    def __init__(self, which: NDArray[np.integer], states: tuple[State, ...]) -> None:
        self.which, self.states = which, states
        self._after: dict[int, tuple[NDArray[np.int32], list[State]]] = {}

    def after(self, member: JointMember, symbol: int) -> tuple[NDArray[np.int32], list[State]]:
        """What one more symbol makes of each state: 0 where it is refused, else 1 + the index into the distinct states
        that are returned with it, `(S,) int32`. member: the one whose states these are."""
        known = self._after.get(symbol)
        if known is None:
            numbers: dict[State | None, int] = {None: 0}
            codes = [numbers.setdefault(member.taken(state, symbol), len(numbers)) for state in self.states]
            known = self._after[symbol] = np.array(codes, dtype=np.int32), list(numbers)[1:]
        return known


class JointMember:
    """spelled: the special tokens that are part of the text, of all members together."""

    def __init__(self, machine: Machine, spelled: Mapping[int, bytes], vocab: Vocab) -> None:
        self.machine = machine
        self.lengths = Lengths.of(machine)
        self.named = named_tokens(machine, vocab)
        self.references = references(machine)
        self._spelled = spelled
        self._vocab = vocab
        self._size = 32 * masks.words(vocab.width)
        self._steps: dict[State, tuple[int, State] | None] = {}
        self._taken: dict[tuple[State, int], State | None] = {}
        self._landed: ByteCache[State, TokenLandings] = ByteCache(LANDINGS_BYTES)

    def advance(self, state: State, token: int) -> State | None:
        """As `Machine.advance`; a token without bytes that this member does not name is read as its spelling."""
        if token in self.named or self._vocab.bytes_of(token):
            return self.machine.advance(state, token)
        for byte in self._spelled.get(token, b""):
            state = self.machine.step(state, byte)
            if state is None:
                return None
        return state

    def take(self, state: State, symbol: int) -> State | None:
        """The state after a symbol, None if it is refused."""
        return self.machine.step(state, symbol) if symbol >= 0 else self.advance(state, -1 - symbol)

    def taken(self, state: State, symbol: int) -> State | None:
        """As `take`, and remembered: for a symbol that many states are asked about."""
        key = (state, symbol)
        if key not in self._taken:
            if len(self._taken) >= MAX_STEPS:
                self._taken = {}
            self._taken[key] = self.take(state, symbol)
        return self._taken[key]

    def step(self, state: State) -> tuple[int, State] | None:
        """The first symbol of the completion of fewest symbols, and the state after it; None where the text is
        complete."""
        if state in self._steps:
            return self._steps[state]
        if len(self._steps) >= MAX_STEPS:
            self._steps = {}
        move: tuple[int, State] | None = None
        if self.machine.least(state) > 0:
            byte, token, after = first_step(self.machine, state)
            move = (byte if byte >= 0 else -1 - token), after
        self._steps[state] = move
        return move

    def landed(self, state: State) -> TokenLandings:
        """The state after each token that the machine takes by its bytes or by name."""
        landed = self._landed.get(state)
        if landed is None:
            told = self.machine.landings(state)
            small = len(told.states) < 2**16 - 1
            which: NDArray[np.integer] = np.zeros(self._size, dtype=np.uint16 if small else np.int32)
            which[told.ids] = told.which + 1
            landed = TokenLandings(which, told.states)
            self._landed.put(state, landed, which.nbytes + 100 * len(told.states))
        return landed

    @property
    def size(self) -> int:
        """Bytes held in memory."""
        return self._landed.size + 200 * (len(self._steps) + len(self._taken))


def references(machine: Machine) -> tuple[tuple[str, NDArray[np.intp]], ...]:
    """All token references of a machine."""
    references: list[tuple[str, NDArray[np.intp]]] = []
    try:
        while True:
            references.append(machine.reference(len(references)))
    except IndexError:
        return tuple(references)


def named_tokens(machine: Machine, vocab: Vocab) -> frozenset[int]:
    """The tokens without bytes that a machine names anywhere."""
    return frozenset(token for _, ids in references(machine) for token in ids.tolist() if not vocab.bytes_of(token))
