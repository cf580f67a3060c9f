"""A store on a new SQLite file, and on PostgreSQL: a database that ESPALIER_TEST_POSTGRES_URL names, which is emptied,
or a server that the tests start, where its programs are installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from espalier.store import migrate
from espalier.store.batches.open import BatchStore
from espalier.store.db import open_database
from espalier.store.open import Store, open_store
from tests.batch_jobs import Clock, open_batches, postgres, postgres_folder

POSTGRES = os.environ.get("ESPALIER_TEST_POSTGRES_URL")
HAS_DRIVER = importlib.util.find_spec("psycopg") is not None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if POSTGRES is not None:
        yield POSTGRES
        return
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def empty_url(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The URL of an empty database of a kind, `sqlite` or `postgresql`."""

    def empty(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('store')}/espalier.db"
        url: str = request.getfixturevalue("postgres_url")
        database = open_database(url)
        migrate.downgrade(database, "base")
        database.close()
        return url

    return empty


POSTGRES_KIND = pytest.param(
    "postgresql",
    marks=pytest.mark.skipif(
        not HAS_DRIVER or (POSTGRES is None and postgres_folder() is None),
        reason="no PostgreSQL: psycopg and the Debian package postgresql, or ESPALIER_TEST_POSTGRES_URL",
    ),
)


@pytest.fixture(scope="session", params=["sqlite", POSTGRES_KIND])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, empty_url: Callable[[str], str]) -> str:
    return empty_url(kind)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    opened = open_store(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def batches(url: str, clock: Clock, tmp_path: Path) -> Iterator[BatchStore]:
    opened = open_batches(url, tmp_path / "files", clock=clock)
    yield opened
    opened.database.close()
