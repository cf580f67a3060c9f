"""Leases: at most one process at a time does a named task. A lease expires, so a killed holder blocks nobody.

It does not know the tasks. Their names are rows that a migration inserts.
"""

from __future__ import annotations

from sqlalchemy import or_, update

from espalier.store.db import Database
from espalier.store.tables import LEASES


def take(database: Database, name: str, holder: str, *, now: float, seconds: float) -> bool:
    """Take or renew a lease until now + seconds (Unix). Returns whether `holder` has it now."""
    free = or_(LEASES.c.holder == holder, LEASES.c.until <= now, LEASES.c.until > now + 10 * seconds)
    # The last condition: a lease from a clock that was far ahead must not block for years.
    statement = update(LEASES).where(LEASES.c.name == name, free).values(holder=holder, until=now + seconds)
    with database.writing() as connection:
        return connection.execute(statement).rowcount > 0


def release(database: Database, name: str, holder: str) -> None:
    """Give a lease back. Nothing happens if another holder has it."""
    statement = update(LEASES).where(LEASES.c.name == name, LEASES.c.holder == holder).values(holder="", until=0.0)
    with database.writing() as connection:
        connection.execute(statement)
