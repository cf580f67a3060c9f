"""Free UTF-8 text with trigger phrases, as a fragment: the end of each phrase leads to a state of its own, to which the
caller attaches what follows. It does not know what that is.

No phrase may contain another, so at most one phrase ends at a time, and the leftmost one ends first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.nfa import ByteSet, class_masks
from espalier.automata.phrases.occurrences import search
from espalier.time_limit import check as check_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerText:
    """fragment: the free text, final between two characters. met[i]: the state after phrase i, without edges."""

    fragment: Fragment
    met: tuple[int, ...]

    def after(self, state: int, data: bytes) -> int:
        """The state after these bytes, -1 for none."""
        for byte in data:
            following = (target for members, (target,) in self.fragment.edges[state] if members >> byte & 1)
            state = next(following, -1)
            if state < 0:
                break
        return state


def watched(phrases: Sequence[bytes]) -> TriggerText:
    """The fragment of text with these phrases, none empty, none within another. Raises ValueError, LimitExceeded."""
    matches = search(phrases)
    masks = class_masks(matches.classes.tolist(), matches.table.shape[1])
    place = {0: 0}
    order = [0]
    fragment = Fragment(edges=[], symbols=[], final=[], leaf=[])
    met = dict.fromkeys(phrases, -1)
    for state in order:  # grows as states are met
        check_time()
        row: dict[int, ByteSet] = {}
        if matches.hit[state]:
            met[matches.prefix(state)] = place[state]
        else:
            for letter, target in enumerate(matches.table[state].tolist()):
                if target >= 0 and target not in place:
                    place[target] = len(order)
                    order.append(target)
                if target >= 0:
                    row[place[target]] = row.get(place[target], 0) | masks[letter]
        fragment.edges.append([(members, (target,)) for target, members in row.items()])
        fragment.symbols.append([])
        fragment.final.append(bool(matches.whole[state] and not matches.hit[state]))
        fragment.leaf.append(None)
    return TriggerText(fragment=fragment, met=tuple(met.values()))
