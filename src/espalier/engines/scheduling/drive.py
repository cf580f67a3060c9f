"""Runs plans in the thread of whoever reads their events: a scheduler without a thread, one round for each pass.

It knows nothing about tokens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence

from espalier.decoding.plan import Outcome, Plan, SampledToken
from espalier.decoding.ports import StepModel, Watch
from espalier.engines.scheduling.lanes import PlanEvent, Ticket
from espalier.engines.scheduling.passes import PassTimes
from espalier.engines.scheduling.room import Room
from espalier.engines.scheduling.scheduler import Scheduler
from espalier.errors import LimitExceeded


def drive(
    model: StepModel,
    plans: Sequence[Plan],
    sizes: Sequence[int] | None = None,
    room: Room | None = None,
    sequences: Sequence[int] | None = None,
    watches: Sequence[Watch | None] | None = None,
    times: PassTimes | None = None,
) -> Generator[tuple[int, SampledToken | Outcome], None, None]:
    """Run all plans to their end; yields (plan number, SampledToken or Outcome) in the order of events.

    sizes: the most tokens that each plan will hold. sequences: the most sequences that it will hold at once, 1 by
    default. A plan starts only when there is room for all of it, so no started plan runs out of memory; a plan that is
    alone starts in any case. room: shared by all drivers that use this model at the same time. watches: what gets each
    plan's hidden states; then the model is a WatchedModel. times: gets the seconds of each forward pass. Closing the
    iterator, or an error in any plan, frees every sequence.

    Every plan uses its logits before the first yield: between two yields others may use the model, and its rows are
    valid only until its next pass. Raises LimitExceeded where no plan can start because other drivers have taken the
    room.
    """
    posted: list[tuple[Ticket, PlanEvent]] = []
    count = len(plans)
    sizes = [0] * count if sizes is None else sizes
    sequences = [1] * count if sequences is None else sequences
    watches = [None] * count if watches is None else watches
    tickets = [
        Ticket(plan=plan, size=size, sequences=many, watch=watch, reader=index)
        for index, (plan, size, many, watch) in enumerate(zip(plans, sizes, sequences, watches, strict=True))
    ]
    scheduler = Scheduler(
        model,
        posted.extend,
        clock=time.monotonic,
        prefill_chunk=sys.maxsize,
        prefix_tokens=0,
        step_seconds=None,
        plan_seconds=None,
        room=room,
        is_fair=False,
        times=times,
    )
    left = count
    try:
        scheduler.submit(*tickets, limited=False)
        while left:
            scheduler.round()
            if not posted and not scheduler.is_running:
                raise LimitExceeded(
                    "others who generate with this model have taken all of its cache",
                    hint="wait for them, or serve the model: requests then wait for their turn",
                )
            for ticket, happened in posted:
                if not isinstance(happened, SampledToken):
                    left -= 1
                    if isinstance(happened, Exception):
                        raise happened
                yield ticket.reader, happened
            posted.clear()
    finally:
        scheduler.end()
