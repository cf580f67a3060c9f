"""The laws of the scheduler: what runs in it equals the plain driver of one plan, and nothing of it is left behind.

Plans written for the test (they fork, cut, go back and want all rows), a model that is strict about what the port says,
and a world that moves the scheduler by hand. The module knows no requests and no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from espalier.decoding.plan import Outcome, Plan, SampledToken
from espalier.decoding.ports import Append, Extend, Need, Rows, SequenceId
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.scheduling.lanes import PlanEvent, Ticket
from espalier.engines.scheduling.scheduler import Scheduler
from espalier.errors import CapabilityError, LimitExceeded

WIDTH = 11


class StrictModel(FakeStepModel):
    """Holds `room` tokens in all, nothing shared; spoils the rows of the pass before, as a reused buffer would."""

    def __init__(self, *, slots: int = 8, room: int = 400, max_positions: int = 200, can_truncate: bool = True) -> None:
        super().__init__(lambda tokens: noise(tokens, WIDTH), width=WIDTH, max_positions=max_positions, slots=slots)
        self._room, self._can_truncate = room, can_truncate
        self._given: list[Rows] = []
        self.passes: list[list[int]] = []  # sizes of the items of each pass
        self.refused = 0
        self.most_held = 0
        self.broken: Callable[[Extend], Exception | None] = lambda item: None

    @property
    def capacity(self) -> int:
        return self._room

    @property
    def can_truncate(self) -> bool:
        return self._can_truncate

    @property
    def held(self) -> int:
        return sum(map(len, self._sequences.values()))

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        for rows in self._given:
            rows[...] = np.nan
        for item in work:
            error = self.broken(item)
            if error is not None:
                raise error
        if self.held + sum(len(item.tokens) for item in work) > self._room:
            self.refused += 1
            raise LimitExceeded("all is full")
        self._given = [rows[:] for rows in super().extend(work)]  # views: they own nothing
        self.most_held = max(self.most_held, self.held)
        self.passes.append([len(item.tokens) for item in work])
        return self._given

    def truncate(self, sequence: SequenceId, length: int) -> None:
        if not self._can_truncate and length != self.length(sequence):
            raise CapabilityError("this cannot be cut")
        super().truncate(sequence, length)


def best(row: Rows) -> int:
    assert np.isfinite(row).all(), "the rows of an earlier pass"
    return int(np.argmax(row))


def done(tokens: Sequence[int]) -> Outcome:
    return Outcome(tokens=tuple(tokens), text="", tail="", finish="stop", stop=None)


def greedy(prompt: tuple[int, ...], length: int) -> Plan:
    """One token a pass."""
    answer = yield Need(append=(Append(branch=0, tokens=prompt),))
    tokens: list[int] = []
    while True:
        assert answer is not None
        tokens.append(best(answer[0][-1]))
        yield SampledToken(token=tokens[-1], text="", record=None)
        if len(tokens) == length:
            return done(tokens)
        answer = yield Need(append=(Append(branch=0, tokens=(tokens[-1],)),))


def rewinding(prompt: tuple[int, ...], length: int) -> Plan:
    """Appends several tokens at once, looks at all rows, cuts most of them off again, once with no append at all."""
    answer = yield Need(append=(Append(branch=0, tokens=prompt, logits="all"),))
    assert answer is not None
    assert answer[0].shape == (len(prompt), WIDTH)
    tokens = [best(row) for row in answer[0]]
    for step in range(length):
        guess = tuple((tokens[-1] + i) % WIDTH for i in range(5))
        answer = yield Need(append=(Append(branch=0, tokens=guess, logits="all"),))
        assert answer is not None
        assert answer[0].shape == (5, WIDTH)
        tokens.append(best(answer[0][2]))
        yield SampledToken(token=tokens[-1], text="", record=None)
        assert (yield Need(truncate=((0, len(prompt) + step),))) == {}
        answer = yield Need(append=(Append(branch=0, tokens=(tokens[-1],), logits="none"),))
        assert answer is not None
        assert answer[0].shape == (0, WIDTH)
    return done(tokens)


def forking(prompt: tuple[int, ...], length: int) -> Plan:
    """Three branches that are forked, cut and freed at every step; the prompt's own goes first."""
    answer = yield Need(append=(Append(branch=0, tokens=prompt),))
    assert answer is not None
    tokens, current, number = [best(answer[0][-1])], 0, 1
    for _ in range(length):
        left, right = number, number + 1
        number += 2
        answer = yield Need(
            fork=((current, left), (current, right)),
            truncate=((right, len(prompt)),) if len(tokens) > 1 else (),
            free=(current,),
            append=(
                Append(branch=left, tokens=(tokens[-1],)),
                Append(branch=right, tokens=(tokens[-1], 1, 2, 3), logits="all"),
            ),
        )
        assert answer is not None
        a, b = best(answer[left][-1]), best(answer[right][1])
        tokens.append((a + b) % WIDTH)
        yield SampledToken(token=tokens[-1], text="", record=None)
        current = left if a < b else right
        yield Need(free=(left if current == right else right,))
    return done(tokens)


