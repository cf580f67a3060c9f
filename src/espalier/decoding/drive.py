"""Drives plans on a StepModel: all appends that plans ask for in one round go through one forward pass.

One plan is the common case; several run in lock-step, and each leaves the batch when it ends. The driver knows nothing
about tokens.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from espalier.decoding.plan import Outcome, Plan, Taken
from espalier.decoding.ports import Answer, Extend, Need, SequenceId, StepModel, Watch, opened
from espalier.decoding.room import Room
from espalier.errors import LimitExceeded


@dataclass(slots=True)
class _Lane:
    """One running plan: its number, its sequences by branch, and what it is waiting for."""

    index: int
    plan: Plan
    size: int = 0
    sequences: int = 1
    watch: Watch | None = None
    branches: dict[int, SequenceId] = field(default_factory=dict)
    need: Need | None = None
    answer: Answer | None = None


class PassTimes(Protocol):
    """Gets the seconds of forward passes, while it wants them: to ask the clocks takes time too."""

    is_wanted: bool

    def passed(self, seconds: float) -> None: ...


WAITS = 4
"""While others have the processor a pass takes longer than it computes; by more than this it waits for a device."""
MAX_LANES = 64  # plans that run in lock-step; the others wait, so that a long list does not fill the memory


def drive(
    model: StepModel,
    plans: Sequence[Plan],
    sizes: Sequence[int] | None = None,
    room: Room | None = None,
    sequences: Sequence[int] | None = None,
    watches: Sequence[Watch | None] | None = None,
    times: PassTimes | None = None,
) -> Generator[tuple[int, Taken | Outcome], None, None]:
    """Run all plans to their end; yields (plan number, Taken or Outcome) in the order of events.

    sizes: the most tokens that each plan will hold. sequences: the most sequences that it will hold at once, 1 by
    default. A plan starts only when there is room for all of it, so no started plan runs out of memory; a plan that is
    alone starts in any case. room: shared by all drivers that use this model at the same time. watches: what gets each
    plan's hidden states; then the model is a WatchedModel. times: gets the seconds of each forward pass, without those
    in which others had the processor. Closing the iterator, or an error in any plan, frees every sequence.

    Raises LimitExceeded where no plan can start because other drivers have taken the room.
    """
    known = [0] * len(plans) if sizes is None else sizes
    many = [1] * len(plans) if sequences is None else sequences
    seen = [None] * len(plans) if watches is None else watches
    waiting = deque(_Lane(index, *one) for index, one in enumerate(zip(plans, known, many, seen, strict=True)))
    lanes: list[_Lane] = []
    ended: list[_Lane] = []  # their room is given back just before waiting plans take it: others run between two yields
    room = Room(model) if room is None else room
    try:
        while lanes or waiting:
            while ended:
                room.give_back((over := ended.pop()).size, over.sequences)
            while waiting and len(lanes) < MAX_LANES and room.take(waiting[0].size, waiting[0].sequences):
                lanes.append(waiting.popleft())
            if not lanes:
                raise LimitExceeded(
                    "others who generate with this model have taken all of its cache",
                    hint="wait for them, or serve the model: requests then wait for their turn",
                )
            # Every lane uses its logits before the first yield: between two yields others may use the model, and its
            # rows are valid only until its next pass.
            events: list[tuple[int, Taken | Outcome]] = []
            fault: Exception | None = None
            for lane in list(lanes):
                try:
                    _until_need(lane, events)
                except Exception as error:  # noqa: BLE001  # raised below, after the events before it
                    fault = error
                    break
                if lane.need is None:
                    lanes.remove(lane)
                    _free(model, lane)
                    ended.append(lane)
            yield from events
            if fault is not None:
                raise fault
            if times is None or not times.is_wanted:
                _carry_out(model, lanes)
            else:
                began, used = time.perf_counter(), time.thread_time()
                _carry_out(model, lanes)
                took, used = time.perf_counter() - began, time.thread_time() - used
                times.passed(min(took, max(used, took / WAITS)))
    finally:
        for lane in (*lanes, *waiting):
            lane.plan.close()
            _free(model, lane)
        for lane in (*lanes, *ended):
            room.give_back(lane.size, lane.sequences)


def _until_need(lane: _Lane, events: list[tuple[int, Taken | Outcome]]) -> None:
    """Run a plan until it needs the model or ends, and add what happens to `events`, also where it then raises."""
    answer, lane.answer, lane.need = lane.answer, None, None
    while True:
        try:
            # send(None) is next(): the first step of a plan, and the reply to a Taken.
            yielded = lane.plan.send(answer)
        except StopIteration as end:
            events.append((lane.index, end.value))
            return
        if isinstance(yielded, Need):
            lane.need = yielded
            return
        answer = None
        events.append((lane.index, yielded))


def _carry_out(model: StepModel, lanes: list[_Lane]) -> None:
    work: list[Extend] = []
    for lane in lanes:
        need = lane.need
        if need is None:
            raise AssertionError("a lane without a need is not in the round")
        early, late = need.frees(lane.branches) if need.free else ((), ())
        for branch in early:
            model.free(lane.branches.pop(branch))
        for source, target in need.fork:
            if target in lane.branches:
                raise ValueError(f"a strategy forks to branch {target}, which it has already")
            lane.branches[target] = model.fork(lane.branches[source])
        for branch, length in need.truncate:
            model.truncate(lane.branches[branch], length)
        for branch in late:
            model.free(lane.branches.pop(branch))
        for append in need.append:
            if append.branch not in lane.branches:
                lane.branches[append.branch] = opened(model, lane.watch)
            work.append(Extend(sequence=lane.branches[append.branch], tokens=append.tokens, logits=append.logits))
    rows = iter(model.extend(work)) if work else iter(())
    for lane in lanes:
        lane.answer = {append.branch: next(rows) for append in lane.need.append} if lane.need else None


def _free(model: StepModel, lane: _Lane) -> None:
    for sequence in lane.branches.values():
        model.free(sequence)
    lane.branches.clear()
