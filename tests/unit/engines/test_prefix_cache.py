"""Kept sequences: which one serves a prompt, which one goes first, and that none is ever in the way."""

from __future__ import annotations

import pytest

from espalier.decoding.plan import Outcome
from espalier.decoding.ports import Extend, Need
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.prefix_cache import PrefixCache, SequencePool, as_ids
from espalier.errors import CapabilityError
from tests.serving_laws import StrictModel, World, alone, done, greedy, ticket

STEM = tuple(i % 7 for i in range(40))


def kept(model=None, *texts, **bounds):
    sequences = SequencePool(model or StrictModel())
    cache = PrefixCache(sequences, **{"max_tokens": 100, "max_sequences": 8} | bounds)
    for text in texts:
        cache.keep(held(sequences, text))
    return sequences, cache


def held(sequences, tokens):
    made = sequences.new()
    sequences.model.extend([Extend(sequence=made.sequence, tokens=tuple(tokens), logits="none")])
    made.tokens.extend(tokens)
    sequences.tokens += len(tokens)
    return made


def found(cache, *tokens):
    hit = cache.find(as_ids(tokens))
    return None if hit is None else (hit[0].tokens, hit[1])


def test_the_longest_common_beginning_is_found_and_the_last_token_is_always_left():
    _, cache = kept(None, [1, 2, 3], [1, 2, 9, 9], [4])
    assert found(cache, 1, 2, 9, 8) == ([1, 2, 9, 9], 3)
    assert found(cache, 1, 2, 3, 4) == ([1, 2, 3], 3)
    assert found(cache, 1, 2, 3)[1] == 2
    assert found(cache, 4) is None
    assert found(cache, 7, 1, 2) is None


def test_what_cannot_be_cut_serves_only_as_a_whole():
    _, cache = kept(StrictModel(can_truncate=False), [1, 2, 3], [1, 2, 9, 9])
    assert found(cache, 1, 2, 9, 8) is None
    assert found(cache, 1, 2, 3, 9) == ([1, 2, 3], 3)
    assert found(cache, 1, 2, 3) is None


def test_what_is_said_already_is_not_kept_twice():
    sequences, cache = kept(None, [1, 2], [1, 2, 3], [1])
    assert (cache.count, cache.tokens) == (1, 3)
    assert (sequences.count, sequences.tokens) == (sequences.model.live, sequences.model.held) == (1, 3)


def test_least_recently_used_goes_first():
    sequences, cache = kept(None, [1, 1], [2, 2], [3, 3], max_sequences=3)
    fork = cache.fork(*cache.find(as_ids([1, 1, 1])))
    assert fork.tokens == [1, 1]
    cache.keep(held(sequences, [4, 4]))
    assert found(cache, 2, 2, 2) is None
    assert found(cache, 1, 1, 1) is not None
    cache.keep(held(sequences, range(3, 102)))  # by tokens: all others must go
    assert (cache.count, cache.tokens) == (1, 99)
    cache.keep(held(sequences, range(101)))  # too long to be kept at all
    assert cache.tokens == 99
    cache.clear()
    sequences.free(fork)
    assert sequences.model.live == sequences.tokens == sequences.count == 0


@pytest.mark.parametrize("bounds", [{"max_tokens": 0}, {"max_sequences": 0}])
def test_it_can_be_switched_off(bounds):
    sequences, cache = kept(None, [1, 2], **bounds)
    assert (cache.is_on, cache.count, sequences.model.live) == (False, 0, 0)


def test_what_is_taken_over_is_cut_and_no_longer_kept():
    sequences, cache = kept(None, [1, 2, 3, 4])
    taken = cache.take(*cache.find(as_ids([1, 2, 9])))
    assert (taken.tokens, cache.count, cache.tokens, sequences.model.live) == ([1, 2], 0, 0, 1)


def test_a_cache_that_cannot_be_cut_just_there_is_freed():
    sequences, cache = kept(None, [1, 2, 3, 4], [5, 6, 7])

    def truncate(sequence, length):
        raise CapabilityError("not here")

    sequences.model.truncate = truncate
    assert cache.take(*cache.find(as_ids([1, 2, 9]))) is None
    with pytest.raises(CapabilityError):
        cache.fork(*cache.find(as_ids([5, 6, 9])))
    assert (sequences.model.live, cache.count, sequences.count) == (1, 1, 1)


def passes_of(here, *prompts):
    """The sizes of the passes for prompts that come one after the other."""
    for prompt in prompts:
        one = here.submit(ticket("greedy", prompt, 2))
        here.run()
        assert here.said[one] == alone("greedy", prompt, 2)
    return here.model.passes


