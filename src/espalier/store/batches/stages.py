"""What moves whole batches: reading their input, ending them, deleting what is old.

A worker reads the input of a batch under a lease with a fence of its own, and begins anew what a dead one left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from sqlalchemy import delete, insert, or_, select, update

from espalier.errors import EspalierError
from espalier.jobs.intake import LineReader, ListReader, Refused, parse
from espalier.jobs.ports import Checker
from espalier.jobs.states import OPEN_BATCHES, OPEN_ITEMS, BatchState, ItemState
from espalier.jobs.values import BatchPlan, InputFault, ItemEnd, Lease, NewItem
from espalier.store.batches.batches import plan_of
from espalier.store.batches.files import PREFIX as FILE
from espalier.store.batches.files import Files
from espalier.store.batches.queue import ItemQueue, result_row
from espalier.store.batches.quota import ResultQuota
from espalier.store.batches.results import Results
from espalier.store.batches.tables import BATCHES, FILES, ITEMS, RESULTS
from espalier.store.db import Database
from espalier.store.ids import Ids
from espalier.store.leases import has_ended
from espalier.store.packing import pack
from espalier.store.rows import column_text

CHUNK = 200
"""Lines of an input that are written in one transaction."""
MOST_FAULTS = 100
READING_SECONDS = 60.0
"""Without a chunk, after which another worker reads the input anew."""


class Lost(EspalierError):
    """Another worker reads this input now, or its batch was cancelled."""


class BatchQueue(ItemQueue):
    """The whole queue that a worker sees: items, and the batches that they make up."""

    def __init__(
        self,
        database: Database,
        files: Files,
        ids: Ids,
        *,
        lease: float,
        clock: Callable[[], float] = time.time,
        quota: ResultQuota | None = None,
    ) -> None:
        super().__init__(database, lease=lease, clock=clock, quota=quota)
        self._files, self._ids, self._results = files, ids, Results(database)

    def tend(self, worker: str) -> bool:
        now = self._clock()
        self.reap(now)
        with self._database.reading() as connection:
            query = select(BATCHES).where(BATCHES.c.state.in_(OPEN_BATCHES))
            rows = connection.execute(query).mappings().all()
        is_open = False
        for row in rows:
            is_open |= not self._move(row, now)
        return is_open

    def validate(self, worker: str, executor: Checker) -> bool:
        row = self._take_new(worker)
        if row is None:
            return False
        plan, mine = plan_of(row), (row["id"], row["fence"])
        fault = executor.check_job(plan.endpoint, plan.options, plan.kind)
        faults = [] if fault is None else [fault]
        try:
            if not faults:
                with closing(self._files.open(plan.input_file)) as file:
                    faults = self._read(mine, plan, read_items(file, plan), executor)
            self._store_validation(mine, plan, faults)
        except Refused as error:
            self._store_validation(mine, plan, [error.fault])
        except Lost:
            pass
        except EspalierError as error:
            if error.exit_code != 2:  # the database, the disk: nothing is known of the input
                raise
            self._store_validation(mine, plan, [InputFault(code=error.code, message=str(error), param=error.field)])
        return True

    def _take_new(self, worker: str) -> Mapping[str, Any] | None:
        """A batch whose input nobody reads, without the items that a dead reader left."""
        now = self._clock()
        free = or_(BATCHES.c.until.is_(None), has_ended(BATCHES.c.until, now, READING_SECONDS))
        query = select(BATCHES).where(BATCHES.c.state == BatchState.VALIDATING, free).order_by(BATCHES.c.id).limit(1)
        with self._database.reading() as connection:
            if connection.execute(query).first() is None:
                return None
        with self._database.writing() as connection:
            row = connection.execute(query.with_for_update(skip_locked=True)).mappings().one_or_none()
            if row is None:
                return None
            fence = row["fence"] + 1
            lease = {"holder": worker, "until": now + READING_SECONDS, "fence": fence}
            connection.execute(update(BATCHES).where(BATCHES.c.id == row["id"]).values(lease))
            for table in (ITEMS, RESULTS):
                connection.execute(delete(table).where(table.c.batch_id == row["id"]))
        return {**row, "fence": fence}

    def _read(
        self, mine: tuple[str, int], plan: BatchPlan, read: Iterable[NewItem | InputFault], executor: Checker
    ) -> list[InputFault]:
        """Write the items; returns the faults, after the first of which only faults are looked for."""
        faults: list[InputFault] = []
        items = iter(read)
        while chunk := list(islice(items, CHUNK)):
            faults += [row for row in chunk if isinstance(row, InputFault)]
            if len(faults) >= MOST_FAULTS:
                return faults[:MOST_FAULTS]
            new = [row for row in chunk if isinstance(row, NewItem)] if not faults else []
            rows, results = self._rows(mine, plan, new, executor)
            with self._database.writing() as connection:
                self._hold(connection, mine)
                if rows:
                    connection.execute(insert(ITEMS), rows)
                if results:
                    connection.execute(insert(RESULTS), results)
        return faults

    def _rows(
        self, mine: tuple[str, int], plan: BatchPlan, new: Iterable[NewItem], executor: Checker
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of items, and results of those whose body is wrong."""
        rows, results = [], []
        for item in new:
            answer = item.answer or executor.check(plan.endpoint, item.body, plan.options, plan.kind)
            state = ItemState.PENDING if answer is None else ItemState.FAILED
            rows.append(
                {
                    "batch_id": mine[0],
                    "line": item.line,
                    "custom_id": column_text(item.custom_id),
                    "state": state,
                    "body": pack(item.body, what="body"),
                    "size": item.size,
                    "attempts": 0,
                    "losses": 0,
                    "not_before": 0.0,
                    "fence": 0,
                }
            )
            if answer is not None:
                lease = Lease(batch=mine[0], line=item.line, fence=0)
                results.append(result_row(ItemEnd(lease=lease, answer=answer), self._clock()))
        return rows, results

    def _hold(self, connection: Any, mine: tuple[str, int]) -> None:
        """Renew the lease of the reading. Raises Lost."""
        where = BATCHES.c.id == mine[0], BATCHES.c.fence == mine[1], BATCHES.c.state == BatchState.VALIDATING
        renewed = update(BATCHES).where(*where).values(until=self._clock() + READING_SECONDS)
        if not connection.execute(renewed).rowcount:
            raise Lost

    def _store_validation(self, mine: tuple[str, int], plan: BatchPlan, faults: list[InputFault]) -> None:
        now = self._clock()
        with self._database.writing() as connection:
            self._hold(connection, mine)
            if faults:
                packed = pack({"data": [fault.to_json() for fault in faults]}, what="errors")
                values = {"state": BatchState.FAILED, "failed_at": now, "errors": packed}
                for table in (ITEMS, RESULTS):
                    connection.execute(delete(table).where(table.c.batch_id == mine[0]))
            else:
                values = {"state": BatchState.IN_PROGRESS, "in_progress_at": now}
            values |= {"holder": None, "until": None}
            connection.execute(update(BATCHES).where(BATCHES.c.id == mine[0]).values(values))
        if faults:
            self._forget_upload(plan)

    def _forget_upload(self, plan: BatchPlan) -> None:
        """Remove the input that nobody reads any more of a word-list server's job, as that server did, and of a batch
        of Anthropic's. Other uploads are files of their callers, who may use them again."""
        if plan.kind != "openai":
            self._files.remove(plan.input_file, caller=None)

    def _move(self, row: Mapping[Any, Any], now: float) -> bool:
        """Move a batch on if it is time. Returns whether it has ended."""
        state, batch_id = BatchState(row["state"]), row["id"]
        if state == BatchState.VALIDATING:
            return False
        if state == BatchState.IN_PROGRESS and row["expires"] is not None and row["expires"] <= now:
            waiting = update(ITEMS).where(ITEMS.c.batch_id == batch_id, ITEMS.c.state == ItemState.PENDING)
            with self._database.writing() as connection:
                connection.execute(waiting.values(state=ItemState.EXPIRED))
        of_it = ITEMS.c.batch_id == batch_id
        with self._database.reading() as connection:
            left = select(ITEMS.c.line).where(of_it, ITEMS.c.state.in_(OPEN_ITEMS)).limit(1)
            if connection.execute(left).first() is not None:
                return False
            some = select(ITEMS.c.line).where(of_it, ITEMS.c.state == ItemState.EXPIRED).limit(1)
            is_expired = connection.execute(some).first() is not None
        if state == BatchState.IN_PROGRESS and not is_expired:
            with self._database.writing() as connection:
                values = {"state": BatchState.FINALIZING, "finalizing_at": now}
                where = BATCHES.c.id == batch_id, BATCHES.c.state == BatchState.IN_PROGRESS
                connection.execute(update(BATCHES).where(*where).values(values))
            state = BatchState.FINALIZING
        end = {BatchState.CANCELLING: BatchState.CANCELLED, BatchState.FINALIZING: BatchState.COMPLETED}
        self._end_batch(row, state, end.get(state, BatchState.EXPIRED), now)
        return True

    def _end_batch(self, row: Mapping[Any, Any], before: BatchState, state: BatchState, now: float) -> None:
        """Sum up, and make the files of the results. Workers may do so at once: the first one's counts."""
        plan, batch_id = plan_of(row), row["id"]
        self._forget_upload(plan)  # its items are in the database
        sizes = {kind: self._results.size(batch_id, kind) for kind in ("output", "error")}
        ids = {kind: self._ids.new(FILE) for kind, size in sizes.items() if size}
        usage = self._results.usage(batch_id)
        values = {
            "state": state,
            f"{state}_at": now,
            "usage": pack(usage, what="usage"),
            "output_file": ids["output"][0] if "output" in ids else None,
            "error_file": ids["error"][0] if "error" in ids else None,
        }
        rows = [
            {
                "id": file_id,
                "created": created,
                "caller": row["caller"],
                "filename": f"{batch_id}_{kind}.jsonl",
                "purpose": "batch_output",
                "bytes": float(sizes[kind]),
                "batch_id": batch_id,
                "expires": None if plan.output_seconds is None else row["created"] + plan.output_seconds,
            }
            for kind, (file_id, created) in ids.items()
        ]
        with self._database.writing() as connection:
            where = BATCHES.c.id == batch_id, BATCHES.c.state == before
            if connection.execute(update(BATCHES).where(*where).values(values)).rowcount and rows:
                connection.execute(insert(FILES), rows)


def read_items(file: Any, plan: BatchPlan) -> Iterator[NewItem | InputFault]:
    """The items of an input, or its faults. Raises Refused for a list that is none."""
    if plan.kind == "seed":
        for place, raw in enumerate(ListReader(file), 1):
            body = parse(raw, line=place)
            own_id = body.get("custom_id") if isinstance(body, dict) else None
            # The number keeps ids apart where the input has the same one twice.
            custom_id = f"{place}:{own_id}" if isinstance(own_id, str) else f"{place}"
            yield NewItem(line=place, custom_id=custom_id, body={"item": body}, size=len(raw))
        return
    for row in LineReader(plan.endpoint).read(file):
        if isinstance(row, InputFault):
            yield row
        else:
            yield NewItem(line=row.number, custom_id=row.custom_id, body=row.body, size=row.size)
