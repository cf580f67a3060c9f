"""Adds an answer to the sums, in the transaction that stores its trace: a kill between loses nothing and adds nothing
twice.

How many constraints, paths and wanted tokens have sums of their own is bounded, whatever clients send. It reads no
sums.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, Insert, Table, delete, func, select

from espalier.store.costs.answer import NAME, OTHERS, AnswerSums
from espalier.store.costs.tables import CONSTRAINTS, COST_SUMS, PATH_SUMS, TAX_BINS, WANTED
from espalier.store.costs.window import DAY, HOUR
from espalier.store.db import Database

FREE = ""
"""The fingerprint of free text."""
MOST_CONSTRAINTS = 1_000
"""Constraints of one caller with sums of their own; those of all further ones are sums of OTHERS."""
MOST_PATHS, MOST_WANTED = 200, 500
"""Of one constraint."""
KEPT_SECONDS = 400 * DAY
"""Sums of hours before are deleted."""
MOST_KNOWN = 20_000
MOST_OWNERS = 64
"""Constraints, and callers, whose keys are remembered."""
OWNERS = {CONSTRAINTS.name: 2, PATH_SUMS.name: 3, WANTED.name: 3}
"""How much of a key names its owner: the table, the caller, the fingerprint."""
SumKeys: TypeAlias = dict[tuple[str, ...], None]
"""What an answer gives its first row, by table."""


class CostSums:
    """Adds answers to the sums of one database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[str, ...], None] = OrderedDict()  # what has a row, or need not be looked up
        self._owned: OrderedDict[tuple[str, ...], set[tuple[str, ...]]] = OrderedDict()  # the keys of each owner
        self._lock = threading.Lock()
        self._statements = {table.name: self._summing(table) for table in (COST_SUMS, TAX_BINS, PATH_SUMS, WANTED)}

    def add(self, connection: Connection, answer: AnswerSums, columns: Mapping[str, Any]) -> SumKeys:
        """Add an answer, and return what now has rows: `keep` them when the transaction is done. columns: those of its
        trace, `created` too."""
        created, caller = float(columns["created"]), str(columns["caller"])
        hour = int(created) // HOUR * HOUR
        is_new, met = not self._is_known(("hour", str(hour))), SumKeys()
        met["hour", str(hour)] = None
        fingerprint = self._constraint(connection, answer, columns, met)
        key = {"caller": caller, "fingerprint": fingerprint}
        model, template = str(columns["model"])[:NAME], columns["template"] or ""
        self._sum(connection, COST_SUMS, [{**key, "model": model, "template": template, "hour": hour, **answer.sums}])
        bins = (answer.bins or {}).items()
        self._sum(
            connection,
            TAX_BINS,
            [{**key, "measure": measure, "bin": number, "hour": hour, "answers": 1} for measure, number in bins],
        )
        self._sum(connection, PATH_SUMS, self._path_rows(connection, answer, key, hour, met))
        self._sum(connection, WANTED, self._wanted_rows(connection, answer, key, int(created) // DAY * DAY, met))
        if is_new:
            with self._lock:
                self._owned.clear()  # other processes have added keys
            _forget(connection, hour - KEPT_SECONDS)
        return met

    def keep(self, met: SumKeys) -> None:
        """These have rows, so that they need not be looked up again."""
        with self._lock:
            for key in met:
                owned = self._owned.get(key[: OWNERS.get(key[0], 0)])
                if owned is None:
                    self._known[key] = None
                    self._known.move_to_end(key)
                else:
                    owned.add(key)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def _constraint(self, connection: Connection, answer: AnswerSums, columns: Mapping[str, Any], met: SumKeys) -> str:
        """The fingerprint that the sums have."""
        caller, fingerprint = str(columns["caller"]), columns["fingerprint"] or FREE
        kind, title, spec = columns["constraint_kind"] or "", columns["title"] or "", answer.spec
        if fingerprint != FREE and not self._has(connection, CONSTRAINTS, (caller, fingerprint), MOST_CONSTRAINTS, met):
            fingerprint, kind, title, spec = OTHERS, "", "other constraints", None
        known = ("constraint", caller, fingerprint, "" if spec is None else "spec")
        if not self._is_known(known):
            row = {"caller": caller, "fingerprint": fingerprint, "kind": kind, "title": title, "spec": spec}
            new = self._database.insert(CONSTRAINTS).values(**row, first_seen=columns["created"])
            kept = func.coalesce(CONSTRAINTS.c.spec, new.excluded.spec)
            index = ["caller", "fingerprint"]
            connection.execute(new.on_conflict_do_update(index_elements=index, set_={"spec": kept}))
            met[known] = None
        return fingerprint

    def _path_rows(
        self, connection: Connection, answer: AnswerSums, key: Mapping[str, str], hour: int, met: SumKeys
    ) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for path, sums in answer.paths.items():
            place = (key["caller"], key["fingerprint"], path)
            name = path if self._has(connection, PATH_SUMS, place, MOST_PATHS, met) else OTHERS
            empty = {**key, "path": name, "hour": hour, "answers": 1, "tokens": 0, "tax": 0.0, "removed": 0.0}
            row = rows.setdefault(name, empty)
            row["tokens"] += sums.tokens
            row["tax"] += sums.tax
            row["removed"] += sums.removed
        for row in rows.values():
            row["tax_squares"] = row["tax"] ** 2
        return list(rows.values())

    def _wanted_rows(
        self, connection: Connection, answer: AnswerSums, key: Mapping[str, str], day: int, met: SumKeys
    ) -> list[dict[str, Any]]:
        owner = (key["caller"], key["fingerprint"])
        return [
            {**key, **wanted._asdict(), "day": day, "times": times, "tax": tax}
            for wanted, (times, tax) in answer.wanted.items()
            if self._has(connection, WANTED, (*owner, *wanted), MOST_WANTED, met)
        ]

    def _sum(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add to the rows of a table, or make them."""
        if rows:
            keys = [column.name for column in table.primary_key]
            connection.execute(self._statements[table.name], _in_order(rows, keys))

    def _summing(self, table: Table) -> Insert:
        """Made once: building a statement takes longer than the database does."""
        new = self._database.insert(table)
        keys = [column.name for column in table.primary_key]
        sums = {column.name: column + new.excluded[column.name] for column in table.c if not column.primary_key}
        return new.on_conflict_do_update(index_elements=keys, set_=sums)

    def _has(self, connection: Connection, table: Table, key: tuple[str, ...], most: int, met: SumKeys) -> bool:
        """Whether a key may have rows of its own: it has some, or its constraint (or caller) has less than `most`. What
        other processes have added is known an hour later, so that each may add as many."""
        known = (table.name, *key)
        owner = known[: OWNERS[table.name]]
        with self._lock:
            owned = self._owned.get(owner)
        if owned is None:
            owned = self._read_owned(connection, table, owner)
        if known in owned or known in met:
            return True
        if len(owned) + sum(new[: len(owner)] == owner for new in met) >= most:
            return False
        met[known] = None
        return True

    def _read_owned(self, connection: Connection, table: Table, owner: tuple[str, ...]) -> set[tuple[str, ...]]:
        """The keys that have rows, in one question: one for each key takes longer than the answer itself."""
        columns = [column for column in table.primary_key if column.name not in ("hour", "day")]
        whose = [column == value for column, value in zip(columns, owner[1:], strict=False)]
        keys = connection.execute(select(*columns).where(*whose).distinct())
        owned = {(table.name, *row) for row in keys}
        with self._lock:
            self._owned[owner] = owned
            while len(self._owned) > MOST_OWNERS:
                self._owned.popitem(last=False)
        return owned

    def _is_known(self, key: tuple[str, ...]) -> bool:
        with self._lock:
            return key in self._known


def _forget(connection: Connection, before: int) -> None:
    """Delete what is too old: once in an hour of each process."""
    for table in (COST_SUMS, TAX_BINS, PATH_SUMS, WANTED):
        moment = table.c.day if table is WANTED else table.c.hour
        connection.execute(delete(table).where(moment < before))


def _in_order(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """The rows by their keys: processes that lock rows in one order do not wait for one another in a circle."""
    return sorted(rows, key=lambda row: tuple(row[name] for name in keys))
