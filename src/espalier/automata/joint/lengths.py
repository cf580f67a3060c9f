"""How long a text may still become, and how short: what shows at once that two members cannot end together.

Lengths are counted in bytes, and in characters: a byte that continues a character counts nothing. A state of one member
that needs more than another may still take is a dead end, and no search is needed to see it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.time_limit import check as check_time

ENDLESS = 2**31
_CONTINUING: ByteSet = sum(1 << byte for byte in range(0x80, 0xC0))
_CONTINUES = np.array([0x80 <= byte < 0xC0 for byte in range(256)])


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Of one machine. bytes_left, characters_left: by state the most that can follow, None for a machine that is not
    one automaton of finite length. is_plain: between two characters, its completion of fewest bytes has one character
    for each byte, and no completion has fewer."""

    bytes_left: NDArray[np.int64] | None
    characters_left: NDArray[np.int64] | None
    is_plain: bool

    @staticmethod
    def of(machine: Machine) -> Lengths:
        if isinstance(machine, RegularMachine):
            return _of_dfa(machine.dfa)
        network = machine.network if isinstance(machine, PushdownMachine) else None
        return Lengths(None, None, isinstance(network, Network) and needs_no_wide_characters(network))

    def needs(self, machine: Machine, state: State) -> int:
        """A lower bound on the characters of every completion."""
        if not self.is_plain:
            return 0
        members, refs = machine.options(state)
        inside = bool(members) and not refs and not members & ~_CONTINUING
        return machine.least(state) - 3 if inside else machine.least(state)

    def most(self, state: State) -> tuple[int, int]:
        """The most bytes and the most characters that can follow."""
        if self.bytes_left is None or self.characters_left is None:
            return ENDLESS, ENDLESS
        return int(self.bytes_left[state]), int(self.characters_left[state])


def _of_dfa(dfa: Dfa) -> Lengths:
    width = dfa.table.shape[1]
    begins = [not bool(_CONTINUES[dfa.classes == letter].all()) for letter in range(width)]
    weights = np.stack([np.ones(width, dtype=np.int64), np.array(begins, dtype=np.int64)])  # (2, C)
    left = _longest(dfa, weights)
    return Lengths(None, None, False) if left is None else Lengths(left[0], left[1], False)


def _longest(dfa: Dfa, weights: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The largest weight of a text from each state to the end, ENDLESS where there is no bound, `(2, S)`; None if there
    is none anywhere. weights: of each byte class, `(2, C)`."""
    table = dfa.table
    ways = (table >= 0).sum(axis=1)  # (S,): edges to states that are not known yet
    fresh = np.flatnonzero(ways == 0)
    if not fresh.size:
        return None
    tails, letters = np.nonzero(table >= 0)
    heads = table[tails, letters]
    order = np.argsort(heads, kind="stable")
    tails, heads = tails[order], heads[order]  # edges by their target
    first = np.searchsorted(heads, np.arange(len(table) + 1))
    lengths = np.full((2, len(table)), ENDLESS, dtype=np.int64)
    while fresh.size:
        check_time()
        rows = table[fresh]  # (F, C)
        for which in range(2):
            ahead = np.where(rows >= 0, lengths[which][np.maximum(rows, 0)] + weights[which], 0)
            lengths[which, fresh] = ahead.max(axis=1, initial=0)
        counts = first[fresh + 1] - first[fresh]
        offsets = np.repeat(first[fresh] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        before, times = np.unique(tails[offsets], return_counts=True)
        ways[before] -= times
        fresh = before[ways[before] == 0]
    return lengths


def needs_no_wide_characters(network: Network) -> bool:
    """Whether the completion of fewest bytes of every position has the fewest characters too.

    A sufficient test: `least` of the positions between two characters must also bound from below what leads through a
    character of several bytes."""
    continues = np.array([bool(_CONTINUES[network.classes == c].all()) for c in range(network.which.shape[1])])  # (C,)
    used = network.which >= 0  # (P, C)
    plain = [
        not final and not calls and not tokens
        for final, calls, tokens in zip(network.final, network.calls, network.tokens, strict=True)
    ]
    inside = used.any(axis=1) & ~(used & ~continues).any(axis=1) & np.array(plain)  # (P,)
    least = list(network.least)
    middle = np.flatnonzero(inside).tolist()
    for place in middle:
        least[place] = ENDLESS
    for _ in range(3):  # a character has at most three bytes after its first
        for place in middle:
            least[place] = min(least[t] for targets in network.moves[place] for t in targets)
    rest = np.flatnonzero(~inside).tolist()
    return all(
        least[place] <= 1 + least[target]
        for place in rest
        for targets in network.moves[place]
        for target in targets
        if inside[target]
    )
