"""Deletes old rows, by age and by number, in small batches between which others can write.

It knows ids, which contain times, and `flagged`: flagged rows are not deleted with the others, and have a limit of
their own. Only one process at a time deletes (`leases.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, delete, func, select

from espalier.errors import EspalierError, InputError
from espalier.store import generations, leases, responses, trace_filter, traces
from espalier.store.db import Database
from espalier.store.ids import first_id
from espalier.store.tables import GENERATION_LOGS, TRACES

LEASE = "retention"
LEASE_SECONDS = 120.0
BATCH_ROWS = 200
VACUUM_PAGES = 500  # 2 MB at once
MOST_FLAGGED = 10_000
"""Flagged rows of a table that stay whatever their age, the newest, so that a model that always fails fills no disk."""

KEPT: tuple[tuple[Table, str], ...] = (
    (TRACES, trace_filter.PREFIX),
    (GENERATION_LOGS, generations.PREFIX),
    (responses.RESPONSES, responses.PREFIX),
)

REMOVERS = {TRACES: traces.remove, GENERATION_LOGS: generations.remove}
"""For tables whose rows have something in others."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """seconds: the greatest age of a row. rows: how many of the newest rows of a table are kept. None: no limit."""

    seconds: float | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and self.seconds < 0:
            raise InputError("the age limit must not be negative", field="seconds")
        if self.rows is not None and self.rows < 1:
            raise InputError("the row limit must be at least 1", field="rows")


class Retention:
    """Deletes rows over the limits. clock: Unix seconds, the clock of the ids."""

    def __init__(
        self,
        database: Database,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.time,
        batch: int = BATCH_ROWS,
        kept: Sequence[tuple[Table, str]] = KEPT,
        own: Mapping[str, Limits] | None = None,
        most_flagged: int = MOST_FLAGGED,
    ) -> None:
        """kept: the tables, each with the prefix of its ids. own: by its name, the limits of a table that has others.
        most_flagged: how many of the newest flagged rows of a table stay; with 0 they go as all others."""
        self._database = database
        self._limits = limits
        self._own = own or {}
        self._clock = clock
        self._batch = batch
        self._kept = kept
        self._most_flagged = most_flagged
        self._holder = secrets.token_hex(8)

    def run(self, stop: threading.Event | None = None) -> int:
        """Delete all rows over the limits, and return how many; 0 while another process deletes. Blocks.

        stop: once set, it ends after the current batch. Raises OutputError if nothing can be written.
        """
        stop = stop or threading.Event()
        removed = 0
        if not self._holds():
            return 0
        try:
            for table, which in self._conditions():
                while not stop.is_set() and self._holds():
                    count = self._delete(table, which)
                    removed += count
                    if count < self._batch:
                        break
            if removed:
                self._shrink(stop)
        finally:
            leases.release(self._database, LEASE, self._holder)
        return removed

    def over(self) -> int:
        """How many rows `run` would delete now."""
        expired = 0
        for table, which in self._conditions():
            with self._database.reading() as connection:
                query = select(func.count()).select_from(table).where(which)
                expired += int(connection.execute(query).scalar_one())
        return expired

    def _conditions(self) -> list[tuple[Table, ColumnElement[bool]]]:
        """Which rows of each table are over the limits."""
        conditions: list[tuple[Table, ColumnElement[bool]]] = []
        for table, prefix in self._kept:
            limits = self._own.get(table.name, self._limits)
            usual = table.c.flagged.is_(False) if self._most_flagged and "flagged" in table.c else None
            if (bound := self._oldest_kept_id(table, prefix, limits, usual)) is not None:
                over = table.c.id < bound
                conditions.append((table, over if usual is None else over & usual))
            if usual is not None:
                flagged = table.c.flagged.is_(True)
                most = Limits(rows=self._most_flagged)
                if (bound := self._oldest_kept_id(table, prefix, most, flagged)) is not None:
                    conditions.append((table, (table.c.id < bound) & flagged))
        return conditions

    def _holds(self) -> bool:
        return leases.take(self._database, LEASE, self._holder, now=self._clock(), seconds=LEASE_SECONDS)

    def _oldest_kept_id(
        self, table: Table, prefix: str, limits: Limits, which: ColumnElement[bool] | None
    ) -> str | None:
        """The id below which all rows of the condition are deleted."""
        bounds = []
        if limits.seconds is not None:
            bounds.append(first_id(prefix, self._clock() - limits.seconds))
        if limits.rows is not None:
            query = select(table.c.id).order_by(table.c.id.desc()).offset(limits.rows - 1).limit(1)
            if which is not None:
                query = query.where(which)
            with self._database.reading() as connection:
                oldest_kept = connection.execute(query).scalar_one_or_none()
            if oldest_kept is not None:
                bounds.append(oldest_kept)
        return max(bounds, default=None)

    def _delete(self, table: Table, which: ColumnElement[bool]) -> int:
        oldest = table.c.id.in_(select(table.c.id).where(which).order_by(table.c.id).limit(self._batch))
        with self._database.writing() as connection:
            if table in REMOVERS:
                return REMOVERS[table](connection, self._database, oldest)
            return connection.execute(delete(table).where(oldest)).rowcount

    def _shrink(self, stop: threading.Event) -> None:
        """Return freed pages to the file system, a few at a time."""
        while self._database.vacuum(VACUUM_PAGES) and not stop.is_set() and self._holds():
            pass
        self._database.checkpoint()


async def keep(
    retention: Retention, *, every: float, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """Run `retention` now and every `every` seconds, until cancelled. Cancelling waits for the current batch, so that
    the database can be closed then. An error is logged, and the next run tries again."""
    stop = threading.Event()
    while True:
        running = asyncio.ensure_future(asyncio.to_thread(retention.run, stop))
        try:
            removed = await asyncio.shield(running)
            if removed:
                log.info("old traces and generations were deleted", extra={"rows": removed})
        except asyncio.CancelledError:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
            raise
        except EspalierError as error:
            log.warning("old traces and generations could not be deleted: %s", error)
        await sleep(every)
