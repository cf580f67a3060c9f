"""Migrates a database's tables up or down, with Alembic. The steps are in `migrations/versions`.

All steps run in one transaction, which is also the lock: if several processes start at once, one migrates and the
others find it done. A migration that is killed half way has changed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import resources
from io import StringIO
from typing import TextIO

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, text

from espalier.errors import InputError
from espalier.store.db import FIELD, Database

VERSION_TABLE = "espalier_revision"
DEVELOPMENT_TABLE = "espalier_version"
"""The version table before 0.1.0, whose migrations were numbered anew with the first release."""
DEVELOPMENT_HEAD = "0012"
"""The last revision before 0.1.0: its tables are those of `0001`."""
LOCK_KEY = 0x657370616C  # `espal`: one number for all processes on a PostgreSQL database

_alembic = threading.Lock()  # `alembic.op` and `alembic.context` are global to the process


def upgrade(database: Database, to: str = "head") -> None:
    """Migrate up to a revision; `head` is the newest. Does nothing if the database is there already.

    Raises InputError for a database of a newer version of Espalier, or of one before 0.1.0 whose tables differ, and
    OutputError if it cannot be written.
    """
    with _alembic:
        known = _scripts()
        if _is_at(database, known, to):
            return  # without a lock: the usual case
        with database.writing() as connection:
            _lock(connection)
            _adopt_development_tables(connection, database.shown)
            _check_known(connection, known, database.shown)
            _run(connection, to, command.upgrade)


def downgrade(database: Database, to: str) -> None:
    """Migrate down to a revision; `base` is before the first. Data of later revisions is lost."""
    with _alembic, database.writing() as connection:
        _lock(connection)
        _adopt_development_tables(connection, database.shown)
        _check_known(connection, _scripts(), database.shown)
        _run(connection, to, command.downgrade)


def version(database: Database) -> str | None:
    """The revision of the database; None before the first."""
    with database.reading() as connection:
        return _version(connection)


def revisions() -> list[str]:
    """All revisions, oldest first."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def script(dialect: str) -> str:
    """The SQL of all migrations, for databases whose tables a server may not create. dialect: `postgresql` or
    `sqlite`."""
    with _alembic, StringIO() as output:
        command.upgrade(_config(output, dialect_name=dialect, literal_binds=True), "head", sql=True)
        return output.getvalue()


def _is_at(database: Database, known: ScriptDirectory, to: str) -> bool:
    with database.reading() as connection:
        _check_known(connection, known, database.shown)
        return _version(connection) == (known.get_current_head() if to == "head" else to)


def _version(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _check_known(connection: Connection, known: ScriptDirectory, shown: str) -> None:
    current = _version(connection)
    try:
        known.get_revisions(current or ())
    except CommandError as error:
        raise InputError(
            f"{shown} was written by a newer version of Espalier (revision {current})",
            hint=f"update Espalier, or name another database; this version knows up to {known.get_current_head()}",
            field=FIELD,
        ) from error


def _adopt_development_tables(connection: Connection, shown: str) -> None:
    """Take over a database of the last development version, whose tables are those of `0001`. Raises InputError for one
    of an earlier development version."""
    if not inspect(connection).has_table(DEVELOPMENT_TABLE):
        return
    current = connection.execute(text(f"SELECT version_num FROM {DEVELOPMENT_TABLE}")).scalar()
    if current is None:  # migrated down to nothing
        connection.execute(text(f"DROP TABLE {DEVELOPMENT_TABLE}"))
        return
    if current != DEVELOPMENT_HEAD:
        raise InputError(
            f"{shown} was written by a development version of Espalier before 0.1.0 (revision {current})",
            hint="name another database, or move this one away: its tables differ from those of the release",
            field=FIELD,
        )
    connection.execute(text(f"ALTER TABLE {DEVELOPMENT_TABLE} RENAME TO {VERSION_TABLE}"))
    connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE is a lock already
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def _run(connection: Connection, to: str, run: Callable[[Config, str], None]) -> None:
    run(_config(connection=connection), to)


def _config(output: TextIO | None = None, **configure: object) -> Config:
    config = Config(output_buffer=output)
    config.attributes["configure"] = {"version_table": VERSION_TABLE, **configure}
    config.set_main_option("script_location", str(resources.files("espalier.store.migrations")).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
