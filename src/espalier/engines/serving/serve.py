"""Chooses how an engine serves many callers: our scheduler if its model runs in this process, else directly."""

from __future__ import annotations

from typing import Any

from espalier.constraints.judging import in_this_process
from espalier.engines.local.step_engine import StepEngine
from espalier.engines.protocols import Engine, ServingEngine
from espalier.engines.scheduling.scheduler import QUEUE_SIZE
from espalier.engines.serving.direct import DirectService
from espalier.engines.serving.service import Service


def serve_engine(engine: Engine, *, queue_size: int = QUEUE_SIZE, **options: Any) -> ServingEngine:
    """options: a Scheduler's. An engine that schedules its own requests takes `queue_size` and `judge` only. Raises
    InputError."""
    if isinstance(engine, StepEngine):
        return Service(engine, queue_size=queue_size, **options)
    return DirectService(engine, queue_size=queue_size, judge=options.get("judge", in_this_process))
