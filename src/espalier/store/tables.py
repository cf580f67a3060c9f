"""The tables as SQLAlchemy values, for writing statements. How they came to be is in `migrations/versions`.

A module that keeps something of its own defines its `Table` with this METADATA and adds the next numbered migration; a
test compares all tables of this package with what the migrations make. Nothing here opens a database.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.dialects import postgresql

ID_LENGTH = 40
METADATA = MetaData()

ID = String(ID_LENGTH).with_variant(postgresql.VARCHAR(ID_LENGTH, collation="C"), "postgresql")
"""Ids are ordered by their bytes: a database's own order of letters may be another."""

TRACES = Table(
    "traces",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds
    Column("request_id", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("output_index", Integer, nullable=False),
    Column("route", Text),
    Column("model", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("constraint_kind", Text),
    Column("finish_reason", Text, nullable=False),
    Column("valid", Boolean),  # the verdict; NULL where there was none
    Column("tokens", Integer, nullable=False),
    Column("tax_nats", Double),
    Column("removed_mass", Double),  # mean of the steps
    Column("rejected_steps", Integer),
    Column("changed_steps", Integer),
    Column("body", LargeBinary, nullable=False),  # packing.py; last, so that a list need not read past it
    Index("traces_by_caller", "caller", "id"),
)

GENERATIONS = Table(
    "generations",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("route", Text),
    Column("model", Text, nullable=False),
    Column("constraint_kind", Text),
    Column("streamed", Boolean),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("queued", Double),  # seconds, as the next two
    Column("to_first_token", Double),
    Column("total", Double),
    Column("finish_reason", Text),  # NULL where it ended in an error
    Column("valid", Boolean),
    Column("error", Text),  # the error's code
    Column("content", LargeBinary),  # packing.py; NULL unless the texts are to be kept
    Index("generations_by_caller", "caller", "id"),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("until", Double, nullable=False),  # Unix seconds
)
