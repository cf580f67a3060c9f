"""Which task of a log is whose, where several replies may each be of several tasks.

    reply A: task 7 or 8        reply B: task 8        so B is of task 8, and A of task 7

Each task is of one reply, and each reply of one task or of none. What holds in every assignment that gives away as many
tasks as possible is certain.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

R = TypeVar("R", bound=Hashable)
T = TypeVar("T", bound=Hashable)


def certain(options: Mapping[R, Set[T]]) -> dict[R, T | None]:
    """For each reply that is decided, its task, None for none. options: the tasks that a reply may be of."""
    every = assigned(options)
    task_of: dict[R, T | None] = {}
    for reply, task in every.items():
        without = {other: (tasks - {task} if other == reply else tasks) for other, tasks in options.items()}
        if len(assigned(without)) < len(every):
            task_of[reply] = task
    for reply in options:
        if reply not in every and not _may_have_one(options, reply, len(every)):
            task_of[reply] = None
    return task_of


def _may_have_one(options: Mapping[R, Set[T]], reply: R, most: int) -> bool:
    """Whether some assignment of as many tasks gives the reply one."""
    for task in options[reply]:
        rest = {other: tasks - {task} for other, tasks in options.items() if other != reply}
        if 1 + len(assigned(rest)) == most:
            return True
    return False


def assigned(options: Mapping[R, Set[T]]) -> dict[R, T]:
    """One assignment of as many tasks as possible, by augmenting paths."""
    owner: dict[T, R] = {}

    def give(reply: R, tried: set[T]) -> bool:
        for task in options[reply]:
            if task not in tried:
                tried.add(task)
                if task not in owner or give(owner[task], tried):
                    owner[task] = reply
                    return True
        return False

    for reply in options:
        give(reply, set())
    return {reply: task for task, reply in owner.items()}
