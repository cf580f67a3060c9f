"""What the processor tells of requests that ask for a report. `reporter.py` says who gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step of a request that asked for a report. id: as in its extra_args. step: from 0. tax_nats: -ln Z, inf where
    nothing is allowed. removed_mass: 1 - Z. failure: set once, where the row had to end, with the other values of a
    step that removes nothing. left: set once, likewise, when the request leaves the batch, after `step` tokens: with a
    finished text, or without (cut off, cancelled, or preempted, and then it comes back). was_changed: whether the
    model's top choice was not allowed. constraint: of the request, as JSON; None where it could not be read."""

    id: str
    step: int
    allowed_count: int = 0
    tax_nats: float = 0.0
    removed_mass: float = 0.0
    failure: str = ""
    left: Literal["", "finished", "unfinished"] = ""
    was_changed: bool = False
    constraint: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


Reporter: TypeAlias = Callable[[StepReport], None]