def test_a_conversation_computes_only_what_is_new():
    here = World(StrictModel(), prefix_tokens=160)
    answer = alone("greedy", STEM, 2)[-1].tokens
    again = (*STEM, *answer, 3, 3)
    assert passes_of(here, STEM, again, STEM) == [[40], [1], [3], [1], [1], [1]]
    assert here.scheduler.load().reused == 41 + 39
    here.close()


def test_outputs_of_one_prompt_that_come_together_compute_it_once():
    here = World(StrictModel(room=2000), prefill_chunk=16)
    tickets = [here.submit(ticket("greedy", (*STEM, 1 + n % 2), 3)) for n in range(4)]
    here.run()
    assert [here.said[one] for one in tickets] == [alone("greedy", (*STEM, 1 + n % 2), 3) for n in range(4)]
    assert (here.scheduler.load().prefilled, here.scheduler.load().reused) == (41 + 3, 3 * 40)
    here.close()


def test_who_waits_for_the_prompt_of_another_goes_on_when_that_one_is_cancelled():
    here = World(StrictModel(), prefill_chunk=4)
    first, second = here.submit(ticket("greedy", STEM, 3)), here.submit(ticket("greedy", STEM, 3))
    here.round()
    here.round()
    assert here.model.live == 1  # the second has not begun
    here.scheduler.cancel(first)
    here.run()
    assert here.said[second] == alone("greedy", STEM, 3)
    here.close()


def test_nothing_is_reused_where_all_rows_are_wanted_or_a_plan_begins_otherwise_than_it_said():
    here = World(StrictModel())
    for _ in range(2):
        one = here.submit(ticket("rewinding", STEM, 2))
        here.run()
        assert here.said[one] == alone("rewinding", STEM, 2)
    liar = here.submit(Ticket(plan=greedy((2, 2, 2), 2), prompt=STEM, size=60))
    here.run()
    assert here.said[liar] == alone("greedy", (2, 2, 2), 2)
    assert here.scheduler.load().reused == 0
    here.close()


def test_what_is_kept_makes_nobody_wait_and_is_taken_over_where_room_is_scarce():
    here = World(StrictModel(room=110, slots=2), prefix_tokens=100)
    assert passes_of(here, STEM, (*STEM[:30], 6, 6, 6)) == [[40], [1], [3], [1]]  # 57 + 41 <= 110
    big = tuple(range(8, 11)) * 20  # 75 of 110
    here.submit(ticket("greedy", big, 2))
    here.submit(ticket("greedy", (1,), 2))
    here.round()
    assert here.scheduler.load().running == 2
    here.run()
    assert here.model.refused == 0
    here.close()


def test_a_fork_for_which_no_slot_is_left_drops_what_is_kept():
    def forks(count):
        yield from greedy((1, 2), 1)
        yield Need(fork=tuple((0, n) for n in range(1, count + 1)))
        return done(())

    here = World(StrictModel(slots=3))
    for prompt in ((1,), (2,), (3,)):
        here.submit(ticket("greedy", prompt, 2))
    here.run()
    one = here.submit(Ticket(plan=forks(2), size=9))  # it said one sequence, and forks two
    here.run()
    assert isinstance(here.end_of(one), Outcome)
    here.close()


def test_nobody_is_told_what_another_key_has_written():
    """Neither by what is kept, nor by what runs, nor by having to wait for it."""
    world = World(StrictModel(slots=8, room=1000), prefix_tokens=500)
    first = world.submit(ticket("greedy", STEM, 3, owner="a"))
    world.run()
    spy = world.submit(ticket("greedy", STEM, 3, owner="b"))
    world.run()
    own = world.submit(ticket("greedy", STEM, 3, owner="a"))
    world.run()
    assert [one.reused for one in (first, spy, own)] == [0, 0, len(STEM) - 1]

    other = tuple(reversed(STEM))
    lanes = {owner: world.submit(ticket("greedy", other, 3, owner=owner)) for owner in ("a", "b")}
    world.round()
    assert world.model.passes[-1] == [len(other)] * 2, "neither waits for the other"
    lanes["c"] = world.submit(ticket("greedy", other, 3, owner="c"))
    world.run()
    assert [one.reused for one in lanes.values()] == [0, 0, 0]
    for one in (first, spy, own):
        assert world.said[one] == alone("greedy", STEM, 3)
    world.close()


def test_two_owners_keep_the_same_text_each_for_himself():
    sequences, cache = kept(None)
    for owner in ("a", "b"):
        cache.keep(held(sequences, [1, 2, 3]), owner=owner)
    assert cache.count == 2
    assert cache.find(as_ids([1, 2, 3, 4])) is None
    assert cache.find(as_ids([1, 2, 3, 4]), owner="b")[1] == 3
    cache.clear()
    assert sequences.count == 0
