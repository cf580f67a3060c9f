"""A store on a new SQLite file, and on PostgreSQL if ESPALIER_TEST_POSTGRES_URL names a database to empty."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from espalier.store import migrate
from espalier.store.db import open_database
from espalier.store.open import Store, open_store

POSTGRES = os.environ.get("ESPALIER_TEST_POSTGRES_URL")


class Clock:
    """Unix seconds, as told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The URL of an empty database of a kind, `sqlite` or `postgresql`."""

    def empty(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('store')}/espalier.db"
        assert POSTGRES is not None
        database = open_database(POSTGRES)
        migrate.downgrade(database, "base")
        database.close()
        return POSTGRES

    return empty


POSTGRES_KIND = pytest.param(
    "postgresql",
    marks=pytest.mark.skipif(POSTGRES is None, reason="ESPALIER_TEST_POSTGRES_URL names no database"),
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
