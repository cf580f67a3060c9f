"""Leases: at most one process at a time does a named task. A lease expires, so a killed holder blocks nobody.

It does not know the tasks. Their names are rows that a migration inserts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, or_, update

from espalier.store.db import Database
from espalier.store.tables import LEASES

FAR_AHEAD = 10
"""A lease that ends in more than so many times its length is from a clock that was ahead, and counts as ended: it must
not block for years."""


def has_ended(until: ColumnElement[Any], now: float, seconds: float) -> ColumnElement[bool]:
    """The condition that a lease of this length, which holds until the column's time (Unix), has ended."""
    return or_(until <= now, until > now + FAR_AHEAD * seconds)


def take(database: Database, name: str, holder: str, *, now: float, seconds: float) -> bool:
    """Take or renew a lease until now + seconds (Unix). Returns whether `holder` has it now."""
    free = or_(LEASES.c.holder == holder, has_ended(LEASES.c.until, now, seconds))
    statement = update(LEASES).where(LEASES.c.name == name, free).values(holder=holder, until=now + seconds)
    with database.writing() as connection:
        return connection.execute(statement).rowcount > 0


def release(database: Database, name: str, holder: str) -> None:
    """Give a lease back. Nothing happens if another holder has it."""
    statement = update(LEASES).where(LEASES.c.name == name, LEASES.c.holder == holder).values(holder="", until=0.0)
    with database.writing() as connection:
        connection.execute(statement)
