"""Which task is surely whose, against a search through every assignment."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from espalier.trace.foreign.assignment import assigned, certain


def every_largest(options: dict[int, frozenset[str]]) -> list[dict[int, str | None]]:
    """All assignments that give away as many tasks as possible, each task once."""
    replies = list(options)
    choices = [(None, *sorted(options[reply])) for reply in replies]
    valid = []
    for tasks in product(*choices):
        taken = [task for task in tasks if task is not None]
        if len(taken) == len(set(taken)):
            valid.append((len(taken), dict(zip(replies, tasks, strict=True))))
    most = max(size for size, _ in valid)
    return [assignment for size, assignment in valid if size == most]


@given(st.dictionaries(st.integers(0, 4), st.frozensets(st.sampled_from("abcde"), max_size=3), max_size=4))
def test_what_holds_in_every_largest_assignment_is_certain(options: dict[int, frozenset[str]]) -> None:
    largest = every_largest(options)
    expected = {
        reply: largest[0][reply] for reply in options if len({assignment[reply] for assignment in largest}) == 1
    }
    assert certain(options) == expected
    one = assigned(options)
    assert {reply: one.get(reply) for reply in options} in largest


def test_the_example_of_the_module() -> None:
    assert certain({"A": {7, 8}, "B": {8}}) == {"A": 7, "B": 8}
    assert certain({"A": {7, 8}, "B": {7, 8}}) == {}
    assert certain({"A": {7}, "B": {7}}) == {}
    assert certain({"A": {7}, "B": set()}) == {"A": 7, "B": None}
