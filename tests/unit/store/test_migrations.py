"""Migrations: from empty, from each earlier revision with data, and back; by several processes; not from newer ones."""

from __future__ import annotations

import importlib
import pkgutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Boolean, Double, Integer, LargeBinary, MetaData, Table, func, insert, select, text

import espalier.store
from espalier.errors import InputError
from espalier.store import migrate
from espalier.store.db import Database, open_database
from espalier.store.open import open_store
from espalier.store.tables import METADATA, SEARCH_INDEX, TRACE_SEARCH

REVISIONS = migrate.revisions()
DEVELOPMENT = Path(__file__).parent / "development_0012.sql"
"""What the last version before 0.1.0 made on SQLite, without the tables that FTS5 makes for itself."""
VALUES = {LargeBinary: b"\0\xff", Boolean: True, Integer: 7, Double: 2.5}

OPEN = """
import sys
from espalier.store.open import open_store
print("ready", flush=True)
sys.stdin.readline()
store = open_store(sys.argv[1])
store.save_generation({"request_id": "r", "caller": "c", "model": "m"})
store.close()
print("done", flush=True)
"""


def sample(table: Table) -> dict[str, Any]:
    """A value for every column, by its type."""
    return {
        column.name: next((v for kind, v in VALUES.items() if isinstance(column.type, kind)), f"{column.name}é")
        for column in table.columns
    }


def tables_of(database: Database) -> dict[str, Table]:
    found = MetaData()
    with database.reading() as connection:
        found.reflect(connection)
    is_own = (migrate.VERSION_TABLE, SEARCH_INDEX, TRACE_SEARCH, "sqlite_sequence")  # FTS5 has tables of its own
    return {name: table for name, table in found.tables.items() if not name.startswith(is_own)}


def rows_of(database: Database) -> dict[str, list[dict[str, Any]]]:
    with database.reading() as connection:
        return {
            name: sorted((dict(row) for row in connection.execute(select(table)).mappings()), key=repr)
            for name, table in tables_of(database).items()
        }


def test_revisions_are_numbered_without_gaps() -> None:
    assert [f"{i + 1:04}" for i in range(len(REVISIONS))] == REVISIONS
    folder = Path(migrate.__file__).parent / "migrations" / "versions"
    assert sorted(path.name[:4] for path in folder.glob("0*.py")) == REVISIONS


def test_the_migrations_make_the_tables_that_the_statements_are_written_for(url: str) -> None:
    for module in pkgutil.iter_modules(espalier.store.__path__):
        importlib.import_module(f"espalier.store.{module.name}")  # each may define tables of its own
    database = open_database(url)
    migrate.upgrade(database)
    with database.reading() as connection:
        options = {
            "version_table": migrate.VERSION_TABLE,
            "compare_type": True,
            "include_object": lambda _, name, *__: (
                not str(name).startswith((SEARCH_INDEX, TRACE_SEARCH))
            ),  # SQLAlchemy cannot say it
        }
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    database.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_data_of_each_revision_is_there_after_the_upgrade_and_after_the_way_back(url: str, revision: str) -> None:
    database = open_database(url)
    migrate.upgrade(database, revision)
    assert migrate.version(database) == revision
    for table in tables_of(database).values():
        with database.writing() as connection:
            connection.execute(insert(table).values(sample(table)))
    before = rows_of(database)
    migrate.upgrade(database)
    assert migrate.version(database) == REVISIONS[-1]
    after = rows_of(database)
    for name, rows in before.items():
        kept = [{column: row[column] for column in rows[0]} for row in after[name]]
        assert kept == rows
    migrate.downgrade(database, revision)
    assert rows_of(database) == before
    migrate.downgrade(database, "base")
    assert tables_of(database) == {}
    assert migrate.version(database) is None
    migrate.upgrade(database)
    database.close()


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_was(url: str) -> None:
    store = open_store(url)
    store.save_generation({"request_id": "r", "caller": "c", "model": "m"})
    set_version(store.database, "9999")
    before = rows_of(store.database)
    for _ in range(2):
        with pytest.raises(InputError, match=r"newer version of Espalier \(revision 9999\)") as caught:
            open_store(url)
        assert caught.value.field == "database_url"
    with pytest.raises(InputError, match="newer"):
        migrate.downgrade(store.database, "base")
    assert rows_of(store.database) == before
    set_version(store.database, REVISIONS[-1])
    store.close()


def set_version(database: Database, version: str) -> None:
    with database.writing() as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = :v"), {"v": version})


def test_a_migration_that_fails_leaves_the_database_as_it_was(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE leases (other INTEGER)"))  # in the way of 0001
    with pytest.raises(Exception, match="leases"):
        migrate.upgrade(database)
    assert migrate.version(database) is None
    assert set(tables_of(database)) == {"leases"}
    with database.writing() as connection:
        connection.execute(text("DROP TABLE leases"))
    migrate.upgrade(database)
    database.close()


def development_database(path: Path, revision: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DEVELOPMENT.read_text())
        connection.execute("UPDATE espalier_version SET version_num = ?", (revision,))
        connection.execute("INSERT INTO vocab_cache VALUES ('f', 1.0, 2.0, 'demo', 3, 4, x'00')")
        connection.commit()
    return f"sqlite:///{path}"


def test_a_database_of_the_last_development_version_is_read(tmp_path: Path) -> None:
    store = open_store(development_database(tmp_path / "espalier.db", "0012"))
    assert [row["name"] for row in store.vocabs()] == ["demo"]
    store.save_generation({"request_id": "r", "caller": "c", "model": "m"})
    assert migrate.version(store.database) == REVISIONS[-1]
    adopted = {name: set(table.columns.keys()) for name, table in tables_of(store.database).items()}
    store.close()
    fresh = open_store(f"sqlite:///{tmp_path}/fresh.db")
    assert adopted == {name: set(table.columns.keys()) for name, table in tables_of(fresh.database).items()}
    fresh.close()


def test_a_database_of_an_earlier_development_version_is_refused_by_name(tmp_path: Path) -> None:
    url = development_database(tmp_path / "espalier.db", "0011")
    for _ in range(2):
        with pytest.raises(InputError, match=r"espalier\.db was .*development version.*0011") as caught:
            open_store(url)
        assert caught.value.field == "database_url"


@pytest.mark.slow
def test_processes_that_open_an_empty_database_at_once_migrate_it_once(url: str) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=60) for worker in workers]
    assert [(out, error) for out, error in said] == [("done\n", "")] * 4
    database = open_database(url)
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar_one() == 1
        assert connection.execute(text("SELECT count(*) FROM generation_logs")).scalar_one() == 4
        assert connection.execute(select(func.count()).select_from(text(migrate.VERSION_TABLE))).scalar_one() == 1
    database.close()
