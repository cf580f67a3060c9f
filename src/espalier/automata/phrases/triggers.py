"""Free UTF-8 text that is watched for phrases: the search of `occurrences.py` as a fragment that goes on at each.

A phrase that is read to its end leads into a state of its own, from which whoever asked goes on. No phrase may occur
in another, so that at most one ends at a time and the leftmost ends first. It knows nothing of what follows a phrase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.phrases.occurrences import search
from espalier.time_limit import check as check_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """fragment: the free text; final between two characters. met[i]: where phrase i leads; nothing goes on there."""

    fragment: Fragment
    met: tuple[int, ...]

    def after(self, state: int, data: bytes) -> int:
        """The state after these bytes, -1 where none is."""
        for byte in data:
            following = (target for members, (target,) in self.fragment.edges[state] if members >> byte & 1)
            state = next(following, -1)
            if state < 0:
                break
        return state


def watched(phrases: Sequence[bytes]) -> Watched:
    """phrases: texts, none empty, none within another. Raises LimitExceeded."""
    found = search(phrases)
    masks: list[ByteSet] = [0] * found.table.shape[1]
    for value, letter in enumerate(found.classes.tolist()):
        masks[letter] |= 1 << value
    place = {0: 0}
    order = [0]
    fragment = Fragment(edges=[], symbols=[], final=[], leaf=[])
    met = dict.fromkeys(phrases, -1)
    for state in order:  # grows as states are met
        check_time()
        row: dict[int, ByteSet] = {}
        if found.hit[state]:
            met[_phrase(found.parent, found.byte, state)] = place[state]
        else:
            for letter, target in enumerate(found.table[state].tolist()):
                if target >= 0 and target not in place:
                    place[target] = len(order)
                    order.append(target)
                if target >= 0:
                    row[place[target]] = row.get(place[target], 0) | masks[letter]
        fragment.edges.append([(members, (target,)) for target, members in row.items()])
        fragment.symbols.append([])
        fragment.final.append(bool(found.whole[state] and not found.hit[state]))
        fragment.leaf.append(None)
    return Watched(fragment=fragment, met=tuple(met.values()))


def _phrase(parent: NDArray[np.int32], byte: NDArray[np.uint8], state: int) -> bytes:
    read: list[int] = []
    while parent[state] >= 0:
        check_time()
        read.append(int(byte[state]))
        state = int(parent[state])
    return bytes(reversed(read))
