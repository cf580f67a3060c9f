"""Statements and tables compiled for PostgreSQL, without a PostgreSQL server."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, insert, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from espalier.store import migrate
from espalier.store.tables import GENERATION_LOGS, LEASES, METADATA, TRACES

DIALECT = postgresql.dialect()


def test_ids_are_ordered_by_bytes_whatever_the_databases_own_order_is() -> None:
    for table in (TRACES, GENERATION_LOGS):
        assert 'id VARCHAR(40) COLLATE "C" NOT NULL' in str(CreateTable(table).compile(dialect=DIALECT))


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=str)
def test_every_table_and_index_can_be_said(table: object) -> None:
    assert "BYTEA" in str(CreateTable(TRACES).compile(dialect=DIALECT))
    assert str(CreateTable(table).compile(dialect=DIALECT))  # type: ignore[arg-type]
    for index in table.indexes:  # type: ignore[attr-defined]
        assert str(CreateIndex(index).compile(dialect=DIALECT))


def test_a_batch_is_deleted_by_the_ids_of_a_limited_query() -> None:
    oldest = select(TRACES.c.id).where(TRACES.c.id < "b").order_by(TRACES.c.id).limit(5)
    said = str(delete(TRACES).where(TRACES.c.id.in_(oldest)).compile(dialect=DIALECT))
    assert "DELETE FROM traces WHERE traces.id IN (SELECT traces.id" in said
    assert "LIMIT" in said
    assert "INSERT INTO leases" in str(insert(LEASES).values(name="a").compile(dialect=DIALECT))


def test_the_migrations_can_be_written_down_as_one_script() -> None:
    said = migrate.script("postgresql")
    for table in METADATA.tables:
        assert f"CREATE TABLE {table} (" in said
