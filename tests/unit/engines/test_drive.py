"""The driver: forks, truncations, batches and clean-up, with plans written for the test."""

import numpy as np
import pytest

from espalier.decoding.plan import Outcome, SampledToken
from espalier.decoding.ports import Append, Need
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.scheduling.drive import drive

WIDTH = 11


def rows_of(tokens):
    return noise(tuple(tokens), WIDTH)


@pytest.fixture
def model():
    return FakeStepModel(rows_of, width=WIDTH)


def done(*tokens):
    return Outcome(tokens=tokens, text="", tail="", finish="stop", stop=None)


def run(model, *plans):
    events = list(drive(model, plans))
    assert model.live == 0
    return events


def test_forks_truncations_and_frees_are_carried_out_before_the_appends(model):
    def plan():
        answer = yield Need(append=(Append(branch=0, tokens=(1, 2, 3), logits="all"),))
        assert np.array_equal(answer[0], np.stack([rows_of([1]), rows_of([1, 2]), rows_of([1, 2, 3])]))
        answer = yield Need(
            fork=((0, 1), (0, 2)),
            truncate=((0, 1),),
            free=(2,),
            append=(Append(branch=0, tokens=(9,)), Append(branch=1, tokens=(7, 8), logits="none")),
        )
        assert np.array_equal(answer[0][0], rows_of([1, 9]))
        assert answer[1].shape == (0, WIDTH)
        answer = yield Need(append=(Append(branch=1, tokens=(4,)),))
        assert np.array_equal(answer[1][0], rows_of([1, 2, 3, 7, 8, 4]))
        return done()

    assert run(model, plan()) == [(0, done())]


def test_plans_of_different_lengths_share_passes_and_leave_as_they_end(model):
    passes = []
    extend = model.extend
    model.extend = lambda work: (passes.append(len(work)), extend(work))[1]

    def plan(length):
        tokens = []
        answer = yield Need(append=(Append(branch=0, tokens=(length,)),))
        for _ in range(length):
            token = int(np.argmax(answer[0][-1]))
            tokens.append(token)
            yield SampledToken(token=token, text="", record=None)
            answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
        return done(*tokens)

    events = run(model, plan(1), plan(3), plan(2))
    assert passes == [3, 3, 2, 1]
    ends = {index: event for index, event in events if isinstance(event, Outcome)}
    for index, length in ((0, 1), (1, 3), (2, 2)):
        alone = [event for _, event in run(model, plan(length)) if isinstance(event, Outcome)]
        assert alone == [ends[index]]


def test_an_event_is_given_before_the_next_pass(model):
    seen = []
    extend = model.extend
    model.extend = lambda work: (seen.append("pass"), extend(work))[1]

    def plan():
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        yield SampledToken(token=5, text="x", record=None)
        yield Need(append=(Append(branch=0, tokens=(5,)),))
        return done()

    for _, event in drive(model, [plan()]):
        seen.append(type(event).__name__)
    assert seen == ["pass", "SampledToken", "pass", "Outcome"]


def test_an_error_in_one_plan_closes_the_others_and_frees_all(model):
    closed = []

    def good():
        try:
            while True:
                yield Need(append=(Append(branch=0, tokens=(1,)),))
        finally:
            closed.append(True)

    def bad():
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        list(drive(model, [good(), bad()]))
    assert closed == [True]
    assert model.live == 0


def test_nothing_to_do_is_no_pass(model):
    assert run(model) == []


def test_rows_are_read_before_anybody_else_can_use_the_model(model):
    """A model may write every answer into the same memory, and runs of several threads take turns between events."""
    buffer = np.zeros((8, WIDTH), dtype=np.float32)
    extend = model.extend

    def into_the_buffer(work):
        found, at = [], 0
        for rows in extend(work):
            buffer[at : at + len(rows)] = rows
            found.append(buffer[at : at + len(rows)])
            at += len(rows)
        return found

    model.extend = into_the_buffer

    def plan(first):
        tokens = [first]
        answer = yield Need(append=(Append(branch=0, tokens=(first,)),))
        for _ in range(4):
            assert np.array_equal(answer[0][-1], rows_of(tokens))
            token = int(np.argmax(answer[0][-1]))
            tokens.append(token)
            yield SampledToken(token=token, text="", record=None)
            answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
        return done(*tokens)

    running = [drive(model, [plan(1), plan(2)]), drive(model, [plan(3), plan(4)])]
    ended = 0
    while running:
        for one in list(running):
            happened = next(one, None)  # one event of each run in turn
            if happened is None:
                running.remove(one)
            ended += isinstance(happened and happened[1], Outcome)
    assert ended == 4


def test_what_came_before_an_error_of_the_same_round_is_told(model):
    def fine():
        answer = yield Need(append=(Append(branch=0, tokens=(1,)),))
        yield SampledToken(token=int(np.argmax(answer[0][-1])), text="a", record=None)
        yield Need(append=(Append(branch=0, tokens=(2,)),))

    def failing():
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        yield SampledToken(token=5, text="b", record=None)
        raise ValueError("no")

    events = drive(model, [fine(), failing()])
    assert [next(events)[1].text, next(events)[1].text] == ["a", "b"]
    with pytest.raises(ValueError, match="no"):
        next(events)
    assert model.live == 0
