"""A running plan: its sequences, and how far what it needs has been carried out. The scheduler moves it.

It knows no other lanes, no limits and no threads.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.plan import Outcome, Plan, Taken
from espalier.decoding.ports import Answer, Append, Need, Rows
from espalier.engines.serving.prefix_cache import Held, as_ids

Said: TypeAlias = Taken | Outcome | Exception
"""What a plan's reader is told. An Outcome or an error is the last."""


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """A plan that wants to run. Its plan belongs to the scheduler from now on.

    prompt: the tokens of its first append, where they are known; a kept prefix of theirs is spared when room is made.
    size: how many tokens it can come to hold; sequences: how many at once. deadline: by the scheduler's clock, as are
    arrived and began, set by the scheduler: when it was submitted, and when it got its place. reused: tokens of its
    prompt that were there already. cost_key: what its steps cost is the same for all tickets of its owner with an equal
    one; None where that is not known. spent: seconds that its steps took beyond their share.
    reader: whatever says to whom its events go.
    """

    plan: Plan
    prompt: tuple[int, ...] = ()
    size: int = 0
    sequences: int = 1
    owner: str = ""
    deadline: float | None = None
    reader: Any = None
    number: int = -1  # set by the scheduler: in order of arrival
    is_over: bool = False
    arrived: float = 0.0
    began: float | None = None
    reused: int = 0
    cost_key: Hashable = None
    spent: float = 0.0


@dataclass(slots=True, eq=False)
class Todo:
    """One append under way. place: how many of its tokens are done. is_prompt: it begins a sequence."""

    append: Append
    is_prompt: bool
    place: int = 0
    rows: list[Rows] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.append.tokens) - self.place

    def answer(self, width: int) -> Rows:
        """`(1, V)`, `(T, V)` or `(0, V)` float32."""
        if len(self.rows) == 1:
            return self.rows[0]
        return np.concatenate(self.rows) if self.rows else np.empty((0, width), dtype=np.float32)


class Lane:
    """One plan while it runs."""

    __slots__ = ("answer", "branches", "head", "ids", "is_held", "need", "plan", "ticket", "todo")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.plan = ticket.plan
        self.ids: NDArray[np.int64] = as_ids(ticket.prompt)  # (T,)
        self.head: Held | None = None  # a kept sequence that was taken over for the prompt
        self.branches: dict[int, Held] = {}
        self.need: Need | None = None
        self.todo: list[Todo] = []
        self.answer: Answer | None = None
        self.is_held = False  # has its answer since an earlier round

    def advance(self, said: list[Said]) -> bool:
        """Run the plan to its next need, adding what it says. False where it has ended. Raises what it raises."""
        answer, self.answer, self.need, self.is_held = self.answer, None, None, False
        try:
            # send(None) is next(): the first step of a plan, and the reply to a Taken.
            while not isinstance(happened := self.plan.send(answer), Need):
                said.append(happened)
                answer = None
        except StopIteration as end:
            said.append(end.value)
            return False
        self.need = happened
        return True

    def hold(self) -> None:
        """Go on in a later round: the next forward pass would overwrite the answer."""
        if self.answer is not None and not self.is_held:
            self.answer = {branch: rows.copy() for branch, rows in self.answer.items()}
            self.is_held = True

    def settle(self, width: int) -> None:
        """After a forward pass: the answer, if all of the need is done; else keep what the next would overwrite."""
        if not any(todo.left for todo in self.todo):
            self.answer = {todo.append.branch: todo.answer(width) for todo in self.todo}
            self.todo = []
        else:
            for todo in self.todo:
                if todo.rows and not todo.rows[-1].flags.owndata:
                    todo.rows[-1] = todo.rows[-1].copy()

    def begins_with(self, ids: NDArray[np.int64]) -> bool:
        """Whether the prompt's sequence still begins with these tokens `(T,)`."""
        held = self.branches.get(0)
        return held is not None and held.tokens[: len(ids)] == ids.tolist()
