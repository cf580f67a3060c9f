"""Brings a database's tables to the newest form, or back. What changes is said in `migrations/versions`, not here.

All steps run in one transaction, which is also the lock: of several processes that start at once one migrates and the
others find it done; killed half way, it has not begun.
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
from sqlalchemy import Connection, text

from espalier.errors import InputError
from espalier.store.db import FIELD, Database

VERSION_TABLE = "espalier_version"
LOCK_KEY = 0x657370616C  # `espal`: one number for all processes on a PostgreSQL database

_alembic = threading.Lock()  # `alembic.op` and `alembic.context` are one for the whole process


def upgrade(database: Database, to: str = "head") -> None:
    """Bring it to a revision, `head` being the newest. What is there already is left.

    Raises InputError for a database that a newer version of Espalier wrote, OutputError where it cannot be written.
    """
    with _alembic:
        known = _scripts()
        if _is_at(database, known, to):
            return  # without a lock: the usual case
        with database.writing() as connection:
            _take_turn(connection)
            _check_known(connection, known, database.shown)
            _run(connection, to, command.upgrade)


def downgrade(database: Database, to: str) -> None:
    """Bring it back to a revision, `base` being before the first. What later revisions added is lost."""
    with _alembic, database.writing() as connection:
        _take_turn(connection)
        _check_known(connection, _scripts(), database.shown)
        _run(connection, to, command.downgrade)


def version(database: Database) -> str | None:
    """The revision that it is at; None before the first."""
    with database.reading() as connection:
        return _version(connection)


def revisions() -> list[str]:
    """All there are, oldest first."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def script(dialect: str) -> str:
    """The SQL of all of them, for whoever does not let a server make tables. dialect: `postgresql` or `sqlite`."""
    with _alembic, StringIO() as said:
        command.upgrade(_config(said, dialect_name=dialect, literal_binds=True), "head", sql=True)
        return said.getvalue()


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


def _take_turn(connection: Connection) -> None:
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
