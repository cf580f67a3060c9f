"""Keeps the costs of the windows that were asked for last, until an answer is added to one of them.

Every answer adds a row of COST_SUMS, or to one, in the transaction of all its other sums. So the number of answers in
the window and the one before, with what is known of the constraints, tells whether anything changed, whichever process
added it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, func, select

from espalier.store import rows
from espalier.store.costs.report import ConstraintCosts
from espalier.store.costs.tables import CONSTRAINTS, COST_SUMS
from espalier.store.costs.window import CostWindow
from espalier.store.db import Database

MOST_WINDOWS = 32
Version: TypeAlias = tuple[Any, ...]
"""Equal as long as the costs of a window are."""


class KeptCosts:
    """The costs of a few windows of one database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._windows: OrderedDict[Any, tuple[Version, Sequence[ConstraintCosts]]] = OrderedDict()
        self._lock = threading.Lock()

    def costs(self, window: CostWindow, read: Callable[[], list[ConstraintCosts]]) -> list[ConstraintCosts]:
        """What `read` returns, or returned when nothing else was added."""
        key = window.hours(), window.before.hours(), window.caller, window.model
        with self._database.reading() as connection:
            # Before the sums are read: what is added between is in them, and makes the version another one.
            version = _version(connection, window)
        with self._lock:
            kept = self._windows.get(key)
            if kept is not None and kept[0] == version:
                self._windows.move_to_end(key)
                return [*kept[1]]
        costs = read()
        with self._lock:
            self._windows[key] = version, tuple(costs)
            self._windows.move_to_end(key)
            while len(self._windows) > MOST_WINDOWS:
                self._windows.popitem(last=False)
        return costs


def _version(connection: Connection, window: CostWindow) -> Version:
    """Old hours are forgotten from the first one on, so that what goes is not made up for by what is added."""
    (first, _), (_, past) = window.before.hours(), window.hours()
    answers = select(func.sum(COST_SUMS.c.answers), func.min(COST_SUMS.c.hour), func.count()).where(
        COST_SUMS.c.hour >= first, COST_SUMS.c.hour < past
    )
    known = select(func.count(), func.sum(CONSTRAINTS.c.first_seen))
    if window.caller is not None:
        caller = rows.caller_text(window.caller)
        answers, known = answers.where(COST_SUMS.c.caller == caller), known.where(CONSTRAINTS.c.caller == caller)
    return (*connection.execute(answers).one(), *connection.execute(known).one())
