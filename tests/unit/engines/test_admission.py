"""Which waiting ticket begins next, with bounds at the exact instant: the tickets are never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from espalier.engines.scheduling.admission import Admission
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.room import Room, run_sequences, run_tokens, with_spare
from tests.serving_laws import StrictModel

ROOM = 800
"""Tokens of the cache that sequences share; an eighth of them is spare."""


def no_plan() -> Iterator[Any]:
    yield from ()


def admission(
    *, slots: int = 9, lanes: int = 8, room: int = ROOM, is_fair: bool = True, shares: bool = True
) -> Admission:
    model = StrictModel(slots=slots, room=room, max_positions=room if shares else room // slots)
    return Admission(model, Room(model), lanes=lanes, is_fair=is_fair)


def waits(made: Admission, size: int = 10, **more: Any) -> Ticket:
    ticket = Ticket(plan=no_plan(), size=size, number=made.waiting.count, **more)
    made.add(ticket)
    return ticket


def begun(made: Admission) -> list[Ticket]:
    """All that may begin now."""
    return list(iter(made.begin_next, None))


@pytest.mark.parametrize(("size", "overtakes"), [(50, True), (51, False)])
def test_one_that_overtakes_takes_half_of_the_spare_room_at_most(size: int, overtakes: bool) -> None:
    made = admission()
    first = waits(made, 600, owner="a")
    large = waits(made, 300, owner="b")
    small = waits(made, size, owner="c")
    assert begun(made) == ([first, small] if overtakes else [first])
    assert small.ahead == (size if overtakes else 0)
    assert large in made.waiting


@pytest.mark.parametrize(("size", "overtakes"), [(25, True), (26, False)])
def test_the_next_one_takes_half_of_what_is_left_of_it(size: int, overtakes: bool) -> None:
    made = admission()
    first = waits(made, 600, owner="a")
    waits(made, 300, owner="b")
    small, next_one = waits(made, 50, owner="c"), waits(made, size, owner="d")
    assert begun(made) == ([first, small, next_one] if overtakes else [first, small])
    made.end(small, 1)  # what it took is there again
    assert (begun(made) == []) == overtakes


def test_one_of_the_same_size_does_not_overtake() -> None:
    """It would fit: more is left free beside a further output of a request than beside a text of its own."""
    made = admission(room=8000)
    request = object()
    first = waits(made, 6700, owner="a", request=request)
    waits(made, 400, owner="a", request=request)
    waits(made, 400, owner="a")
    smaller = waits(made, 399, owner="a")
    assert begun(made) == [first, smaller]


def test_where_all_that_run_have_overtaken_nobody_else_does() -> None:
    made = admission()
    first = waits(made, 600, owner="a")
    large = waits(made, 300, owner="b")
    small = waits(made, 40, owner="c")
    assert begun(made) == [first, small]
    waits(made, 10, owner="d")
    made.end(first, 1)
    assert begun(made)[0] is large, "there is room for it now"


def test_what_a_request_has_had_is_its_passes_times_its_sequences_and_its_prompt() -> None:
    made = admission()
    one = waits(made, 10, owner="a", sequences=3, prompt=(1, 2))
    another = waits(made, 10, owner="a")
    assert begun(made) == [one, another]
    made.end(one, 5)
    assert made._served.counts == {"a": 5 * 3 + 2}
    made.end(another, 5)
    assert made._served.counts == {}, "nobody is left to compare with"


def test_outputs_of_one_request_leave_lanes_and_get_them_back() -> None:
    made = admission(slots=16, lanes=16, room=100_000)
    request = object()
    outputs = [waits(made, 10, owner="a", request=request) for _ in range(20)]
    assert begun(made) == outputs[:14], "an eighth of the lanes is left"
    for ticket in outputs[:14]:
        made.end(ticket, 1)
    alone = [waits(made, 10, owner="b") for _ in range(2)]
    assert set(begun(made)) == {*outputs[14:], *alone}
    for ticket in (*outputs[14:], *alone):
        made.end(ticket, 1)
    assert made._requests == {}
    assert made._owners == {}


@pytest.mark.parametrize(
    ("lanes", "shares", "most"),
    [(32, True, 30), (32, False, 30), (8, True, 8), (8, False, 7), (4, False, 3), (3, False, 3)],
)
def test_an_owner_leaves_a_sixteenth_of_the_lanes_or_one_where_no_room_is_left_to_others(
    lanes: int, shares: bool, most: int
) -> None:
    made = admission(slots=64, lanes=lanes, room=64_000, shares=shares)
    first = waits(made, owner="b")
    mine = [waits(made, owner="a") for _ in range(40)]
    assert made.begin_next() is first
    made.end(first, 1)
    assert begun(made) == mine[:most]


def test_without_fairness_tickets_begin_in_their_order_up_to_the_last_lane() -> None:
    made = admission(lanes=3, is_fair=False)
    tickets = [waits(made, 10, owner="a") for _ in range(5)]
    assert begun(made) == tickets[:3]
    made.end(tickets[0], 1)
    assert begun(made) == tickets[3:4]


def test_one_that_is_alone_begins_although_it_fills_the_room_and_the_next_waits() -> None:
    made = admission()
    first, second = waits(made, ROOM, owner="a"), waits(made, 1, owner="b")
    assert begun(made) == [first]
    made.end(first, 1)
    assert begun(made) == [second]


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_as_much_stays_free_as_a_ticket_takes_up_to_the_spare_room(size: int, fits: bool) -> None:
    made = admission()
    first = waits(made, 600, owner="a")
    second = waits(made, size, owner="a")
    assert begun(made) == ([first, second] if fits else [first])


def test_free_lanes_count_as_places_of_the_queue() -> None:
    made = admission(lanes=2, room=100_000)
    assert made.has_place("a", 0)
    running = [waits(made, 1, owner="a") for _ in range(2)]
    assert not made.has_place("a", 0)
    assert made.has_place("a", 3)
    begun(made)
    assert not made.has_place("a", 0)
    made.end(running[0], 1)
    assert made.has_place("a", 0)


@pytest.mark.parametrize(("capacity", "most"), [(800, 700), (7, 7), (8, 7)])
def test_a_run_of_several_sequences_leaves_an_eighth_of_the_cache(capacity: int, most: int) -> None:
    assert run_tokens(StrictModel(room=capacity)) == most


def test_the_spare_sequences_are_what_a_run_may_not_have() -> None:
    model = StrictModel(slots=with_spare(16))
    assert (model.max_sequences, run_sequences(model)) == (18, 16)


def test_room_is_full_at_its_last_token_and_its_last_sequence() -> None:
    room = Room(StrictModel(slots=3, room=100))
    assert room.take(60)
    assert room.fits(40)
    assert not room.fits(41)
    assert room.fits(30, spare=10)
    assert not room.fits(30, spare=11)
    assert room.fits(1, 2)
    assert not room.fits(1, 3)
    assert room.take(40, 2)
    assert not room.take(0)
    room.give_back(40, 2)
    assert (room.tokens, room.sequences) == (60, 1)
    room.give_back(60)
    assert room.fits(1000, 9), "where nothing is reserved anything fits"
