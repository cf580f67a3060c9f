"""The driver with `sizes`: a plan begins when there is room for all of it, so that none that has begun is without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.decoding.plan import Outcome, SampledToken
from espalier.decoding.ports import Append, Need
from espalier.engines.fake import FakeStepModel
from espalier.engines.scheduling.drive import drive
from espalier.engines.scheduling.room import Room
from espalier.errors import LimitExceeded

WIDTH = 5


class Counting(FakeStepModel):
    """A model that holds `room` tokens in all, and says how many it ever held."""

    def __init__(self, room, slots=256):
        super().__init__(lambda tokens: np.zeros(WIDTH, dtype=np.float32), width=WIDTH, slots=slots)
        self.room, self.most = room, 0

    @property
    def capacity(self):
        return self.room

    def extend(self, work):
        held = sum(len(tokens) for tokens in self._sequences.values()) + sum(len(item.tokens) for item in work)
        if held > self.room:
            raise LimitExceeded
        self.most = max(self.most, held)
        return super().extend(work)


def plan(size):
    """Grows token by token to `size` tokens."""
    for _ in range(size):
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        yield SampledToken(token=1, text="", record=None)
    return Outcome(tokens=(1,) * size, text="", tail="", finish="stop", stop=None)


def ends(model, sizes, declared=None):
    events = drive(model, [plan(size) for size in sizes], declared)
    found = [index for index, event in events if isinstance(event, Outcome)]
    assert model.live == 0
    return found


def test_plans_wait_until_there_is_room_for_all_of_them():
    model = Counting(room=10)
    assert sorted(ends(model, [6, 6, 3, 1], [6, 6, 3, 1])) == [0, 1, 2, 3]
    assert model.most <= 10


def test_without_sizes_plans_begin_at_once_and_may_run_out_of_room():
    with pytest.raises(LimitExceeded):
        ends(Counting(room=10), [6, 6])


def test_a_plan_that_is_alone_begins_even_if_it_may_not_fit():
    assert ends(Counting(room=10), [4], [100]) == [0]


def test_order_is_kept_and_a_small_plan_does_not_overtake_a_large_one_that_waits():
    begun = []

    def noted(index, size):
        begun.append(index)
        return (yield from plan(size))

    model = Counting(room=10)
    list(drive(model, [noted(0, 6), noted(1, 8), noted(2, 2)], [6, 8, 2]))
    assert begun == [0, 1, 2]


def test_no_more_plans_run_than_there_are_sequences():
    model = Counting(room=100, slots=2)
    assert sorted(ends(model, [3, 3, 3, 3, 3])) == [0, 1, 2, 3, 4]


def test_as_many_sizes_as_plans():
    with pytest.raises(ValueError):
        list(drive(Counting(room=10), [plan(1), plan(1)], [1]))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(12, 30))
def test_no_plan_that_fits_alone_is_ever_without_room(sizes, room):
    model = Counting(room=room)
    assert sorted(ends(model, sizes, sizes)) == list(range(len(sizes)))
    assert model.most <= room


def interleaved(*drivers):
    """One event of each driver in turn, until all have ended or one raises."""
    running = list(drivers)
    while running:
        for one in list(running):
            if next(one, None) is None:
                running.remove(one)


def test_drivers_of_one_model_share_its_room():
    model = Counting(room=10, slots=4)
    room = Room(model)
    interleaved(drive(model, [plan(4), plan(4)], [4, 4], room), drive(model, [plan(2), plan(2)], [2, 2], room))
    assert model.live == 0
    assert room.take(10)  # all of it has been given back


def test_who_finds_no_room_at_all_is_refused_and_nobody_else_is_disturbed():
    model = Counting(room=10)
    room = Room(model)
    first = drive(model, [plan(10)], [10], room)
    next(first)
    with pytest.raises(LimitExceeded, match="others who generate"):
        next(drive(model, [plan(3)], [3], room))
    assert sum(1 for _ in first) == 10  # nine more tokens and the end
    assert [index for index, event in drive(model, [plan(3)], [3], room) if isinstance(event, Outcome)] == [0]


def test_room_is_handed_on_within_a_driver_and_not_lost_to_another():
    model = Counting(room=10)
    room = Room(model)
    ours = drive(model, [plan(6), plan(6), plan(6)], [6, 6, 6], room)
    told = 0
    for _, event in ours:
        told += isinstance(event, Outcome)
        if told < 2:  # one of ours still waits
            with pytest.raises(LimitExceeded):
                next(drive(model, [plan(5)], [5], room))
    assert told == 3


def test_room_is_given_back_by_who_is_closed_or_fails():
    model = Counting(room=10)
    room = Room(model)

    def failing():
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        raise ValueError("no")

    one = drive(model, [plan(5), plan(5), plan(5)], [5, 5, 5], room)
    next(one)
    one.close()
    with pytest.raises(ValueError, match="no"):
        list(drive(model, [failing(), plan(5)], [5, 5], room))
    assert room.take(10)
