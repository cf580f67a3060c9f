"""Rows of batches: made, read, listed, paused, cancelled, deleted. It knows no leases (`queue.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, insert, select, update

from espalier.errors import InputError
from espalier.jobs.states import FAILED_ITEMS, OPEN_BATCHES, BatchState, ItemState
from espalier.jobs.values import Batch, BatchPlan, InputFault, ItemCounts
from espalier.store import rows
from espalier.store.batches.tables import ATTEMPTS, BATCHES, FILES, ITEMS, RESULTS
from espalier.store.db import Database
from espalier.store.ids import Ids, is_id
from espalier.store.packing import pack, unpack

PREFIX = "batch"
TIMES = tuple(f"{state}_at" for state in BatchState)
MOST_PRIORITY = 1_000_000


class Batches:
    """Batches of all callers. Every method blocks. caller: None for every caller."""

    def __init__(self, database: Database, ids: Ids, clock: Callable[[], float] = time.time) -> None:
        self._database, self._ids, self._clock = database, ids, clock

    def create(self, plan: BatchPlan, *, most_open: int | None = None, paused: bool = False) -> Batch:
        """A new batch, which a worker will validate. most_open: how many a caller may have open at once. paused: no
        item runs until it is resumed. Raises InputError for a wrong plan, and TooManyOpen."""
        if abs(plan.priority) > MOST_PRIORITY:
            raise InputError(f"a priority is from -{MOST_PRIORITY} to {MOST_PRIORITY}", field="priority")
        batch_id, created = self._ids.new(PREFIX)
        row = {
            "id": batch_id,
            "created": created,
            "caller": rows.caller_text(plan.caller),
            "kind": plan.kind,
            "endpoint": rows.column_text(plan.endpoint),
            "input_file": plan.input_file,
            "state": BatchState.VALIDATING,
            "priority": plan.priority,
            "paused": paused,
            "expires": None if plan.window is None else created + plan.window,
            "total": 0,
            "plan": pack(asdict(plan), what="batch"),
            "validating_at": created,
            "fence": 0,
        }
        with self._database.writing() as connection:
            if most_open is not None:
                query = select(func.count()).select_from(BATCHES)
                query = query.where(BATCHES.c.caller == row["caller"], BATCHES.c.state.in_(OPEN_BATCHES))
                if connection.execute(query).scalar_one() >= most_open:
                    raise TooManyOpen(
                        f"{most_open} batches are open already", hint="wait until one has ended, or cancel one"
                    )
            connection.execute(insert(BATCHES).values(row))
        batch = self.get(batch_id, caller=None)
        assert batch is not None
        return batch

    def get(self, batch_id: str, *, caller: str | None) -> Batch | None:
        """The batch, None if this caller has none of that id."""
        if not is_id(batch_id, PREFIX):
            return None
        query = select(BATCHES).where(BATCHES.c.id == batch_id)
        if caller is not None:
            query = query.where(BATCHES.c.caller == rows.caller_text(caller))
        with self._database.reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
            return None if row is None else batch_of(row, counts(connection, [row["id"]])[row["id"]])

    def page(
        self, *, caller: str | None, limit: int, after: str | None = None, kind: str | None = None
    ) -> Sequence[Batch]:
        """Newest first. Raises InputError for a wrong limit or `after`."""
        if limit < 1:
            raise InputError("the limit must be at least 1", field="limit")
        query = select(BATCHES).order_by(BATCHES.c.id.desc()).limit(limit)
        if caller is not None:
            query = query.where(BATCHES.c.caller == rows.caller_text(caller))
        if kind is not None:
            query = query.where(BATCHES.c.kind == kind)
        if after is not None:
            if not is_id(after, PREFIX):
                raise InputError("`after` is not the id of a batch", hint="give the `last_id` of a page", field="after")
            query = query.where(BATCHES.c.id < after)
        with self._database.reading() as connection:
            batch_rows = connection.execute(query).mappings().all()
            counted = counts(connection, [row["id"] for row in batch_rows])
            return [batch_of(row, counted[row["id"]]) for row in batch_rows]

    def cancel(self, batch_id: str, *, caller: str | None) -> Batch | None:
        """Stop a batch: what waits is cancelled now, what runs is stopped by its worker. A batch that has ended or is
        ending stays as it is."""
        now = self._clock()
        if self.get(batch_id, caller=caller) is None:
            return None
        with self._database.writing() as connection:
            move = update(BATCHES).where(BATCHES.c.id == batch_id)
            begun = connection.execute(
                move.where(BATCHES.c.state == BatchState.IN_PROGRESS).values(
                    state=BatchState.CANCELLING, cancelling_at=now
                )
            )
            connection.execute(
                move.where(BATCHES.c.state == BatchState.VALIDATING).values(
                    state=BatchState.CANCELLED, cancelling_at=now, cancelled_at=now, fence=BATCHES.c.fence + 1
                )
            )
            if begun.rowcount:
                waiting = update(ITEMS).where(ITEMS.c.batch_id == batch_id, ITEMS.c.state == ItemState.PENDING)
                connection.execute(waiting.values(state=ItemState.CANCELLED))
        return self.get(batch_id, caller=caller)

    def pause(self, batch_id: str, *, caller: str | None, paused: bool) -> Batch | None:
        """Pause (its worker gives running items back) or resume."""
        return self._set(batch_id, caller, paused=paused)

    def prioritise(self, batch_id: str, *, caller: str | None, priority: int) -> Batch | None:
        """Higher ones are run first. Raises InputError for a number out of range."""
        if abs(priority) > MOST_PRIORITY:
            raise InputError(f"a priority is from -{MOST_PRIORITY} to {MOST_PRIORITY}", field="priority")
        return self._set(batch_id, caller, priority=priority)

    def remove(self, batch_id: str, *, caller: str | None) -> bool:
        """Delete a batch that has ended, with its items and results. Returns whether there was one. Raises InputError
        for one that is still open."""
        batch = self.get(batch_id, caller=caller)
        if batch is None:
            return False
        if batch.state in OPEN_BATCHES:
            raise InputError("the batch has not ended", hint="cancel it first", field="batch_id")
        with self._database.writing() as connection:
            delete_rows(connection, [batch_id])
        return True

    def open_items(self) -> Mapping[ItemState, int]:
        """How many items of the batches that have not ended are in each state. Every state is there."""
        query = (
            select(ITEMS.c.state, func.count())
            .join(BATCHES, BATCHES.c.id == ITEMS.c.batch_id)
            .where(BATCHES.c.state.in_(OPEN_BATCHES))
            .group_by(ITEMS.c.state)
        )
        with self._database.reading() as connection:
            counted = {row[0]: row[1] for row in connection.execute(query)}
        return {state: int(counted.get(state, 0)) for state in ItemState}

    def sweep(self, before: float) -> Sequence[str]:
        """Delete up to 20 batches that ended before that time. Returns their ids."""
        ended = func.coalesce(BATCHES.c.completed_at, BATCHES.c.failed_at, BATCHES.c.expired_at, BATCHES.c.cancelled_at)
        query = select(BATCHES.c.id).where(BATCHES.c.state.not_in(OPEN_BATCHES), ended < before).limit(20)
        with self._database.reading() as connection:
            ended_ids = connection.execute(query).scalars().all()
        for batch_id in ended_ids:  # a transaction each, between which others write
            with self._database.writing() as connection:
                delete_rows(connection, [batch_id])
        return ended_ids

    def _set(self, batch_id: str, caller: str | None, **values: Any) -> Batch | None:
        if self.get(batch_id, caller=caller) is None:
            return None
        with self._database.writing() as connection:
            where = BATCHES.c.id == batch_id, BATCHES.c.state.in_(OPEN_BATCHES)
            connection.execute(update(BATCHES).where(*where).values(**values))
        return self.get(batch_id, caller=caller)


class TooManyOpen(InputError):
    """Too many batches are open."""

    http_status = 429


def delete_rows(connection: Connection, ids: Sequence[str]) -> None:
    for table in (ITEMS, ATTEMPTS, RESULTS, FILES):
        connection.execute(delete(table).where(table.c.batch_id.in_(ids)))
    connection.execute(delete(BATCHES).where(BATCHES.c.id.in_(ids)))


def counts(connection: Connection, ids: Iterable[str]) -> Mapping[str, ItemCounts]:
    """The items of each batch by how they stand."""
    wanted = list(ids)

    def of(*states: ItemState) -> Any:
        return func.sum(case((ITEMS.c.state.in_(states), 1), else_=0))

    query = (
        select(
            ITEMS.c.batch_id,
            func.count(),
            of(ItemState.DONE),
            of(*FAILED_ITEMS),
            of(ItemState.PENDING),
            of(ItemState.RUNNING),
            of(ItemState.CANCELLED, ItemState.EXPIRED),
            func.sum(case((RESULTS.c.valid.is_(False), 1), else_=0)),
        )
        .join(RESULTS, and_(RESULTS.c.batch_id == ITEMS.c.batch_id, RESULTS.c.line == ITEMS.c.line), isouter=True)
        .where(ITEMS.c.batch_id.in_(wanted))
        .group_by(ITEMS.c.batch_id)
    )
    by_batch = {batch_id: ItemCounts() for batch_id in wanted}
    for batch_id, total, done, failed, pending, running, stopped, invalid in connection.execute(query):
        by_batch[batch_id] = ItemCounts(
            total=int(total),
            completed=int(done),
            failed=int(failed),
            pending=int(pending),
            running=int(running),
            stopped=int(stopped),
            invalid=int(invalid),
        )
    return by_batch


def plan_of(row: Mapping[Any, Any]) -> BatchPlan:
    return BatchPlan(**unpack(row["plan"], what=f"batch {row['id']}"))


def batch_of(row: Mapping[Any, Any], counted: ItemCounts) -> Batch:
    what = f"batch {row['id']}"
    errors = () if row["errors"] is None else unpack(row["errors"], what=what)["data"]
    return Batch(
        id=row["id"],
        plan=plan_of(row),
        state=BatchState(row["state"]),
        created=row["created"],
        expires=row["expires"],
        is_paused=bool(row["paused"]),
        counts=counted,
        at={name.removesuffix("_at"): row[name] for name in TIMES if row[name] is not None},
        errors=tuple(InputFault(**error) for error in errors),
        output_file=row["output_file"],
        error_file=row["error_file"],
        usage=None if row["usage"] is None else unpack(row["usage"], what=what),
        model=row["model"],
    )
