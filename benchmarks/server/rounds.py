"""Where a round of the scheduler goes, without HTTP: the model's pass, the plans (masks, sampling, text), and what the
scheduler adds, which is all of the round that is neither. Rounds with a prefill are left out.

The processor's time of the one thread that does it all: what else runs on the machine is not in it. So the model is
opened with one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import espalier
from benchmarks.server.cases import prompt
from espalier.decoding.ports import Extend, Rows
from espalier.engines.local.engine import LocalEngine
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.scheduler import Scheduler


@dataclass
class Clock:
    """Seconds of this round. size: tokens of its pass."""

    model: float = 0.0
    plans: float = 0.0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """Medians of µs: a round, and its parts."""

    whole: float
    model: float
    plans: float
    added: float


class TimedModel:
    """A StepModel that times its passes; the rest is the model's own."""

    def __init__(self, model: Any, clock: Clock) -> None:
        self._model, self._clock = model, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        start = time.thread_time()
        rows: list[Rows] = self._model.extend(work)
        if rows:
            float(rows[0].reshape(-1)[0]) if rows[0].size else None  # what is computed lazily is computed here
        self._clock.model += time.thread_time() - start
        self._clock.size += sum(len(one.tokens) for one in work)
        return rows


@dataclass
class TimedPlan:
    """A plan that times its steps."""

    plan: Any
    clock: Clock
    close: Any = field(init=False)

    def __post_init__(self) -> None:
        self.close = self.plan.close

    def send(self, answer: Any) -> Any:
        start = time.thread_time()
        try:
            return self.plan.send(answer)
        finally:
            self.clock.plans += time.thread_time() - start


def measured(
    engine: espalier.LoadedEngine,
    *,
    lanes: int,
    tokens: int,
    schema: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    kept: int | None = None,
    bursts: int = 3,
) -> Round:
    """kept: a Scheduler's `prefix_tokens`."""
    local = engine.engine
    assert isinstance(local, LocalEngine)
    clock = Clock()
    model: Any = TimedModel(local.model, clock)
    scheduler = Scheduler(model, lambda _batch: None, clock=time.monotonic, prefix_tokens=kept)
    parts: list[tuple[float, float, float, float]] = []
    for burst in range(bursts + 1):
        for number in range(lanes):
            usual = {"max_tokens": tokens, "seed": number, "trace": "summary", **options}
            if schema is not None:
                usual["constraint"] = espalier.JsonSchema(schema)
            run = local.prepare(espalier.api.make_request(prompt(burst, number), **usual))
            plan: Any = TimedPlan(run.plan(), clock)
            scheduler.submit(Ticket(plan=plan, prompt=run.job.prompt, size=run.size), limited=False)
        goes_on = True
        while goes_on:
            clock.model = clock.plans = clock.size = 0
            start = time.thread_time()
            goes_on = scheduler.round()
            took = time.thread_time() - start
            if burst and clock.size == lanes:  # the first compiles
                parts.append((took, clock.model, clock.plans, took - clock.model - clock.plans))
    scheduler.end()
    return Round(*(statistics.median(part) * 1e6 for part in zip(*parts, strict=True)))
