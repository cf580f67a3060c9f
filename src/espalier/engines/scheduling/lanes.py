"""Lane: a running plan, its sequences, and the progress of what it needs. The scheduler moves it forward.

It knows no other lanes, no limits and no threads.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.plan import Outcome, Plan, SampledToken
from espalier.decoding.ports import Answer, Append, Extend, Need, Rows, Watch
from espalier.engines.scheduling.prefix_cache import HeldSequence, as_ids

PlanEvent: TypeAlias = SampledToken | Outcome | Exception
"""What a plan's reader gets. An Outcome or an error comes last."""
UNKNOWN_COST = 0.01
"""The cost of a plan that has taken no step: it goes after those that are known to be cheap."""


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """A plan that waits for its turn. From submission on the plan belongs to the scheduler.

    prompt: the tokens of its first append, if known; a kept prefix of them is dropped last. size: the most tokens it
    can hold; sequences: the most sequences. owner: requests are shared out by owner. deadline: by the scheduler's
    clock. cost_key: tickets of one owner with equal keys cost the same per step; None if unknown. watch: gets the
    hidden states; then no kept prefix is used, since nobody has kept its hidden states. reader: says who gets the
    events. request: what the outputs of one request have in common; None for a ticket that stands alone.

    Set by the scheduler: number: order of arrival. arrived, began: when it was submitted, when it started. reused:
    prompt tokens that a kept prefix spared. first_step: passes of the model before it began. spent: CPU seconds that
    its steps took beyond their share. ahead: its size, if it began before one whose turn it was; otherwise 0.
    """

    plan: Plan
    prompt: tuple[int, ...] = ()
    size: int = 0
    sequences: int = 1
    owner: str = ""
    deadline: float | None = None
    reader: Any = None
    request: object | None = None
    #: Seconds from submission to each token, where the reader waits for the end; added as tokens are delivered.
    times: list[float] | None = None
    number: int = -1  # set by the scheduler: in order of arrival
    is_over: bool = False
    arrived: float = 0.0
    began: float | None = None
    reused: int = 0
    first_step: int = 0
    cost_key: Hashable = None
    watch: Watch | None = None
    spent: float = 0.0
    ahead: int = 0


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append of several tokens, or to a new sequence, in progress."""

    #: who asked for it
    lane: Lane
    append: Append
    #: the sequence that grows
    held: HeldSequence
    #: whether it starts the sequence
    is_prompt: bool = False
    #: tokens done
    place: int = 0
    #: tokens of the pass that runs
    size: int = 0
    #: the rows of logits so far, one array for each pass
    rows: list[Rows] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.append.tokens) - self.place

    def extension(self) -> Extend:
        """What the pass appends: the next `size` tokens."""
        tokens, start = self.append.tokens, self.place
        # Before the last piece only appends with logits="all" need rows.
        is_last = start + self.size == len(tokens)
        wanted = self.append.logits if is_last or self.append.logits == "all" else "none"
        return Extend(self.held.sequence, tokens[start : start + self.size], wanted)

    def grow(self, rows: Rows) -> None:
        """The pass has appended `size` tokens, and gave these rows."""
        self.place += self.size
        if rows.shape[0]:
            self.rows.append(rows)

    def answer(self, width: int) -> Rows:
        """`(1, V)`, `(T, V)` or `(0, V)` float32."""
        if len(self.rows) == 1:
            return self.rows[0]
        return np.concatenate(self.rows) if self.rows else np.empty((0, width), dtype=np.float32)


class Lane:
    """One plan while it runs. cost: CPU seconds that a step takes, by its latest ones."""

    __slots__ = ("answer", "branches", "cost", "head", "ids", "is_held", "need", "plan", "rows", "ticket", "todo")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.plan = ticket.plan
        self.ids: NDArray[np.int64] = as_ids(ticket.prompt)  # (T,)
        self.head: HeldSequence | None = None  # a kept sequence, reused for the prompt
        self.branches: dict[int, HeldSequence] = {}
        self.need: Need | None = None
        self.todo: list[PendingAppend] = []  # what is left of the need that is carried out
        self.rows: dict[int, Rows] = {}  # by branch: what is there of its answer
        self.answer: Answer | None = None
        self.is_held = False  # its answer is from an earlier round
        self.cost = UNKNOWN_COST

    def advance(self, posted: list[tuple[Ticket, PlanEvent]]) -> Outcome | Exception | None:
        """Run the plan to its next need, and post its events. Returns what ended it: its outcome or the error that it
        raised."""
        send, ticket, answer = self.plan.send, self.ticket, self.answer
        self.answer = None
        self.is_held = False
        try:
            # send(None) is next(): the first step of a plan, and the reply to a SampledToken.
            while not isinstance(happened := send(answer), Need):
                posted.append((ticket, happened))
                answer = None
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        except Exception as error:  # noqa: BLE001  # goes to the plan's reader
            return error
        self.need = happened
        return None

    def hold(self) -> None:
        """Continue in a later round: copy the answer, which the next forward pass would overwrite."""
        if self.answer is not None and not self.is_held:
            self.answer = {branch: rows.copy() for branch, rows in self.answer.items()}
            self.is_held = True

    def settle(self, width: int) -> None:
        """After a forward pass with one of the appends in `todo`: the answer, if the whole need is done; otherwise copy
        the rows that the next pass would overwrite."""
        if not any(todo.left for todo in self.todo):
            self.rows |= {todo.append.branch: todo.answer(width) for todo in self.todo}
            self.answer, self.todo = self.rows, []
            return
        self.rows = {branch: rows if rows.flags.owndata else rows.copy() for branch, rows in self.rows.items()}
        for todo in self.todo:
            if todo.rows and not todo.rows[-1].flags.owndata:
                todo.rows[-1] = todo.rows[-1].copy()

    def begins_with(self, ids: NDArray[np.int64]) -> bool:
        """Whether the prompt's sequence still starts with these tokens `(T,)`."""
        held = self.branches.get(0)
        return held is not None and held.tokens[: len(ids)] == ids.tolist()
