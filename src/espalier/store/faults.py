"""Maps errors of SQLAlchemy, SQLite and PostgreSQL to our errors. It knows no tables.

No message contains a statement or its parameters, which may hold prompts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from espalier.errors import DiskFull, EspalierError, InputError, OutputError, Unavailable

_NO_DATABASE = (InputError, "is not a database", "name another file, or move this one away")
_READ_ONLY = (OutputError, "cannot be written: it is read-only", "check the owner and mode of the file and its folder")
_FULL = (DiskFull, "cannot be written: the disk is full", "free some space, or keep less")
_FAULTY = (OutputError, "cannot be read or written: the disk reports an error", "look at the disk; a backup is a copy")
_BUSY = (OutputError, "is locked by another process", "try again")
_NO_ACCESS = (InputError, "cannot be opened", "check the path, the name and the password")
_AWAY = (Unavailable, "cannot be reached", "check that the database server runs")

FAULTS: dict[str, tuple[type[EspalierError], str, str]] = {
    # SQLite: extended result codes, or their prefix.
    "SQLITE_NOTADB": _NO_DATABASE,
    "SQLITE_CORRUPT": (OutputError, "is damaged", "move the file away and start again, or restore a backup"),
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": _FAULTY,
    "SQLITE_CANTOPEN": _NO_ACCESS,
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_TOOBIG": (OutputError, "cannot hold a row as large as this", "trace fewer tokens"),
    # PostgreSQL: SQLSTATE, or its class.
    "53100": _FULL,
    "58030": _FAULTY,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "54": (OutputError, "cannot hold a row as large as this", "trace fewer tokens"),
    "55P03": _BUSY,
    "08": _AWAY,
    "53": _AWAY,
    "57": _AWAY,
    "28": _NO_ACCESS,
    "3D": _NO_ACCESS,
}


@contextmanager
def typed(shown: str) -> Iterator[None]:
    """Turn errors of SQLAlchemy and SQLite inside into InputError, OutputError or Unavailable.

    shown: the name of the database in messages, without its password.
    """
    try:
        yield
    except exc.TimeoutError as error:
        raise Unavailable(f"all connections to {shown} are in use", hint="try again") from error
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        raise fault(error, shown) from error


def fault(error: exc.SQLAlchemyError | sqlite3.Error, shown: str) -> EspalierError:
    """Our error for a database error; an unknown one becomes an OutputError with the database's message."""
    cause = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None)
    code = _code(cause)
    for known in sorted(FAULTS, key=len, reverse=True):
        if code.startswith(known):
            kind, what, hint = FAULTS[known]
            return kind(f"{shown} {what}", hint=hint)
    if cause is not None and not code and isinstance(error, exc.OperationalError):
        kind, what, hint = _AWAY  # psycopg has no SQLSTATE for a connection that failed
        return kind(f"{shown} {what}", hint=hint)
    words = (str(cause or error).splitlines() or [type(error).__name__])[0]
    return OutputError(f"{shown} refused: {words}")


def _code(cause: BaseException | None) -> str:
    return str(getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or "")
