"""The queue of items: claims under leases, heartbeats, results, what time moves. One transaction for each method.

A claim counts up the item's fence, and whoever records, releases or renews must name the fence that it was given: a
worker that slept past its lease changes nothing. A result is inserted in the transaction that ends its item, and its
key is the item's, so that there is never a second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, insert, or_, select, tuple_, update

from espalier.jobs.output import output_line
from espalier.jobs.states import BatchState, ItemState
from espalier.jobs.values import ItemAnswer, ItemEnd, Lease, WorkItem
from espalier.store.batches.batches import plan_of
from espalier.store.batches.quota import ResultQuota
from espalier.store.batches.tables import ATTEMPTS, BATCHES, ITEMS, RESULTS
from espalier.store.db import Database
from espalier.store.leases import has_ended
from espalier.store.packing import as_bytes, compress, pack, unpack
from espalier.store.rows import column_text

LEASE_SECONDS = 30.0
SUSPECT = 2
"""Losses after which an item runs alone: it may be what kills its workers, or it was beside the one that does."""
POISON = 4
"""Losses after which it is set aside."""
PAUSE_SECONDS = 360.0
"""A pause before another try that is more than `FAR_AHEAD` times as long is from a clock that was ahead."""

BY_KEY = and_(ITEMS.c.batch_id == bindparam("b"), ITEMS.c.line == bindparam("l"))
ATTEMPT = and_(
    ATTEMPTS.c.batch_id == bindparam("b"), ATTEMPTS.c.line == bindparam("l"), ATTEMPTS.c.fence == bindparam("f")
)


class ItemQueue:
    """Items of all batches in one database. lease: seconds without a heartbeat after which a worker counts as dead;
    clock: Unix seconds, which the machines of one database must agree on to a few seconds."""

    def __init__(
        self,
        database: Database,
        *,
        lease: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
        quota: ResultQuota | None = None,
    ) -> None:
        self._database, self.lease, self._clock = database, lease, clock
        self._quota = quota or ResultQuota()

    def claim(self, worker: str, limit: int, *, alone: bool) -> Sequence[WorkItem]:
        now = self._clock()
        with self._database.writing() as connection:
            ready = self._ready(connection, now, limit, ITEMS.c.losses < SUSPECT)
            if not ready and alone:
                ready = self._ready(connection, now, 1, ITEMS.c.losses >= SUSPECT)
            if not ready:
                return ()
            claims = [{"b": item["batch_id"], "l": item["line"], "f": item["fence"] + 1} for _, item in ready]
            connection.execute(
                update(ITEMS)
                .where(BY_KEY)
                .values(state=ItemState.RUNNING, holder=worker, until=now + self.lease, fence=bindparam("f")),
                claims,
            )
            connection.execute(
                insert(ATTEMPTS),
                [{"batch_id": o["b"], "line": o["l"], "fence": o["f"], "worker": worker, "began": now} for o in claims],
            )
        options = {batch["id"]: plan_of(batch).options for batch in {batch["id"]: batch for batch, _ in ready}.values()}
        return [_item(batch, item, options[batch["id"]]) for batch, item in ready]

    def renew(self, worker: str, leases: Sequence[Lease]) -> Sequence[Lease]:
        if not leases:
            return ()
        now = self._clock()
        with self._database.writing() as connection:
            held = self._lock_held(connection, leases)
            running = {lease for lease in leases if lease in held and _runs(held[lease], now)}
            if running:
                connection.execute(
                    update(ITEMS).where(BY_KEY).values(until=now + self.lease),
                    [{"b": lease.batch, "l": lease.line} for lease in sorted(running, key=_key)],
                )
        return [lease for lease in leases if lease not in running]

    def record(self, worker: str, ended: Sequence[ItemEnd]) -> Sequence[Lease]:
        now = self._clock()
        packed = {
            attempt.lease: result_row(attempt, now) for attempt in ended if attempt.again is None
        }  # before the transaction
        with self._database.writing() as connection:
            held = self._lock_held(connection, [attempt.lease for attempt in ended])
            good = [attempt for attempt in ended if attempt.lease in held]
            final = [attempt for attempt in good if attempt.again is None]
            again = [attempt for attempt in good if attempt.again is not None]
            if final:
                results = [packed[attempt.lease] for attempt in final]
                connection.execute(insert(RESULTS), results)
                self._quota.count(connection, results, now)
                self._end(connection, [(attempt.lease, _state(attempt)) for attempt in final])
                self._name_models(connection, final, held)
            for attempt in again:
                connection.execute(
                    update(ITEMS)
                    .where(ITEMS.c.batch_id == attempt.lease.batch, ITEMS.c.line == attempt.lease.line)
                    .values(
                        state=_given_back(held[attempt.lease]),
                        holder=None,
                        until=None,
                        attempts=ITEMS.c.attempts + 1,
                        not_before=now + (attempt.again or 0.0),
                    )
                )
            how = [(attempt.lease, "again" if attempt.again is not None else str(_state(attempt))) for attempt in good]
            self._close(connection, how, now)
        return [attempt.lease for attempt in good]

    def release(self, worker: str, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        now = self._clock()
        with self._database.writing() as connection:
            held = self._lock_held(connection, leases)
            self._end(connection, [(lease, _given_back(row)) for lease, row in held.items()])
            self._close(connection, [(lease, "released") for lease in held], now)

    def lose(self, worker: str, leases: Sequence[Lease]) -> None:
        now = self._clock()
        with self._database.writing() as connection:
            query = (
                select(ITEMS, *_of_batch())
                .join(BATCHES, BATCHES.c.id == ITEMS.c.batch_id)
                .where(tuple_(ITEMS.c.batch_id, ITEMS.c.line).in_([(lease.batch, lease.line) for lease in leases]))
                .where(ITEMS.c.state == ItemState.RUNNING)
                .order_by(ITEMS.c.batch_id, ITEMS.c.line)
                .with_for_update(of=ITEMS)
            )
            for row in connection.execute(query).mappings().all():
                if Lease(batch=row["batch_id"], line=row["line"], fence=row["fence"]) in leases:
                    self._lose(connection, row, now)

    def reap(self, now: float, limit: int = 500) -> None:
        """Take items back whose lease has ended: their worker is dead, or asleep. One that was lost too often is set
        aside with an error as its result."""
        query = (
            select(ITEMS, *_of_batch())
            .join(BATCHES, BATCHES.c.id == ITEMS.c.batch_id)
            .where(ITEMS.c.state == ItemState.RUNNING, has_ended(ITEMS.c.until, now, self.lease))
            .limit(limit)
        )
        with self._database.reading() as connection:  # the usual case: none, and nobody waits for a writer
            if connection.execute(query).first() is None:
                return
        with self._database.writing() as connection:
            rows = connection.execute(query.with_for_update(skip_locked=True, of=ITEMS)).mappings().all()
            for row in rows:
                self._lose(connection, row, now)

    def _lose(self, connection: Connection, row: Mapping[Any, Any], now: float) -> None:
        lease = Lease(batch=row["batch_id"], line=row["line"], fence=row["fence"])
        losses = row["losses"] + 1
        state = _given_back(row)
        if state == ItemState.PENDING and losses >= POISON:
            state = ItemState.POISON
            message = f"{losses} workers died while they ran this item, the last ones with nothing beside it"
            connection.execute(insert(RESULTS).values(result_row(poisoned(lease, message), now)))
        connection.execute(
            update(ITEMS)
            .where(ITEMS.c.batch_id == lease.batch, ITEMS.c.line == lease.line)
            .values(state=state, holder=None, until=None, losses=losses)
        )
        self._close(connection, [(lease, "lost")], now)

    def _ready(self, connection: Connection, now: float, limit: int, suspect: Any) -> list[Any]:
        """Items that may run, with their batches."""
        batches = (
            select(BATCHES)
            .where(BATCHES.c.state == BatchState.IN_PROGRESS, BATCHES.c.paused.is_(False))
            .where(or_(BATCHES.c.expires.is_(None), BATCHES.c.expires > now))
            .order_by(BATCHES.c.priority.desc(), BATCHES.c.id)
        )
        ready: list[Any] = []
        for batch in connection.execute(batches).mappings().all():
            query = (
                select(ITEMS)
                .where(ITEMS.c.batch_id == batch["id"], ITEMS.c.state == ItemState.PENDING)
                .where(has_ended(ITEMS.c.not_before, now, PAUSE_SECONDS), suspect)
                .order_by(ITEMS.c.line)
                .limit(limit - len(ready))
                .with_for_update(skip_locked=True)
            )
            ready += [(batch, dict(row)) for row in connection.execute(query).mappings()]
            if len(ready) >= limit:
                break
        return ready

    def _lock_held(self, connection: Connection, leases: Sequence[Lease]) -> dict[Lease, Mapping[Any, Any]]:
        """The rows of those leases that still hold, locked until the transaction ends."""
        if not leases:
            return {}
        query = (
            select(ITEMS.c.batch_id, ITEMS.c.line, ITEMS.c.fence, ITEMS.c.state, *_of_batch())
            .join(BATCHES, BATCHES.c.id == ITEMS.c.batch_id)
            .where(tuple_(ITEMS.c.batch_id, ITEMS.c.line).in_([(lease.batch, lease.line) for lease in leases]))
            .where(ITEMS.c.state == ItemState.RUNNING)
            .order_by(ITEMS.c.batch_id, ITEMS.c.line)
            .with_for_update(of=ITEMS)
        )
        held = connection.execute(query).mappings().all()
        rows = {Lease(batch=row["batch_id"], line=row["line"], fence=row["fence"]): row for row in held}
        return {lease: rows[lease] for lease in leases if lease in rows}

    def _end(self, connection: Connection, moves: Sequence[tuple[Lease, str]]) -> None:
        if moves:
            connection.execute(
                update(ITEMS).where(BY_KEY).values(state=bindparam("s"), holder=None, until=None),
                [{"b": lease.batch, "l": lease.line, "s": str(state)} for lease, state in moves],
            )

    def _name_models(
        self, connection: Connection, final: Sequence[ItemEnd], held: Mapping[Lease, Mapping[Any, Any]]
    ) -> None:
        """A batch bears the name of the model that gave its first result."""
        models = {
            attempt.lease.batch: attempt.answer.model
            for attempt in reversed(final)
            if attempt.answer.model is not None and held[attempt.lease]["batch_model"] is None
        }
        for batch_id, model in sorted(models.items()):
            unnamed = BATCHES.c.id == batch_id, BATCHES.c.model.is_(None)
            connection.execute(update(BATCHES).where(*unnamed).values(model=column_text(model)))

    def _close(self, connection: Connection, outcomes: Sequence[tuple[Lease, str]], now: float) -> None:
        """Say how attempts ended."""
        if outcomes:
            connection.execute(
                update(ATTEMPTS).where(ATTEMPT).values(ended=now, outcome=bindparam("o")),
                [{"b": lease.batch, "l": lease.line, "f": lease.fence, "o": str(how)} for lease, how in outcomes],
            )


def _given_back(row: Mapping[Any, Any]) -> ItemState:
    """The state of an item that has no worker any more. One that waits when its batch expires is ended with it."""
    return ItemState.PENDING if row["batch_state"] == BatchState.IN_PROGRESS else ItemState.CANCELLED


def poisoned(lease: Lease, message: str) -> ItemEnd:
    return ItemEnd(
        lease=lease,
        answer=ItemAnswer(status=500, body=None, request_id="", error={"code": "poison_item", "message": message}),
    )


def _of_batch() -> tuple[Any, ...]:
    return (
        BATCHES.c.state.label("batch_state"),
        BATCHES.c.expires.label("batch_expires"),
        BATCHES.c.paused,
        BATCHES.c.model.label("batch_model"),
    )


def _runs(row: Mapping[Any, Any], now: float) -> bool:
    """Whether the batch of this item still wants it run."""
    is_over = row["batch_expires"] is not None and row["batch_expires"] <= now
    return row["batch_state"] == BatchState.IN_PROGRESS and not row["paused"] and not is_over


def _key(lease: Lease) -> tuple[str, int]:
    return lease.batch, lease.line


def _state(ended: ItemEnd) -> ItemState:
    return ItemState.DONE if ended.answer.is_good else ItemState.FAILED


def _item(batch: Mapping[Any, Any], row: Mapping[Any, Any], options: Mapping[str, Any]) -> WorkItem:
    lease = Lease(batch=row["batch_id"], line=row["line"], fence=row["fence"] + 1)
    return WorkItem(
        lease=lease,
        custom_id=row["custom_id"],
        caller=batch["caller"],
        endpoint=batch["endpoint"],
        kind=batch["kind"],
        body=unpack(row["body"], what=f"item {lease.line} of {lease.batch}"),
        size=row["size"],
        attempts=row["attempts"],
        losses=row["losses"],
        options=options,
    )


def result_row(ended: ItemEnd, now: float) -> dict[str, Any]:
    """The row of a result."""
    answer, lease = ended.answer, ended.lease
    line = as_bytes(output_line(lease, answer), what="answer")
    return {
        "batch_id": lease.batch,
        "line": lease.line,
        "created": now,
        "good": answer.is_good,
        "answer": compress(line),
        "figures": None if answer.figures is None else pack(answer.figures, what="figures"),
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "valid": answer.valid,
        "trace_id": answer.trace_id,
    }
