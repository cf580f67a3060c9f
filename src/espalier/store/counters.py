"""Rate and slot counters in the database, so that the workers of a host hold limits together.

A killed worker keeps its slots until their lease ends. It knows neither API keys nor HTTP: names, numbers and times are
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Column, Connection, Double, Index, Integer, String, Table, delete, func, select, update

from espalier.store.db import Database
from espalier.store.leases import has_ended
from espalier.store.rates import after, wait_for
from espalier.store.tables import METADATA

RATES = Table(
    "rates",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("full_at", Double, nullable=False),  # Unix seconds: when the bucket is full again
)

SLOTS = Table(
    "slots",
    METADATA,
    Column("holder", String(64), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("held", Integer, nullable=False),
    Column("until", Double, nullable=False),  # Unix seconds
    Index("slots_by_name", "name"),
)


class StoredCounters:
    """Counters in a migrated database. Every method blocks, and raises what `Database.writing` raises."""

    is_shared = True

    def __init__(self, database: Database, *, lease: float) -> None:
        """lease: seconds that a slot is held without being renewed."""
        self._database = database
        self._lease = lease

    def take(self, key: str, limit: int, now: float, count: int = 1) -> float:
        """Take `count` of `limit` requests a minute. Returns 0.0, or the seconds until they are available."""
        with self._database.writing() as connection:
            full_at = self._lock_key(connection, key, now)
            if wait := wait_for(full_at, limit, now, count):
                return wait
            connection.execute(
                update(RATES).where(RATES.c.name == key).values(full_at=after(full_at, limit, now, count))
            )
            return 0.0

    def enter(self, key: str, limit: int, holder: str, now: float, count: int = 1) -> bool:
        """Take `count` of `limit` slots for a holder. Returns False if fewer are free."""
        with self._database.writing() as connection:
            self._lock_key(connection, key, now)
            connection.execute(delete(SLOTS).where(SLOTS.c.name == key, has_ended(SLOTS.c.until, now, self._lease)))
            held = connection.execute(select(func.sum(SLOTS.c.held)).where(SLOTS.c.name == key)).scalar_one() or 0
            if held + count > limit:
                return False
            connection.execute(SLOTS.insert().values(holder=holder, name=key, held=count, until=now + self._lease))
            return True

    def renew(self, holders: Sequence[str], now: float) -> None:
        """Hold the slots of these holders for another lease."""
        with self._database.writing() as connection:
            connection.execute(update(SLOTS).where(SLOTS.c.holder.in_(holders)).values(until=now + self._lease))

    def leave(self, holder: str) -> None:
        """Give a holder's slots back. Idempotent."""
        with self._database.writing() as connection:
            connection.execute(delete(SLOTS).where(SLOTS.c.holder == holder))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._database.close()

    def _lock_key(self, connection: Connection, key: str, now: float) -> float:
        """Lock the key's row until the transaction ends, and return when its bucket is full. SQLite has one writer
        anyway."""
        new = self._database.insert(RATES).values(name=key, full_at=now).on_conflict_do_nothing()
        connection.execute(new)
        row = select(RATES.c.full_at).where(RATES.c.name == key).with_for_update()
        return float(connection.execute(row).scalar_one())