def drive_plainly(model: FakeStepModel, plan: Plan) -> list[SampledToken | Outcome]:
    """The events of one plan, each need carried out as its docstring says: the oracle of the scheduler."""
    events: list[SampledToken | Outcome] = []
    branches: dict[int, SequenceId] = {}
    answer: dict[int, Rows] | None = None
    while True:
        try:
            happened = plan.send(answer)
        except StopIteration as end:
            events.append(end.value)
            break
        answer = None
        if not isinstance(happened, Need):
            events.append(happened)
            continue
        early, late = happened.frees(branches)
        for branch in early:
            model.free(branches.pop(branch))
        for source, target in happened.fork:
            branches[target] = model.fork(branches[source])
        for branch, length in happened.truncate:
            model.truncate(branches[branch], length)
        for branch in late:
            model.free(branches.pop(branch))
        for append in happened.append:
            if append.branch not in branches:
                branches[append.branch] = model.new()
        work = [Extend(branches[append.branch], append.tokens, append.logits) for append in happened.append]
        rows = model.extend(work) if work else []
        answer = {append.branch: row for append, row in zip(happened.append, rows, strict=True)}
    for sequence in branches.values():
        model.free(sequence)
    return events


PLANS: dict[str, tuple[Callable[[tuple[int, ...], int], Plan], int]] = {
    "greedy": (greedy, 1),
    "rewinding": (rewinding, 1),
    "forking": (forking, 3),
}
"""And how many sequences each can come to hold."""
CUTTING = frozenset({"rewinding", "forking"})


def ticket(kind: str, prompt: tuple[int, ...], length: int, **more: Any) -> Ticket:
    make, sequences = PLANS[kind]
    size = sequences * (len(prompt) + 5 * length + 5)
    return Ticket(plan=make(prompt, length), prompt=prompt, size=size, sequences=sequences, **more)


def alone(kind: str, prompt: tuple[int, ...], length: int) -> list[PlanEvent]:
    """What the plan says under the one-sequence driver."""
    model = StrictModel(slots=8, room=100_000)
    said = drive_plainly(model, PLANS[kind][0](prompt, length))
    assert model.live == 0
    return [*said]


class World:
    """A scheduler moved by hand, a clock set by hand, and all that was said."""

    def __init__(self, model: StrictModel, **options: Any) -> None:
        self.now = 0.0
        self.model = model
        self.said: dict[Ticket, list[PlanEvent]] = {}
        self.scheduler = Scheduler(model, self._hear, clock=lambda: self.now, **options)

    def _hear(self, batch: Sequence[tuple[Ticket, PlanEvent]]) -> None:
        for one, event in batch:
            before = self.said.setdefault(one, [])
            assert not before or isinstance(before[-1], SampledToken), "something was said after the end"
            before.append(event)

    def submit(self, one: Ticket) -> Ticket:
        self.scheduler.submit(one)
        return one

    def round(self) -> bool:
        more = self.scheduler.round()
        load = self.scheduler.load()
        assert load.tokens_held == self.model.held <= load.capacity
        assert load.steps == len(self.model.passes)
        return more

    def run(self, rounds: int = 100_000) -> int:
        """To the end. Returns how many rounds it took, at most so many."""
        for count in range(1, rounds + 1):
            if not self.round():
                return count
        raise AssertionError(f"still at work after {rounds} rounds")

    def end_of(self, one: Ticket) -> PlanEvent:
        return self.said[one][-1]

    def close(self) -> None:
        self.scheduler.end()
        assert self.model.live == 0, "sequences are left"
        assert self.scheduler.load().tokens_held == 0
