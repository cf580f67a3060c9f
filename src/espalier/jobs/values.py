"""The values of batch jobs: what is asked for, an item under a lease, and how it ended. It runs and stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.jobs.states import BatchState
from espalier.json_record import JsonRecord

Kind = Literal["openai", "seed", "anthropic"]
"""openai: JSON Lines with `custom_id`, `url` and `body`. seed: a JSON list of bodies, as the word-list server took it.
anthropic: as openai, written by the server itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFault(JsonRecord):
    """One thing that is wrong with an input. line: from 1; None for the whole file. param: the field."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a new batch is made from. window: seconds until it expires, None for never. priority: higher ones first.
    options: of the kind; for `seed` the job's parameters. output_seconds: how long the results are kept."""

    caller: str
    endpoint: str
    input_file: str
    kind: Kind = "openai"
    window: float | None = 86_400.0
    priority: int = 0
    metadata: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    output_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCounts:
    """Items by how they stand. failed: poison items included. invalid: of those completed, whose answer is not valid,
    as where it was cut."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    pending: int = 0
    running: int = 0
    stopped: int = 0
    invalid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as it stands. Times are Unix seconds. errors: of an input that was refused. usage: sums, once it has
    ended. at: the time of each state that was reached, by the state's name."""

    id: str
    plan: BatchPlan
    state: BatchState
    created: float
    expires: float | None
    is_paused: bool
    counts: ItemCounts
    at: Mapping[str, float]
    errors: tuple[InputFault, ...] = ()
    output_file: str | None = None
    error_file: str | None = None
    usage: Mapping[str, int] | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """One line of the input. answer: given if the line is wrong by itself, so that it has its result already."""

    line: int
    custom_id: str
    body: Mapping[str, Any]
    size: int
    answer: ItemAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's right to record the result of an item. fence: the number of this lease; a lower one is stale."""

    batch: str
    line: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """An item that a worker has. size: bytes of the body. attempts: how often it was tried before and failed.
    losses: how often a worker died with it. options: of the batch."""

    lease: Lease
    custom_id: str
    caller: str
    endpoint: str
    kind: Kind
    body: Mapping[str, Any]
    size: int
    attempts: int = 0
    losses: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnswer:
    """How an item ended. status: as an HTTP server would answer. body: the JSON of the reply or of the error. valid:
    the verdict, None if there is none. figures: what the report sums. error: a code and a message, for an item that no
    route has answered; then there is no body. passes: seconds after which the same item may be answered otherwise,
    whatever the status."""

    status: int
    body: Mapping[str, Any] | None
    request_id: str
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    valid: bool | None = None
    trace_id: str | None = None
    figures: Mapping[str, Any] | None = None
    error: Mapping[str, str] | None = None
    passes: float | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300 and self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """What a worker records of an item. again: seconds until it is tried again; None: the answer is its result."""

    lease: Lease
    answer: ItemAnswer
    again: float | None = None
