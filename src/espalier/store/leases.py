"""Who does what only one process at a time should do. A lease runs out by itself: a killed holder blocks nobody.

It knows nothing of the work. Names are rows that a migration put there.
"""

from __future__ import annotations

from sqlalchemy import or_, update

from espalier.store.db import Database
from espalier.store.tables import LEASES


def take(database: Database, name: str, holder: str, *, now: float, seconds: float) -> bool:
    """Whether `holder` has it until now + seconds: it was free, had run out, or was the holder's already (renewed)."""
    free = or_(LEASES.c.holder == holder, LEASES.c.until <= now, LEASES.c.until > now + 10 * seconds)
    # The last: a clock that was far ahead must not block for years.
    statement = update(LEASES).where(LEASES.c.name == name, free).values(holder=holder, until=now + seconds)
    with database.writing() as connection:
        return connection.execute(statement).rowcount > 0


def release(database: Database, name: str, holder: str) -> None:
    """Let others have it; nothing where another has it already."""
    statement = update(LEASES).where(LEASES.c.name == name, LEASES.c.holder == holder).values(holder="", until=0.0)
    with database.writing() as connection:
        connection.execute(statement)
