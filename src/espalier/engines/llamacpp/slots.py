"""Which slots of llama.cpp sequences change, so that those of a pass are neighbours: only neighbours with caches of
their own are computed together, and each gap costs as much as a pass of its own.

It knows slots, which are numbers from 0 on, and neither sequences nor caches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def are_neighbours(active: Sequence[int]) -> bool:
    """Whether sorted slots have no gap."""
    return active[-1] - active[0] + 1 == len(active)


def neighbour_moves(active: Sequence[int], taken: Collection[int], count: int) -> list[tuple[int, int]]:
    """The moves (from a slot, to an empty one), in order, after which the sequences of `active` are neighbours. As few
    as possible move. active: sorted slots. taken: all slots that hold a sequence. count: of all slots. Empty where no
    slot is free, for then nothing can move.

    For example, of 8 slots 0, 1 and 3 are active, and 2 is kept for later: 2 moves to 4, then 3 to 2.
    """
    size = len(active)
    starts = [min(first, count - size) for first in active]
    start = max(starts, key=lambda first: sum(first <= slot < first + size for slot in active))
    window = range(start, start + size)
    free = [slot for slot in range(count) if slot not in taken and slot not in window]
    moves: list[tuple[int, int]] = []
    gaps = sorted({*window} - {*active}, key=lambda slot: (slot in taken, slot))  # empty ones first: they make room
    for gap, source in zip(gaps, (slot for slot in active if slot not in window), strict=True):
        if gap in taken:
            if not free:
                return moves
            moves.append((gap, free.pop(0)))
        moves.append((source, gap))
        free.append(source)
    return moves
