"""How much of the model each owner has had: who comes back starts with the least of those who are here."""

from __future__ import annotations

from espalier.engines.scheduling.service_counters import ServiceCounters


def served(**counts: int) -> ServiceCounters:
    """Owners that are here and have had as much."""
    made = ServiceCounters()
    for owner in counts:
        made.arrive(owner)
    for owner, amount in counts.items():
        made.charge(owner, amount)
    return made


def test_who_comes_starts_with_the_least_of_those_who_are_here_and_keeps_what_was_more() -> None:
    made = served(a=5, b=9)
    made.arrive("c")
    assert made.counts == {"a": 5, "b": 9, "c": 5}
    made.charge("c", 2)
    made.leave("c")
    made.charge("a", 1)
    made.arrive("c")
    assert made.counts["c"] == 7, "it was ahead, and still is"


def test_a_further_ticket_of_an_owner_changes_no_count() -> None:
    made = served(a=5, b=9)
    made.arrive("a")
    made.arrive("b")
    assert made.counts == {"a": 5, "b": 9}
    made.leave("b")
    assert made.counts == {"a": 5, "b": 9}, "it has another one"


def test_of_who_left_only_a_count_is_kept_that_is_above_the_least() -> None:
    for count, is_kept in ((4, False), (5, False), (6, True), (10, True)):
        made = served(a=5, b=9, c=count)
        made.leave("c")
        assert ("c" in made.counts) == is_kept, count
    made.leave("b")
    made.leave("a")
    assert made.counts == {}, "nobody is left to compare with"
