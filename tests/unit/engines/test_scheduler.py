"""The scheduler moved by hand, round by round: who joins, who leaves, what a pass holds, whose fault an error is."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from espalier.decoding.plan import Outcome, SampledToken
from espalier.decoding.ports import Append, Need
from espalier.engines.scheduling.lanes import Ticket
from espalier.errors import (
    Cancelled,
    DeadEnd,
    DeadlineExceeded,
    GenerationError,
    InputError,
    LimitExceeded,
    Overloaded,
    Unavailable,
)
from espalier.owners import one_request, this_request
from tests.serving_laws import PLANS, StrictModel, World, alone, greedy, ticket

LONG = tuple(i % 7 for i in range(60))


def world(model=None, **options):
    return World(model or StrictModel(), **{"prefix_tokens": 0} | options)


@pytest.mark.parametrize("chunk", [1, 2, 7, 512])
@pytest.mark.parametrize("prefix_tokens", [0, None])
def test_every_plan_among_others_says_what_it_says_alone(chunk, prefix_tokens):
    here = World(StrictModel(slots=16, room=2000), prefill_chunk=chunk, prefix_tokens=prefix_tokens)
    asked = [(kind, LONG[start:end], 6) for kind in PLANS for start, end in ((0, 30), (0, 17), (3, 9), (0, 30), (0, 1))]
    for _ in range(2):  # the second time with what the first has left
        tickets = [here.submit(ticket(*one)) for one in asked]
        here.run()
        assert [here.said[one] for one in tickets] == [alone(*one) for one in asked]
    here.close()


def test_requests_join_and_leave_between_steps():
    here = world()
    first = here.submit(ticket("greedy", (1, 2), 6))
    here.round()
    second = here.submit(ticket("greedy", (3,), 2))
    here.round()
    assert here.model.passes == [[2], [1, 1]]
    here.run()
    assert here.model.passes == [[2], [1, 1], [1, 1], [1], [1], [1]]
    assert [len(here.said[one]) for one in (first, second)] == [7, 3]
    here.close()


def test_a_long_prompt_comes_in_pieces_beside_running_ones():
    here = world(prefill_chunk=16)
    here.submit(ticket("greedy", (1,), 20))
    here.round()
    late = here.submit(ticket("greedy", LONG, 3))
    for _ in range(4):
        here.round()
    assert here.model.passes[1:5] == [[1, 16], [1, 16], [1, 16], [1, 12]]
    here.run()
    assert here.said[late] == alone("greedy", LONG, 3)
    assert here.scheduler.load().prefilled == 61


def test_the_tokens_of_a_pass_are_shared_by_owners_and_what_one_does_not_want_goes_to_others():
    here = world(prefill_chunk=20, lanes=8)
    for owner, length in (("a", 60), ("a", 60), ("b", 4), ("c", 60)):
        here.submit(ticket("greedy", LONG[:length], 1, owner=owner))
    here.round()
    assert here.model.passes == [[8, 4, 8]]
    here.run()


def test_owners_take_turns_and_a_flood_of_one_starves_nobody():
    here = world(lanes=2, queue_size=200)
    flood = [here.submit(ticket("greedy", (1,), 3, owner="flood")) for _ in range(100)]
    here.round()
    late = here.submit(ticket("greedy", (2,), 3, owner="late"))
    for _ in range(7):
        here.round()
    assert isinstance(here.end_of(late), Outcome)
    assert sum(one.is_over for one in flood) <= 4
    here.run()
    assert all(isinstance(here.end_of(one), Outcome) for one in flood)
    ends = [one for one in here.said if one in flood]
    assert ends == flood  # first in, first out within one owner
    here.close()


def outputs(here, count, steps, owner):
    """The outputs of one request."""
    with one_request():
        request = this_request()
    return [here.submit(replace(ticket("greedy", (1,), steps, owner=owner), request=request)) for _ in range(count)]


def test_one_text_does_not_wait_until_the_many_of_another_request_end():
    """Four requests of 16 outputs held all 64 lanes: whoever came after them waited until one of their texts had
    ended."""
    here = World(StrictModel(slots=16, room=9000), prefix_tokens=0, lanes=16)
    for _ in range(2):
        outputs(here, 8, 40, "one")
    here.round()
    assert here.scheduler.load().running == 14
    single = here.submit(ticket("greedy", (2,), 3, owner="one"))
    (other,) = outputs(here, 1, 3, "other")
    for _ in range(6):
        here.round()
    assert isinstance(here.end_of(single), Outcome)
    assert isinstance(here.end_of(other), Outcome)
    here.run()
    here.close()


def test_an_owner_with_many_single_texts_leaves_a_lane_to_others():
    here = World(StrictModel(slots=16, room=9000), prefix_tokens=0, lanes=16)
    for _ in range(40):
        here.submit(ticket("greedy", (1,), 40, owner="one"))
    here.round()
    assert here.scheduler.load().running == 15
    other = here.submit(ticket("greedy", (1,), 3, owner="other"))
    for _ in range(6):
        here.round()
    assert isinstance(here.end_of(other), Outcome)
    here.run()
    here.close()


def test_a_flood_fills_the_queue_for_its_owner_only():
    here = world(lanes=1, queue_size=4)
    for _ in range(5):  # one may begin at once
        here.submit(ticket("greedy", (1,), 3, owner="flood"))
    with pytest.raises(Overloaded):
        here.submit(ticket("greedy", (1,), 3, owner="flood"))
    here.submit(ticket("greedy", (1,), 3, owner="other"))
    here.submit(ticket("greedy", (1,), 3, owner="other"))
    here.submit(ticket("greedy", (1,), 3, owner="other"))
    with pytest.raises(Overloaded):
        here.submit(ticket("greedy", (1,), 3, owner="other"))
    assert here.scheduler.load().waiting == 8
    here.run()
    here.close()


def test_nobody_begins_for_whom_there_is_no_room_and_nobody_of_the_same_size_overtakes_him():
    here = world(StrictModel(room=100))
    first = here.submit(ticket("greedy", LONG[:30], 5))  # 60 of 100
    large = here.submit(ticket("greedy", LONG[:40], 5))  # 70
    small = here.submit(ticket("greedy", (1,), 1))  # 11, which is more than half of the spare room
    here.round()
    assert (here.scheduler.load().running, here.scheduler.load().waiting) == (1, 2)
    here.run()
    assert list(here.said) == [first, large, small]
    assert here.model.refused == 0


def test_a_small_text_does_not_wait_until_the_large_ones_that_fill_the_cache_end():
    """Sixteen long outputs filled the cache of llama.cpp, and whoever came after them waited for two seconds."""
    here = World(StrictModel(slots=32, room=1000), prefix_tokens=0, lanes=32)
    for _ in range(4):
        outputs(here, 8, 23, "one")  # 121 tokens each
    here.round()
    assert here.scheduler.load().running == 7  # the eighth would leave too little
    single = here.submit(ticket("greedy", (2,), 3, owner="one"))
    (other,) = outputs(here, 1, 3, "other")
    for _ in range(5):
        here.round()
    assert isinstance(here.end_of(single), Outcome)
    assert isinstance(here.end_of(other), Outcome)
    here.run()
    assert here.model.refused == 0
    here.close()


@pytest.mark.parametrize("owners", ["aaaa", "abcd"])
def test_where_no_sequence_takes_the_room_of_another_as_many_large_ones_run_as_there_are_sequences(owners):
    here = World(StrictModel(slots=4, room=200, max_positions=50), prefix_tokens=0, lanes=4)
    for owner in owners:
        here.submit(replace(ticket("greedy", (1,), 9, owner=owner), size=50))
    here.round()
    assert here.scheduler.load().running == 4  # none is kept from beginning by room for smaller ones
    here.run()
    assert here.model.refused == 0
    here.close()


@pytest.mark.parametrize("slots", [4, 8, 15])
def test_few_sequences_are_not_all_taken_by_one_of_two_owners(slots):
    here = World(StrictModel(slots=slots, room=200 * slots, max_positions=200), prefix_tokens=0, lanes=slots)
    here.submit(ticket("greedy", (1,), 1, owner="a"))
    here.submit(ticket("greedy", (1,), 1, owner="b"))
    here.run()
    for _ in range(slots + 2):
        here.submit(ticket("greedy", (1,), 50, owner="a"))
    here.round()
    quick = here.submit(ticket("greedy", (2,), 3, owner="b"))
    for _ in range(5):
        here.round()
    assert isinstance(here.end_of(quick), Outcome)
    here.run()
    here.close()


def test_a_small_text_overtakes_one_that_waits_for_many_sequences():
    here = World(StrictModel(slots=8, room=1600, max_positions=200), prefix_tokens=0, lanes=8)
    for owner in "ab":
        here.submit(ticket("greedy", (1,), 40, owner=owner))
        here.submit(ticket("greedy", (1,), 40, owner=owner))
    here.round()
    wide = here.submit(replace(ticket("greedy", (1,), 3, owner="c"), sequences=6, size=600))
    small = here.submit(ticket("greedy", (2,), 3, owner="d"))
    for _ in range(6):
        here.round()
    assert wide.began is None
    assert isinstance(here.end_of(small), Outcome)
    here.run()
    here.close()


def test_a_stream_of_small_texts_does_not_keep_a_large_one_from_its_turn():
    here = World(StrictModel(slots=32, room=1000), prefix_tokens=0, lanes=32)
    here.submit(ticket("greedy", (1,), 20))
    large = here.submit(replace(ticket("greedy", LONG, 9), size=1000))  # it can only run alone
    rounds = 0
    while large.began is None:
        here.submit(ticket("greedy", (2,), 3))
        here.round()
        rounds += 1
    assert 20 < rounds < 30  # once the first one and the small ones of its time have ended
    here.run()
    assert isinstance(here.end_of(large), Outcome)
    here.close()


def test_one_that_is_alone_begins_even_if_it_may_outgrow_the_room():
    here = world(StrictModel(room=50))
    one = here.submit(ticket("greedy", LONG[:45], 3))  # its size says 65
    here.run()
    assert here.said[one] == alone("greedy", LONG[:45], 3)
    too_long = here.submit(ticket("greedy", LONG[:45], 30))
    after = here.submit(ticket("greedy", (1,), 2))
    here.run()
    assert isinstance(here.end_of(too_long), LimitExceeded)
    assert isinstance(here.end_of(after), Outcome)
    here.close()


def test_a_cancelled_request_gives_its_memory_back_before_the_next_pass():
    here = world()
    gone, stays = here.submit(ticket("forking", LONG, 20)), here.submit(ticket("greedy", (1,), 20))
    waiting = here.submit(ticket("greedy", (1,), 20))
    for _ in range(4):
        here.round()
    passes = len(here.model.passes)
    here.scheduler.cancel(gone)
    here.scheduler.cancel(waiting)
    here.round()
    assert here.model.passes[passes:] == [[1]]
    assert here.model.live == 1
    assert isinstance(here.end_of(gone), Cancelled)
    assert isinstance(here.end_of(waiting), Cancelled)
    here.scheduler.cancel(gone)  # again: nothing
    here.run()
    here.scheduler.cancel(stays)  # after the end: nothing
    assert not here.scheduler.has_work
    assert here.said[stays] == alone("greedy", (1,), 20)
    here.close()


def test_a_ticket_that_was_never_taken_can_be_cancelled():
    here = world(lanes=1, queue_size=1)
    here.submit(ticket("greedy", (1,), 3))
    here.submit(ticket("greedy", (1,), 3))
    refused = ticket("greedy", (1,), 3)
    with pytest.raises(Overloaded):
        here.submit(refused)
    here.scheduler.cancel(refused)
    here.run()
    assert refused not in here.said


def test_deadlines_end_who_runs_and_who_waits_by_the_given_clock():
    here = world(lanes=1)
    runs = here.submit(ticket("greedy", (1,), 50, deadline=5.0))
    waits = here.submit(ticket("greedy", (1,), 50, deadline=3.0))
    patient = here.submit(ticket("greedy", (1,), 5, deadline=100.0))
    here.round()
    here.now = 2.9
    here.round()
    assert [one.is_over for one in (runs, waits)] == [False, False]
    here.now = 3.0
    here.round()
    assert isinstance(here.end_of(waits), DeadlineExceeded)
    assert not runs.is_over
    here.now = 5.0
    here.round()
    assert isinstance(here.end_of(runs), DeadlineExceeded)
    here.run()
    assert here.said[patient] == alone("greedy", (1,), 5)
    here.close()


def raising(prompt, when, error):
    inner = greedy(prompt, 10)
    happened = next(inner)
    for _ in range(when):
        happened = inner.send((yield happened))
    raise error


@pytest.mark.parametrize("when", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [DeadEnd("none"), ZeroDivisionError("a bug")])
def test_a_plan_that_raises_fails_alone(when, error):
    here = world()
    bad = here.submit(Ticket(plan=raising((1, 2), when, error), prompt=(1, 2), size=20))
    good = here.submit(ticket("greedy", (1, 2), 8))
    here.run()
    assert here.end_of(bad) is error
    assert here.said[good] == alone("greedy", (1, 2), 8)
    here.close()


@pytest.mark.parametrize("error", [GenerationError("bad"), LimitExceeded("full"), RuntimeError("a bug")])
def test_a_pass_that_fails_is_the_fault_of_the_guilty_only(error):
    here = world(prefix_tokens=None)
    kept = here.submit(ticket("greedy", (5, 5), 3))
    here.run()
    here.model.broken = lambda item: error if item.tokens[:2] == (9, 9) else None
    bad = [here.submit(ticket(kind, (9, 9, 2), 8)) for kind in ("greedy", "forking")]
    good = [here.submit(ticket(kind, (1, 2, 3), 8)) for kind in PLANS]
    here.run()
    assert [here.end_of(one) for one in bad] == [error, error]
    here.model.broken = lambda item: None
    assert [here.said[one] for one in good] == [alone(kind, (1, 2, 3), 8) for kind in PLANS]
    assert isinstance(here.end_of(kept), Outcome)
    here.close()


def test_what_a_model_has_half_done_is_not_built_upon():
    here = world()
    extend = here.model.extend

    def half_done(work):
        if len(work) == 2:
            extend(work[:1])  # against the port: it has changed something
            raise RuntimeError("a bug of the model")
        return extend(work)

    here.model.extend = half_done
    first, second = here.submit(ticket("greedy", (1, 2), 3)), here.submit(ticket("greedy", (3, 4), 3))
    here.scheduler.round()
    assert isinstance(here.end_of(first), GenerationError)
    here.model.extend = extend
    here.scheduler.round()
    here.scheduler.round()
    assert here.said[second] == alone("greedy", (3, 4), 3)
    here.close()


def test_a_plan_that_fails_while_it_is_closed_says_so():
    def stubborn():
        try:
            yield Need(append=(Append(branch=0, tokens=(1,)),))
        finally:
            raise ZeroDivisionError("while closing")

    here = world()
    one = here.submit(Ticket(plan=stubborn(), prompt=(1,), size=2))
    other = here.submit(ticket("greedy", (1,), 4))
    here.round()
    here.scheduler.cancel(one)
    here.run()
    assert isinstance(here.end_of(one), ZeroDivisionError)
    assert here.said[other] == alone("greedy", (1,), 4)
    here.close()


def test_a_plan_that_uses_a_branch_wrongly_fails_alone_and_leaves_nothing():
    def wrong(need):
        yield Need(append=(Append(branch=0, tokens=(1,)),))
        yield need

    here = world()
    needs = [Need(fork=((0, 0),)), Need(fork=((7, 1),)), Need(truncate=((0, 9),)), Need(free=(3,))]
    bad = [here.submit(Ticket(plan=wrong(need), prompt=(1,), size=5)) for need in needs]
    good = here.submit(ticket("greedy", (1,), 4))
    here.run()
    assert [type(here.end_of(one)) for one in bad] == [ValueError, KeyError, ValueError, KeyError]
    assert here.said[good] == alone("greedy", (1,), 4)
    here.close()


def test_the_end_tells_everybody_and_frees_everything():
    here = world(lanes=2, prefix_tokens=None)
    here.submit(ticket("greedy", (4, 4), 1))
    here.run()
    tickets = [here.submit(ticket("forking", (1, 2), 9)) for _ in range(4)]
    here.round()
    here.round()
    here.close()
    assert all(isinstance(here.end_of(one), Cancelled) for one in tickets)
    with pytest.raises(Unavailable):
        here.submit(ticket("greedy", (1,), 1))


def test_an_end_by_an_error_tells_everybody_what_it_was():
    here = world(lanes=1)
    tickets = [here.submit(ticket("greedy", (1, 2), 9)) for _ in range(3)]
    here.round()
    here.scheduler.end(RuntimeError("a bug"))
    for one in tickets:
        assert isinstance(here.end_of(one), GenerationError)
        assert "RuntimeError: a bug" in str(here.end_of(one))
    with pytest.raises(Unavailable, match="a bug"):
        here.submit(ticket("greedy", (1,), 1))
    assert here.model.live == 0


def test_who_looks_at_the_load_takes_no_lock_from_the_model():
    """Threads that give way ask every few milliseconds; one that lost the interpreter meanwhile made the model wait."""
    here, found = world(), list[int]()
    asking = threading.Thread(target=lambda: found.append(here.scheduler.load().running), daemon=True)
    with here.scheduler._changed:
        asking.start()
        asking.join(20)
        assert found == [0]


def test_the_load_is_exact():
    here = world(lanes=2, prefix_tokens=None)
    for _ in range(3):
        here.submit(ticket("greedy", (1, 2, 3), 3))
    assert here.scheduler.load().waiting == 3
    here.round()
    load = here.scheduler.load()
    assert (load.running, load.waiting, load.tokens_held, load.capacity) == (2, 1, 6, 400)
    assert (load.steps, load.prefilled, load.reused) == (1, 6, 0)
    here.run()
    load = here.scheduler.load()
    assert (load.running, load.waiting) == (0, 0)
    assert (load.prefilled, load.reused) == (7, 2)  # the third had all of its prompt but one
    assert load.tokens_held == 5  # one kept sequence: prompt and answer without its last token


@pytest.mark.parametrize(
    "options", [{"prefill_chunk": 0}, {"queue_size": 0}, {"lanes": 0}, {"prefix_tokens": -1}, {"queue_size": 1.5}]
)
def test_numbers_out_of_their_range_are_refused(options):
    with pytest.raises(InputError) as caught:
        World(StrictModel(), **options)
    assert caught.value.field in options


def test_an_answer_of_several_branches_survives_the_passes_that_complete_it():
    """One branch is done in the first pass and its rows are overwritten by the next, which the other needs."""

    def two():
        yield Need(append=(Append(branch=0, tokens=(1, 2)),))
        answer = yield Need(
            fork=((0, 1),), append=(Append(branch=0, tokens=(3,)), Append(branch=1, tokens=LONG[:20], logits="all"))
        )
        assert answer[1].shape[0] == 20
        yield SampledToken(
            token=int(answer[0][-1].argmax() * 100 + answer[1].argmax(axis=1).sum()), text="", record=None
        )
        return Outcome(tokens=(), text="", tail="", finish="stop", stop=None)

    said = []
    for chunk in (512, 3):
        here = world(prefill_chunk=chunk)
        one = here.submit(Ticket(plan=two(), prompt=(1, 2), size=60, sequences=2))
        here.run()
        said.append(here.said[one])
    assert said[0] == said[1]
    assert isinstance(said[0][-1], Outcome)
