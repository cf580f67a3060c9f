"""The tables as SQLAlchemy values, for statements. `migrations/versions` creates them. It opens no database.

A module with tables of its own defines them with this METADATA and adds the next numbered migration; a test compares
all tables of this package with what the migrations create.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)
from sqlalchemy.dialects import postgresql

ID_LENGTH = 40
METADATA = MetaData()

ID = String(ID_LENGTH).with_variant(postgresql.VARCHAR(ID_LENGTH, collation="C"), "postgresql")
"""Ids are ordered by bytes; the default collation of a database may differ."""

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
    Column("valid", Boolean),  # the verdict; NULL without one
    Column("tokens", Integer, nullable=False),
    Column("tax_nats", Double),
    Column("removed_mass", Double),  # mean over the steps
    Column("rejected_steps", Integer),
    Column("changed_steps", Integer),
    Column("unknown_steps", Integer),
    Column("bounded_steps", Integer),
    Column("body", LargeBinary, nullable=False),  # packing.py; so far behind that most lists need not read past it
    Column("prompt", Text),  # the beginnings of both; NULL in rows of before they were stored
    Column("text", Text),
    Column("level", Text),  # what the body has of the steps; NULL, as all below, in rows of before 0003
    Column("prompt_tokens", Integer),
    Column("fingerprint", Text),  # trace_columns.py: of the constraint; NULL for free text
    Column("title", Text),  # of the constraint, for people
    Column("template", Text),  # a hash of the prompt without the last text of a person
    Column("worst_path", Text),  # the JSON path with the greatest tax, array indices as *
    Column("worst_tax_nats", Double),  # its tax
    Column("to_first_token", Double),  # seconds, as the next
    Column("total", Double),
    Column("flagged", Boolean, nullable=False, server_default=false()),  # retention.py keeps these longer
    Index("traces_by_caller", "caller", "id"),
    Index("traces_by_request", "request_id"),
    Index("traces_by_fingerprint", "fingerprint", "id"),
)

TRACE_WORDS = Table(
    "trace_words",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),  # the rowid that FTS5 needs
    Column("trace_id", ID, nullable=False),
    Column("words", Text, nullable=False),  # search/words.py
    Index("trace_words_by_trace", "trace_id", unique=True),
    sqlite_autoincrement=True,
)
TRACE_SEARCH = "trace_words_search"
"""As SEARCH_INDEX, for traces."""

GENERATION_LOGS = Table(
    "generation_logs",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),  # the rowid that FTS5 needs
    Column("id", ID, nullable=False),
    Column("created", Double, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("caller", Text, nullable=False),  # the name of the API key
    Column("route", Text),
    Column("model", Text, nullable=False),
    Column("engine", Text),
    Column("strategy", Text),
    Column("constraint_kind", Text),
    Column("streamed", Boolean),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("tax_nats", Double),
    Column("removed_mass", Double),  # mean over the steps
    Column("rejection_rate", Double),  # share of steps whose draw or top choice was refused
    Column("queued", Double),  # seconds, as the next two
    Column("to_first_token", Double),
    Column("total", Double),
    Column("finish_reason", Text),  # NULL after an error
    Column("valid", Boolean),
    Column("error", Text),  # the error's code
    Column("trace_id", ID),
    Column("request", LargeBinary),  # packing.py: constraint, contract, sampling, decoding, verdict; no content
    Column("content", LargeBinary),  # packing.py: prompt and texts; NULL unless they are kept
    Column("words", Text, nullable=False),  # search/words.py
    Column("flagged", Boolean, nullable=False, server_default=false()),
    Index("generation_logs_by_id", "id", unique=True),
    Index("generation_logs_by_caller", "caller", "id"),
    Index("generation_logs_by_model", "model", "id"),
    Index("generation_logs_by_request", "request_id"),
    sqlite_autoincrement=True,
)
SEARCH_INDEX = "generation_logs_search"
"""The FTS5 table over `words` on SQLite, which whoever writes rows keeps in step; a GIN index on PostgreSQL."""

FEEDBACK = Table(
    "feedback",
    METADATA,
    Column("caller", String(64), primary_key=True),
    Column("request_id", String(128), primary_key=True),
    Column("name", String(64), primary_key=True),  # which score, since a client may have several
    Column("created", Double, nullable=False),
    Column("score", Double),
    Column("text", Text),
    Column("flag", Boolean, nullable=False),  # whether it says that the answer is bad
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("until", Double, nullable=False),  # Unix seconds
)
