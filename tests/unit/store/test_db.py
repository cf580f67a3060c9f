"""Opening a database, and the errors if it cannot be opened."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from espalier.errors import EspalierError, InputError, MissingDependency, OutputError, Unavailable
from espalier.store import migrate
from espalier.store.db import Database, default_url, open_database
from espalier.store.open import open_store
from espalier.store.trace_filter import TraceFilter
from tests.small_disk import failing_writes
from tests.traces import sample_trace

TRACE = sample_trace(6).to_json()
ASKED = {"request_id": "r", "caller": "anna", "index": 0}


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def test_without_a_url_the_file_is_in_the_users_data_folder_and_for_nobody_else(tmp_path: Path) -> None:
    store = open_store(environ={"XDG_DATA_HOME": str(tmp_path / "data")})
    store.save_trace(TRACE, **ASKED)
    folder = tmp_path / "data" / "espalier"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert files.pop("espalier.db") == 0o600
    assert set(files) == {"espalier.db-wal", "espalier.db-shm"}
    assert set(files.values()) == {0o600}
    store.close()


def test_the_data_folder_is_the_users_where_the_environment_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert default_url({}).database == "/home/anna/.local/share/espalier/espalier.db"


def test_sqlite_is_opened_in_wal_mode_with_its_keys_held_and_room_given_back(tmp_path: Path) -> None:
    database = open_database(url_of(tmp_path / "a.db"))
    wanted = {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "auto_vacuum": 2, "busy_timeout": 10_000}
    with database.reading() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted}
    database.close()
    assert found == wanted


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://u@h/d",
        "postgresql+asyncpg://u@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:////tmp/x.db?mode=ro",
        "sqlite:///a\0b",
    ],
)
def test_a_url_of_a_kind_that_is_not_used_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        open_database(url)
    assert caught.value.field == "database_url"


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are notes, and no database at all\n" * 100)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is not a database") as caught:
        open_store(url_of(path))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["missing/folder/a.db", "file.txt/a.db", "."])
def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").touch()
    with pytest.raises(InputError, match="cannot open the database"):
        open_store(url_of(tmp_path / name))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
def test_a_folder_in_which_nobody_can_make_a_file_is_an_error_of_ours() -> None:
    with pytest.raises((OutputError, InputError), match="cannot open the database"):
        open_store("sqlite:////proc/self/espalier.db")


def test_opening_a_database_twice_leaves_the_locks_of_the_first_connection(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    with store.database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").all()
        open_database(url_of(path)).close()
        program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM traces'); c.close()"
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        assert path.with_name("a.db-wal").exists()  # the other process was not the last to use it
    kept = store.save_trace(TRACE, **ASKED)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM traces").fetchall() == [(1,)]
    assert store.trace(kept, caller="anna") == TRACE
    store.close()


def test_a_database_that_may_only_be_read_still_answers_and_refuses_to_keep(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    kept = store.save_trace(TRACE, **ASKED)
    store.database.engine.dispose()
    event.listen(store.database.engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only=ON"))
    with pytest.raises(OutputError, match="read-only"):
        store.save_trace(TRACE, **ASKED)
    assert store.trace(kept, caller="anna") == TRACE
    store.close()


def test_a_full_disk_is_an_error_of_ours_and_what_was_kept_stays(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    kept = [store.save_trace(TRACE, **ASKED)]
    store.database.engine.dispose()

    def grows_no_more(raw: sqlite3.Connection, _: object) -> None:
        raw.execute(f"PRAGMA max_page_count={raw.execute('PRAGMA page_count').fetchone()[0] + 4}")

    event.listen(store.database.engine, "connect", grows_no_more)
    with pytest.raises(OutputError, match="the disk is full"):
        kept += [store.save_trace(TRACE, **ASKED) for _ in range(100)]
    shown = store.traces(TraceFilter(caller="anna"), limit=1000)
    assert {row["id"] for row in shown} >= set(kept)
    assert all(store.trace(row["id"], caller="anna") == TRACE for row in shown)
    assert store.delete_trace(kept[0], caller="anna")  # room again
    store.close()


def test_a_disk_whose_writes_fail_is_an_error_of_ours_and_what_was_kept_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    kept = store.save_trace(TRACE, **ASKED)
    with failing_writes(path.stat().st_size), pytest.raises(OutputError, match="the disk reports an error"):
        [store.save_trace(TRACE, **ASKED) for _ in range(100)]
    assert store.trace(kept, caller="anna") == TRACE
    later = store.save_trace(TRACE, **ASKED)
    assert store.trace(later, caller="anna") == TRACE
    store.close()


def test_a_writer_that_never_ends_makes_others_give_up_with_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("espalier.store.db.BUSY_SECONDS", 0.01)
    store = open_store(url_of(tmp_path / "a.db"))
    with store.database.writing(), pytest.raises(OutputError, match="locked by another process"):
        store.save_trace(TRACE, **ASKED)
    store.save_trace(TRACE, **ASKED)
    store.close()


def test_a_damaged_file_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(url_of(path))
    trace_id = store.save_trace(sample_trace(200).to_json(), **ASKED)
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(OutputError, match="is damaged"):
        open_store(url_of(path)).trace(trace_id, caller="anna")


def test_a_trace_whose_bytes_are_damaged_is_an_error_of_ours(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    trace_id = store.save_trace(TRACE, **ASKED)
    for body in (b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"):
        with store.database.writing() as connection:
            connection.execute(text("UPDATE traces SET body = :body"), {"body": body})
        with pytest.raises(OutputError, match=f"{trace_id} is damaged"):
            store.trace(trace_id, caller="anna")
    store.close()


def test_a_closed_store_says_so_and_not_where_it_was(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "a.db"))
    store.close()
    store.close()
    with pytest.raises(Unavailable, match="closed") as caught:
        store.save_trace(TRACE, **ASKED)
    assert str(tmp_path) not in str(caught.value)


def test_a_write_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    database = open_database(url_of(tmp_path / "a.db"))
    migrate.upgrade(database)

    def half(database: Database) -> None:
        with database.writing() as connection:
            connection.execute(text("UPDATE leases SET holder = 'me'"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half(database)
    with database.reading() as connection:
        assert connection.execute(text("SELECT holder FROM leases")).scalar_one() == ""
    database.close()


def test_no_error_says_what_was_written(tmp_path: Path) -> None:
    database = open_database(url_of(tmp_path / "a.db"))
    secret = "what somebody wrote"
    with pytest.raises(EspalierError) as caught, database.writing() as connection:
        connection.execute(text("INSERT INTO nowhere VALUES (:text)"), {"text": secret})
    assert secret not in str(caught.value)
    assert secret not in str(caught.value.__cause__)
    database.close()


def test_a_missing_driver_is_named_with_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency) as caught:
        open_database("postgresql://anna:hunter2@localhost/db")
    assert "[postgres]'" in str(caught.value)


def test_a_server_that_does_not_answer_is_away_and_its_password_not_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        open_database("postgres://anna:hunter2@127.0.0.1:1/db?connect_timeout=2")
    assert "hunter2" not in str(caught.value)
