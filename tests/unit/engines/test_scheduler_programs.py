"""Random programs on the scheduler: joins, leaves, cancels, deadlines, plans that fork and cut, little room."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.decoding.plan import Outcome
from espalier.errors import Cancelled, DeadlineExceeded, Overloaded
from tests.examples import examples
from tests.serving_laws import CUTTING, PLANS, StrictModel, World, alone, ticket

STEMS = ((1, 2, 3, 4, 5, 6, 7, 8) * 5, (1, 2, 3, 9, 9, 9) * 4, (5,))
said_alone = lru_cache(maxsize=None)(alone)

prompts = st.tuples(
    st.sampled_from(STEMS), st.integers(1, 40), st.lists(st.integers(0, 10), max_size=3).map(tuple)
).map(lambda parts: parts[0][: parts[1]] + parts[2])
submits = st.tuples(
    st.just("submit"),
    st.sampled_from(sorted(PLANS)),
    prompts,
    st.integers(1, 6),
    st.sampled_from(["", "a", "b"]),
    st.one_of(st.none(), st.none(), st.integers(1, 12)),
)
actions = st.one_of(
    submits,
    submits,
    st.tuples(st.just("round"), st.integers(1, 6)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("tick"), st.integers(1, 4)),
)


@settings(max_examples=examples(150))
@given(
    program=st.lists(actions, min_size=1, max_size=30),
    chunk=st.sampled_from([1, 3, 16, 512]),
    lanes=st.integers(1, 6),
    prefix=st.sampled_from([(0, 16), (None, 16), (60, 2)]),
    slots=st.integers(3, 8),
    room=st.integers(240, 500),
    can_truncate=st.booleans(),
)
def test_whatever_happens_each_request_ends_once_as_alone_or_with_its_reason(
    program, chunk, lanes, prefix, slots, room, can_truncate
):
    model = StrictModel(slots=slots, room=room, can_truncate=can_truncate)
    here = World(
        model, prefill_chunk=chunk, lanes=lanes, queue_size=6, prefix_tokens=prefix[0], prefix_sequences=prefix[1]
    )
    asked = []
    for action, *values in program:
        if action == "submit":
            kind, prompt, length, owner, patience = values
            if kind in CUTTING and not can_truncate:
                kind = "greedy"
            deadline = None if patience is None else here.now + patience
            one = ticket(kind, prompt, length, owner=owner, deadline=deadline)
            try:
                here.submit(one)
            except Overloaded:
                assert here.scheduler.load().waiting >= 6
                continue
            asked.append((one, (kind, prompt, length)))
        elif action == "round":
            for _ in range(values[0]):
                here.round()
        elif action == "cancel" and asked:
            here.scheduler.cancel(asked[values[0] % len(asked)][0])
        elif action == "tick":
            here.now += values[0]
    left = sum(len(what[1]) + 10 * what[2] + 5 for _, what in asked)
    here.run(left + 5)  # nobody starves: were they one after the other, in pieces of one token, it took no longer
    for one, what in asked:
        said, last = here.said[one], here.end_of(one)
        whole = said_alone(*what)
        if isinstance(last, Outcome):
            assert said == whole
        else:
            assert isinstance(last, Cancelled if one.deadline is None else Cancelled | DeadlineExceeded), last
            assert said[:-1] == whole[: len(said) - 1]
    assert model.refused == 0, "a pass was tried for which there was no room"
    load = here.scheduler.load()
    assert (load.running, load.waiting) == (0, 0)
    assert model.live <= prefix[1]
    if prefix[0] == 0:
        assert model.live == load.reused == 0
    here.close()
