"""Opens a database: connections, transactions, and the settings of each dialect. It knows no tables and no migrations.

SQLite is used in WAL mode: any number of readers and one writer, in several processes. A write starts with BEGIN
IMMEDIATE, so that it waits for its turn (`busy_timeout`) at the start instead of failing half way.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from espalier.errors import InputError, OutputError, Unavailable
from espalier.optional import optional_imports

with optional_imports("server"):
    from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, exc, make_url
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.pool import QueuePool

from espalier.store.faults import typed

FIELD = "database_url"
BUSY_SECONDS = 10.0
JOURNAL_BYTES = 16 * 2**20
"""The size to which the write-ahead log shrinks after a checkpoint."""

CONNECTION_PRAGMAS = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA synchronous=NORMAL",  # in WAL mode a killed process loses nothing; a power cut, the last writes
    f"PRAGMA journal_size_limit={JOURNAL_BYTES}",
    "PRAGMA trusted_schema=OFF",
)
POSTGRES_NAMES = ("postgres", "postgresql", "postgresql+psycopg")
_WRITES = "espalier_writes"
_CREATION = threading.Lock()


class Database:
    """An SQLAlchemy engine and its transactions. Safe from any thread, and with several processes on one database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shown = f"the database {engine.url.render_as_string(hide_password=True)}"
        self._is_closed = False

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read-only transaction. Raises what `faults.typed` raises, and Unavailable once closed."""
        with self._transaction({}) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, rolled back on any exception. On SQLite only one of them is open at a time.

        Raises OutputError if nothing could be written, Unavailable if the database is unreachable or closed.
        """
        with self._transaction({_WRITES: True}) as connection:
            yield connection

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """The INSERT of this dialect, with `on_conflict_do_update` and `on_conflict_do_nothing`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def vacuum(self, pages: int) -> bool:
        """SQLite: return this many free pages to the file system, and whether there are more. PostgreSQL: False."""
        if not self.is_sqlite:
            return False
        with self._raw_connection() as raw:
            free = int(raw.execute("PRAGMA freelist_count").fetchone()[0])
            raw.executescript(f"PRAGMA incremental_vacuum({int(pages)})")  # `execute` would stop after one page
        return free > pages

    def checkpoint(self) -> None:
        """SQLite: move the write-ahead log into the file, as far as no reader needs it. Does not wait."""
        if self.is_sqlite:
            with self._raw_connection() as raw:
                raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return Path(self.engine.url.database or "").absolute() if self.is_sqlite else None

    @property
    def address(self) -> str:
        """The path of the SQLite file, or the URL without its password."""
        return str(self.file or self.engine.url.render_as_string(hide_password=True))

    def backup(self, path: Path, *, replace: bool = False) -> None:
        """SQLite: copy the whole database, as it is at one moment, while others go on writing. The file is there whole
        or not at all. Raises InputError for PostgreSQL and for a file that exists, OutputError if it cannot be
        written."""
        if not self.is_sqlite:
            raise InputError(f"{self.shown} is no SQLite file", hint="pg_dump makes a copy of it", field="backup")
        if path.exists() and not replace:
            raise InputError(f"{path} exists already", hint="--force replaces it", field="backup")
        if self.file is not None and path.exists() and path.samefile(self.file):
            raise InputError(f"{path} is the database itself", field="backup")
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with self._raw_connection() as raw, typed(str(path)):
                os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                with closing(sqlite3.connect(part)) as copy:
                    raw.backup(copy)
            os.replace(part, path)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}", field="backup") from error
        finally:
            part.unlink(missing_ok=True)

    def hide_name(self) -> None:
        """From now on errors leave out the database's address, since clients of a server see them."""
        self.shown = "the database"

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._is_closed = True
        self.engine.dispose()

    @contextmanager
    def _raw_connection(self) -> Iterator[sqlite3.Connection]:
        """SQLite's own connection, outside any transaction, for statements that cannot be in one."""
        self._check_open()
        with typed(self.shown), closing(self.engine.raw_connection()) as pooled:
            raw = pooled.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            yield raw

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable(f"{self.shown} is closed")

    @contextmanager
    def _transaction(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        self._check_open()
        with typed(self.shown), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection


def open_database(url: str | None = None, *, environ: Mapping[str, str] | None = None) -> Database:
    """Connect to the database at a URL; without one, to a SQLite file in the user's data folder. Creates no tables.

    Raises InputError for an unsupported URL or file, OutputError for a place that cannot be written, Unavailable if the
    database server does not answer, MissingDependency without PostgreSQL's driver.
    """
    parsed = _parse(url) if url else default_url(os.environ if environ is None else environ)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    return _open_sqlite(parsed, makes_folder=not url) if is_sqlite else _open_postgres(parsed)


def open_memory() -> Database:
    """A SQLite database in memory, gone when it is closed. Its one connection is used by one transaction at a time."""
    return Database(_sqlite_engine("sqlite://", poolclass=QueuePool, pool_size=1, max_overflow=0))


def _sqlite_engine(url: URL | str, **options: Any) -> Engine:
    """An engine whose connections have our settings. It opens nothing yet."""
    connecting = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    engine = create_engine(url, hide_parameters=True, connect_args=connecting, **options)
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def default_url(environ: Mapping[str, str]) -> URL:
    """`espalier/espalier.db` below `XDG_DATA_HOME`, or below `~/.local/share`."""
    base = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return URL.create("sqlite", database=str(base / "espalier" / "espalier.db"))


def _parse(url: str) -> URL:
    hint = "for example sqlite:////var/lib/espalier/espalier.db or postgresql://user:password@host/name"
    try:
        parsed = make_url(url)
    except exc.ArgumentError as error:
        raise InputError("the database URL is not a URL", hint=hint, field=FIELD) from error
    if parsed.drivername in POSTGRES_NAMES:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InputError(f"databases of type {parsed.drivername!r} are not supported", hint=hint, field=FIELD)
    name = parsed.database or ""
    if not name or name.startswith((":memory:", "file:")) or "\0" in name or parsed.query:
        raise InputError("a SQLite URL must be the path of a file, without options", hint=hint, field=FIELD)
    return parsed


def _open_sqlite(url: URL, *, makes_folder: bool) -> Database:
    path = Path(url.database or "")
    _make_file(path, makes_folder=makes_folder)
    engine = _sqlite_engine(url)
    database = Database(engine)
    try:
        with typed(database.shown):
            _prepare(engine)
    except BaseException:
        database.close()
        raise
    return database


def _make_file(path: Path, *, makes_folder: bool) -> None:
    """Create the file, readable by its owner only, unless it exists. SQLite gives its log files the same mode.

    A file that exists is not opened here: closing it would drop the locks that SQLite holds on it for other connections
    of this process (POSIX locks are by process and file), and another process would then delete the write-ahead log
    under them. For the same reason no thread connects to a new file before it is closed.
    """
    try:
        if makes_folder:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _CREATION, suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        message = f"cannot open the database {os.fspath(path)!r}: {error.strerror}"
        raise InputError(message, hint="name a file in a folder that exists", field=FIELD) from error
    except OSError as error:
        message = f"cannot open the database {os.fspath(path)!r}: {error.strerror}"
        raise OutputError(message, hint="name a place that can be written", field=FIELD) from error


def _on_sqlite_connect(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves: sqlite3 would send it late, and only before writes
    for pragma in CONNECTION_PRAGMAS:
        connection.execute(pragma)


def _on_sqlite_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare(engine: Engine) -> None:
    """Set WAL mode and incremental vacuum for a new file. Another process may do the same at the same time."""
    give_up = time.monotonic() + BUSY_SECONDS
    waiting = threading.Event()
    while True:
        try:
            with closing(engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA auto_vacuum=INCREMENTAL")  # works on an empty file only, so before WAL
                raw.cursor().execute("PRAGMA journal_mode=WAL")
                raw.cursor().execute(
                    "SELECT count(*) FROM sqlite_master"
                )  # reads the header, which fails if the file is no database
            return
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait as a transaction does.
            if not str(error.sqlite_errorname).startswith("SQLITE_BUSY") or time.monotonic() > give_up:
                raise
        waiting.wait(0.02)


def _open_postgres(url: URL) -> Database:
    with optional_imports("postgres"):
        engine = create_engine(
            url, hide_parameters=True, pool_pre_ping=True, connect_args={"application_name": "espalier"}
        )
    database = Database(engine)
    try:
        with database.reading():
            pass
    except BaseException:
        database.close()
        raise
    return database
