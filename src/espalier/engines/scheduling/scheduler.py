"""Continuous batching: many plans on one StepModel, joining and leaving between steps. The core, without a thread.

`round` does one step: cancelled plans leave, waiting plans that fit join, one forward pass runs (`passes.py`), and
every plan with an answer goes on. One thread calls `round` and `end` (`service.py`, `drive.py`, or a test); the other
methods are for any thread. It knows no requests, no text and no engine. ::

    submit, cancel               any thread
      │
      ▼
    Admission.waiting  ── begin_next: in fair order, if its room fits ──▶  Lane: plan, sequences
                                                                            │  ▲
    round:  1 leave      cancelled and late tickets end                     │  │ lane.advance: plan.send(answer)
            2 join       tickets that fit become lanes                  need│  │ answer: rows of logits
            3 pass       Passes.run: one model.extend for all lanes  ◀──────┘  │
            4 advance    plans with an answer run to their next need ──────────┘
            5 tell       deliver what was posted: Taken, Outcome, error

An example: A, a prompt of 700 tokens, and B, one of 3, are submitted while C generates; `prefill_chunk` is 512, and
each has another owner. Round 1: A and B join and ask for their prompts; the pass takes 1 token of C, 509 of A and 3 of
B. B has its whole answer and posts a `SampledToken`, as does C; A waits. Round 2: 1 token each of B and C, the last 191
of A; all three post. Later C's plan returns an `Outcome`: its lane is dropped, its prompt's sequence may be kept for a
later prompt, its room goes to the next ticket in the same round."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from espalier.decoding.plan import Outcome
from espalier.decoding.ports import StepModel
from espalier.engines.base import Load
from espalier.engines.scheduling.admission import Admission
from espalier.engines.scheduling.costly import CostlyKeys
from espalier.engines.scheduling.lanes import Lane, PlanEvent, Ticket
from espalier.engines.scheduling.passes import Passes, PassTimes
from espalier.engines.scheduling.prefix_cache import KEPT_SEQUENCES, KEPT_TOKENS
from espalier.engines.scheduling.room import Room
from espalier.engines.scheduling.step_meter import StepMeter
from espalier.errors import (
    Cancelled,
    DeadlineExceeded,
    GenerationError,
    InputError,
    LimitExceeded,
    Overloaded,
    Unavailable,
)
from espalier.time_limit import HINT, OutOfTime, time_limit

MAX_LANES = 64  # plans that run in lock-step; the others wait, so that a long list does not fill the memory
PREFILL_CHUNK = 512  # tokens: such a pass takes about as long as reading the weights a few times
QUEUE_SIZE = 256
STEP_SECONDS = 10.0
PLAN_SECONDS = 60.0
STEP_SHARE = 0.05  # seconds: a step with a large vocabulary on a slow machine; most steps take less

CHEAP_STEP = 0.005  # seconds: plans that have only such steps go first
SLOW_STEP = 0.02  # seconds: a plan with such steps gets out of the way of the others
DEBT_KEPT = 0.99
ROUND_SECONDS = 0.1  # for the steps of all plans in one round; the rest go on in the next


Deliver = Callable[[Sequence[tuple[Ticket, PlanEvent]]], None]


class Scheduler:
    """Runs tickets. deliver: called a few times a round with what happened, in order; it must not block.

    prefill_chunk: prefill tokens in one pass, over all plans; single tokens come on top. lanes: plans that run at once.
    prefix_tokens: tokens of ended sequences kept for later prompts, 0 for none, None for a default that suits the
    model. step_seconds: limit for one step of one plan, during which all others wait; a constraint that exceeds it ends
    its plan and all plans of the same owner with the same `cost_key`, and these are refused for a minute; None for no
    limit. plan_seconds: limit for all steps of one plan together, not counting STEP_SHARE for each; None for no limit.
    clock: seconds, for deadlines. cpu: CPU seconds of the thread that calls `round`, for the limits of steps: no plan
    is charged for what others do meanwhile; by default the clock. charge: told once a round how much of it the steps of
    an owner took, passes of the model apart. room: what several schedulers of one model share; by default its own.
    is_fair: whether owners share lanes, room and time; without it all tickets are one caller's: they begin in their
    order, and no plan skips a round, so that batches depend on no clock. times: gets the seconds of each forward pass.
    Raises InputError for a number out of range.

    Plans with slow steps get half of the time at most while others run: cheap plans go first in every round, and after
    a slow step no other slow one begins for as long as it took.
    """

    def __init__(
        self,
        model: StepModel,
        deliver: Deliver,
        *,
        clock: Callable[[], float],
        cpu: Callable[[], float] | None = None,
        prefill_chunk: int = PREFILL_CHUNK,
        queue_size: int = QUEUE_SIZE,
        lanes: int = MAX_LANES,
        prefix_tokens: int | None = None,
        prefix_sequences: int = KEPT_SEQUENCES,
        step_seconds: float | None = STEP_SECONDS,
        plan_seconds: float | None = PLAN_SECONDS,
        charge: Callable[[str, float], None] = lambda owner, seconds: None,
        room: Room | None = None,
        is_fair: bool = True,
        times: PassTimes | None = None,
    ) -> None:
        for name, number, least in (
            ("prefill_chunk", prefill_chunk, 1),
            ("queue_size", queue_size, 1),
            ("lanes", lanes, 1),
            ("prefix_tokens", prefix_tokens or 0, 0),
            ("prefix_sequences", prefix_sequences, 0),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise InputError(f"{name} is a whole number from {least} on, not {number!r}", field=name)
        for name, seconds in (("step_seconds", step_seconds), ("plan_seconds", plan_seconds)):
            if seconds is not None and not seconds > 0:
                raise InputError(f"{name} is a number above 0, not {seconds}", field=name)
        self._model, self._deliver, self._clock, self._cpu = model, deliver, clock, cpu or clock
        self._step_seconds, self._plan_seconds, self._charge = step_seconds, plan_seconds, charge
        self._meter = StepMeter(self._cpu)
        self._costly = CostlyKeys()
        self._queue_size = queue_size
        self._room, self._is_fair = Room(model) if room is None else room, is_fair
        self._admission = Admission(model, self._room, lanes=lanes, is_fair=is_fair)
        self._waiting = self._admission.waiting
        # With one cache for all sequences, every pass also reads what is kept, so little is kept.
        most_kept = min(model.capacity // 16 if self._admission.shares else model.capacity, KEPT_TOKENS)
        kept_tokens = most_kept if prefix_tokens is None else prefix_tokens
        self._passes = Passes(
            model, chunk=prefill_chunk, kept_tokens=kept_tokens, kept_sequences=prefix_sequences, times=times
        )
        self._lock = threading.RLock()  # reentrant: a finalizer may call `cancel` in a thread that holds it
        self._changed = threading.Condition(self._lock)
        self._lanes: dict[Ticket, Lane] = {}
        self._joined: list[Lane] = []  # those that have not begun
        self._gone: set[Ticket] = set()
        self._refusal: str | None = None
        self._is_stopping = False
        self._is_in_round = False
        self._numbers = itertools.count()
        self._next_deadline: float | None = None
        self._debts: dict[str, float] = {}  # by owner: seconds of slow steps, less for every round since
        self._slow_from = -math.inf  # when a slow step may begin beside cheap plans
        self._posted: list[tuple[Ticket, PlanEvent]] = []  # what has happened since readers were told

    # For any thread.

    def check(self, owner: str) -> None:
        """Raises what `submit` would raise now."""
        with self._lock:
            if self._refusal is not None:
                raise Unavailable(self._refusal)
            if not self._admission.has_place(owner, self._queue_size):
                raise Overloaded(
                    f"{self._waiting.count} requests are waiting already", hint="try again in a few seconds"
                )

    def submit(self, *tickets: Ticket, limited: bool = True) -> None:
        """Queue the tickets. limited: whether the queue's limit applies. Raises Overloaded, Unavailable, and
        LimitExceeded for a constraint that was too slow a moment ago; then nothing is queued."""
        with self._lock:
            if self._refusal is not None:
                raise Unavailable(self._refusal)
            for ticket in tickets if limited else ():
                self.check(ticket.owner)
            for ticket in tickets:
                if ticket.cost_key is not None and self._costly.has(_costs(ticket), self._clock()):
                    raise _too_costly()
            for ticket in tickets:
                ticket.number = next(self._numbers)
                ticket.arrived = self._clock()
                self._admission.add(ticket)
                self._watch(ticket)
            self._changed.notify_all()

    def cancel(self, ticket: Ticket) -> None:
        """The ticket ends with Cancelled in the next round. Does nothing before `submit` and after the end."""
        with self._lock:
            if ticket.number >= 0 and not ticket.is_over:
                self._gone.add(ticket)
                self._changed.notify_all()

    def refuse(self, reason: str) -> None:
        """Accept nothing more."""
        with self._lock:
            self._refusal = self._refusal or reason

    def stop(self) -> None:
        """Accept nothing more, and make `wait` return False."""
        with self._lock:
            self.refuse("the engine is closing")
            self._is_stopping = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Block until there is work. False once stopped."""
        with self._lock:
            self._changed.wait_for(lambda: self._is_stopping or self.has_work)
            return not self._is_stopping

    def wait_idle(self, seconds: float) -> bool:
        """Block until nothing runs or waits and every reader has been told, for at most that many seconds."""
        with self._lock:
            return self._changed.wait_for(lambda: not self.has_work and not self._is_in_round, timeout=seconds)

    @property
    def has_work(self) -> bool:
        return bool(self._lanes or self._gone or self._waiting.count)

    @property
    def is_running(self) -> bool:
        """Whether any ticket has left the queue and not ended."""
        return bool(self._lanes)

    def load(self) -> Load:
        """Numbers, each as it is now. It takes no lock: threads that give way to the model ask every few milliseconds,
        and one that lost the interpreter while it held the lock would make the model wait."""
        return Load(
            running=len(self._lanes),
            waiting=self._waiting.count,
            sequences=self._passes.sequences,
            tokens_held=self._passes.tokens,
            capacity=self._model.capacity,
            steps=self._passes.steps,
            reused=self._passes.reused,
            prefilled=self._passes.prefilled,
        )

    # For the one thread that has the model.

    def round(self) -> bool:
        """One step. Returns whether there is more to do. Errors of a plan or of the model go to the plan's reader; an
        error that this raises is a bug, after which only `end` may be called."""
        self._is_in_round = True
        if self._gone or self._next_deadline is not None:
            self._leave()
        if self._waiting.count:
            self._join()
        if self._joined:
            self._start()
        lanes = [*self._lanes.values()]
        failed = self._passes.run(lanes)
        if failed:
            for lane, error in failed.items():
                self._fail(lane, error)
        if self._is_fair:
            self._advance_fairly()
        else:
            for lane in lanes:
                if lane.answer is not None:
                    last = lane.advance(self._posted)
                    if last is not None:
                        self._close(lane, last)
        if self._waiting.count:  # what has become free is this scheduler's before its readers go on and others ask
            self._join()
        if self._posted:
            posted, self._posted, deliver = self._posted, [], self._deliver
            deliver(posted)
        if self._lanes:
            return True
        with self._lock:
            self._is_in_round = False
            self._changed.notify_all()
            return self.has_work

    def _start(self) -> None:
        """Run the plans that have joined to their first need."""
        joined, self._joined = self._joined, []
        self._meter.begin()
        for lane in joined:
            self._advance(lane)
        self._meter.settle()
        self._tell()

    def _advance_fairly(self) -> None:
        """Go on with the plans that have an answer: cheap ones first, slow ones for half of the time at most."""
        self._meter.begin()
        are_beside_cheap = any(lane.cost < SLOW_STEP for lane in self._lanes.values())
        for lane in sorted(self._lanes.values(), key=self._turn):
            if lane.answer is not None:
                waits = are_beside_cheap and lane.cost >= SLOW_STEP and self._clock() < self._slow_from
                if waits or self._meter.seconds >= ROUND_SECONDS:
                    lane.hold()
                    continue
                if lane.cost >= CHEAP_STEP:
                    self._tell()  # what is known need not wait for a step that may be slow
                self._advance(lane)
        self._meter.settle()
        for owner, seconds in self._meter.drain().items():
            self._charge(owner, seconds)
        self._debts = {owner: debt * DEBT_KEPT for owner, debt in self._debts.items() if debt > SLOW_STEP / 100}

    def end(self, error: BaseException | None = None) -> None:
        """End every ticket with Cancelled, or because of an error, and free all memory. Raises what freeing raises,
        after every reader has been told."""
        with self._lock:
            self.refuse("the engine is closed" if error is None else f"the engine has stopped: {error}")
            waiting = [*self._waiting]
            for ticket in waiting:
                self._admission.leave(ticket)
            self._gone.clear()
            lanes = [*self._lanes.values()]
            for lane in lanes:
                self._end(lane.ticket)
            self._lanes.clear()
            self._joined.clear()
        for ticket in (*waiting, *(lane.ticket for lane in lanes)):
            self._over(ticket, _close_plan(ticket, self._last(error)))
        self._tell()
        with self._lock:
            self._is_in_round = False
            self._changed.notify_all()
        for lane in lanes:
            self._passes.free(lane)
        self._passes.clear()

    def _last(self, error: BaseException | None) -> Exception:
        if error is None:
            return Cancelled("the engine was closed")
        last = GenerationError(f"the engine has stopped: {type(error).__name__}: {error}")
        last.__cause__ = error
        return last

    def _leave(self) -> None:
        """End tickets that were cancelled or whose deadline has passed."""
        with self._lock:
            gone, self._gone = self._gone, set()
        for ticket in gone:
            self._stop(ticket, Cancelled())
        if self._next_deadline is None:
            return
        now = self._clock()
        if now < self._next_deadline:
            return
        self._next_deadline = None
        with self._lock:
            tickets = [*self._waiting, *self._lanes]
            for ticket in tickets:
                self._watch(ticket)
        for ticket in tickets:
            if ticket.deadline is not None and ticket.deadline <= now:
                self._stop(ticket, DeadlineExceeded())

    def _watch(self, ticket: Ticket) -> None:
        if ticket.deadline is not None and (self._next_deadline is None or ticket.deadline < self._next_deadline):
            self._next_deadline = ticket.deadline

    def _stop(self, ticket: Ticket, why: Exception) -> None:
        if ticket.is_over:
            return
        lane = self._lanes.get(ticket)
        if lane is not None:
            self._fail(lane, why)
            return
        with self._lock:
            self._admission.leave(ticket)
        self._over(ticket, _close_plan(ticket, why))

    def _join(self) -> None:
        """Let waiting tickets begin that may."""
        while self._waiting.count:
            with self._lock:
                ticket = self._admission.begin_next()
                if ticket is None:
                    return
                ticket.began, ticket.first_step = self._clock(), self._passes.steps
                lane = self._lanes[ticket] = Lane(ticket)
            self._passes.make_room(self._room.tokens, self._room.sequences, lane)
            self._joined.append(lane)

    def _advance(self, lane: Lane) -> None:
        """Go on with a plan within its limits of time."""
        ticket = lane.ticket
        if ticket.is_over:  # ended together with another plan of the same cost key
            return
        began, own = self._meter.start(), None if self._cpu is time.thread_time else self._cpu
        with time_limit(self._step_seconds, what="one step of the constraint", clock=own, since=began):
            last = lane.advance(self._posted)
        spent = self._took(lane)
        if last is not None:
            self._close(lane, last)
            if isinstance(last, OutOfTime):
                self._fail_alike(ticket)
            return
        ticket.spent += max(0.0, spent - STEP_SHARE)
        if self._plan_seconds is not None and ticket.spent > self._plan_seconds:
            self._fail(lane, OutOfTime(f"the constraint takes longer than {self._plan_seconds:g} s in all", hint=HINT))
            self._fail_alike(ticket)

    def _close(self, lane: Lane, last: Outcome | Exception) -> None:
        """A plan has ended. After an outcome, what its sequence holds may serve later prompts."""
        if isinstance(last, Exception):
            self._fail(lane, last)
        else:
            self._drop(lane, keep=True)
            self._over(lane.ticket, last)

    def _turn(self, lane: Lane) -> tuple[bool, bool, float, bool, float]:
        """Sorts lanes: cheap ones first, then those of owners without slow steps, then those that have waited."""
        return (
            lane.cost >= SLOW_STEP,
            lane.cost >= CHEAP_STEP,
            self._debts.get(lane.ticket.owner, 0.0),
            not lane.is_held,
            lane.cost,
        )

    def _took(self, lane: Lane) -> float:
        """Note the CPU seconds of the step that has ended, and return them."""
        owner = lane.ticket.owner
        took = self._meter.stop(owner)
        lane.cost = max(took, 0.8 * lane.cost)
        if took >= SLOW_STEP:
            self._debts[owner] = self._debts.get(owner, 0.0) + took
            self._slow_from = self._clock() + took
        return took

    def _fail_alike(self, costly: Ticket) -> None:
        """One plan has taken too long, and so would all of its owner with the same constraint. Other owners' plans go
        on, since the time also depends on the text so far."""
        if costly.cost_key is None:
            return
        key = _costs(costly)
        with self._lock:
            self._costly.add(key, self._clock())
            alike = [ticket for ticket in (*self._waiting, *self._lanes) if _costs(ticket) == key]
        for ticket in alike:
            self._stop(ticket, _too_costly())

    def _fail(self, lane: Lane, error: Exception) -> None:
        """End a lane early."""
        error = _close_plan(lane.ticket, error)
        lane.answer = None  # this round does not go on with it
        self._drop(lane, keep=False)
        self._over(lane.ticket, error)

    def _drop(self, lane: Lane, *, keep: bool) -> None:
        ticket = lane.ticket
        with self._lock:
            del self._lanes[ticket]
            self._end(ticket)
        self._passes.free(lane, keep=keep)
        self._passes.make_room(self._room.tokens, self._room.sequences)

    def _end(self, ticket: Ticket) -> None:
        self._admission.end(ticket, passes=self._passes.steps - ticket.first_step)

    def _over(self, ticket: Ticket, last: PlanEvent) -> None:
        with self._lock:
            ticket.is_over = True
            self._gone.discard(ticket)
        self._posted.append((ticket, last))

    def _tell(self) -> None:
        if self._posted:
            posted, self._posted = self._posted, []
            self._deliver(posted)


def _costs(ticket: Ticket) -> Hashable:
    return ticket.owner, ticket.cost_key


def _too_costly() -> LimitExceeded:
    return LimitExceeded("the constraint takes too long: another request with it was stopped just now", hint=HINT)


def _close_plan(ticket: Ticket, why: Exception) -> Exception:
    """Close a plan. Returns the error for its reader: `why`, or the error that closing raised."""
    try:
        ticket.plan.close()
    except Exception as worse:  # noqa: BLE001  # goes to its reader
        return worse
    return why
