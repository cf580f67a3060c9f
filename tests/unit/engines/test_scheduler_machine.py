"""The scheduler in any order of joins, leaves, cancels, deadlines, plans that fork and cut, with little room: against
what each request says alone, a model that counts its passes, and sums of what runs, waits and has ended."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from espalier.decoding.plan import Outcome, SampledToken
from espalier.engines.scheduling.lanes import Ticket
from espalier.errors import Cancelled, DeadlineExceeded, Overloaded
from tests.examples import examples
from tests.serving_laws import CUTTING, PLANS, StrictModel, World, alone, ticket

STEMS = ((1, 2, 3, 4, 5, 6, 7, 8) * 5, (1, 2, 3, 9, 9, 9) * 4, (5,))
QUEUE = 6
said_alone = lru_cache(maxsize=None)(alone)

prompts = st.tuples(
    st.sampled_from(STEMS), st.integers(1, 40), st.lists(st.integers(0, 10), max_size=3).map(tuple)
).map(lambda parts: parts[0][: parts[1]] + parts[2])
patiences = st.one_of(st.none(), st.none(), st.integers(1, 12))


class SchedulerMachine(RuleBasedStateMachine):
    """asked: the tickets that were taken, and what each asked for."""

    @initialize(
        chunk=st.sampled_from([1, 3, 16, 512]),
        lanes=st.integers(1, 6),
        prefix=st.sampled_from([(0, 16), (None, 16), (60, 2)]),
        slots=st.integers(3, 8),
        room=st.integers(240, 500),
        can_truncate=st.booleans(),
    )
    def opens(self, chunk, lanes, prefix, slots, room, can_truncate):
        self.model = StrictModel(slots=slots, room=room, can_truncate=can_truncate)
        self.can_truncate, self.prefix = can_truncate, prefix
        self.world = World(
            self.model,
            prefill_chunk=chunk,
            lanes=lanes,
            queue_size=QUEUE,
            prefix_tokens=prefix[0],
            prefix_sequences=prefix[1],
        )
        self.asked: list[tuple[Ticket, tuple]] = []

    def submit(self, kind, prompt, length, owner, patience):
        if kind in CUTTING and not self.can_truncate:
            kind = "greedy"
        deadline = None if patience is None else self.world.now + patience
        request = ticket(kind, prompt, length, owner=owner, deadline=deadline)
        try:
            self.world.submit(request)
        except Overloaded:
            assert self.world.scheduler.load().waiting >= QUEUE
        else:
            self.asked.append((request, (kind, prompt, length)))

    @rule(
        kind=st.sampled_from(sorted(PLANS)),
        prompt=prompts,
        length=st.integers(1, 6),
        owner=st.sampled_from(["", "a", "b"]),
        patience=patiences,
        count=st.integers(1, 3),
    )
    def submits(self, kind, prompt, length, owner, patience, count):
        """One request or several with the same beginning."""
        for _ in range(count):
            self.submit(kind, prompt, length, owner, patience)

    @rule(count=st.integers(1, 6))
    def goes_on(self, count):
        for _ in range(count):
            self.world.round()

    @rule(number=st.integers(0, 30))
    def cancels(self, number):
        if self.asked:
            self.world.scheduler.cancel(self.asked[number % len(self.asked)][0])

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds):
        self.world.now += seconds

    @invariant()
    def each_request_says_what_it_says_alone_and_ends_once(self):
        if not hasattr(self, "world"):
            return
        ended = 0
        for request, what in self.asked:
            said = self.world.said.get(request, [])
            tokens = [event for event in said if isinstance(event, SampledToken)]
            assert tokens == said_alone(*what)[: len(tokens)]
            ended += len(said) > len(tokens)
        load = self.world.scheduler.load()
        assert load.running + load.waiting == len(self.asked) - ended
        assert self.model.refused == 0, "a pass was tried for which there was no room"

    def teardown(self):
        if not hasattr(self, "world"):
            return
        left = sum(len(what[1]) + 10 * what[2] + 5 for _, what in self.asked)
        self.world.run(left + 5)  # nobody starves: one after the other, in pieces of one token, takes no longer
        for request, what in self.asked:
            said, last, whole = self.world.said[request], self.world.end_of(request), said_alone(*what)
            if isinstance(last, Outcome):
                assert said == whole
            else:
                assert isinstance(last, Cancelled if request.deadline is None else Cancelled | DeadlineExceeded), last
                assert said[:-1] == whole[: len(said) - 1]
        load = self.world.scheduler.load()
        assert (load.running, load.waiting) == (0, 0)
        assert self.model.live <= self.prefix[1]
        if self.prefix[0] == 0:
            assert self.model.live == load.reused == 0
        self.world.close()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=examples(80), stateful_step_count=25, deadline=None)
