"""Sequences of a pass become neighbours: moves of slots, by a model of what llama.cpp does with them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engines.llamacpp.slots import are_neighbours, neighbour_moves
from tests.examples import examples

COUNT = 12


@settings(max_examples=examples(400))
@given(st.permutations(range(COUNT)), st.integers(1, COUNT), st.integers(0, COUNT))
def test_active_sequences_become_neighbours_and_none_is_lost(order, many, others):
    active, taken = sorted(order[:many]), order[: min(COUNT, many + others)]
    slots = {slot: f"sequence {slot}" for slot in taken}
    moves = neighbour_moves(active, set(taken), COUNT)
    for source, target in moves:
        assert target not in slots, "a move into a slot that holds a sequence"
        slots[target] = slots.pop(source)
    assert sorted(slots.values()) == sorted(f"sequence {slot}" for slot in taken)
    places = sorted(slot for slot, name in slots.items() if name in {f"sequence {slot}" for slot in active})
    assert are_neighbours(places) or len(taken) == COUNT
    if are_neighbours(active):
        assert moves == []


def test_the_example_of_the_docstring():
    assert neighbour_moves([0, 1, 3], {0, 1, 2, 3}, 8) == [(2, 4), (3, 2)]
