"""The tables of batch jobs, for statements; migration 0005 creates them."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, Index, Integer, LargeBinary, String, Table, Text

from espalier.store.tables import ID, METADATA

FILES = Table(
    "batch_files",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds, as every time here
    Column("caller", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", Double, nullable=False),
    Column("expires", Double),
    Column("batch_id", ID),  # whose results it holds; NULL for an upload, which is a file of the folder
    Index("batch_files_by_caller", "caller", "id"),
    Index("batch_files_by_batch", "batch_id"),
)

BATCHES = Table(
    "batches",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),
    Column("caller", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("input_file", ID, nullable=False),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("expires", Double),
    Column("total", Integer, nullable=False),
    Column("plan", LargeBinary, nullable=False),  # packing.py, as the next two
    Column("errors", LargeBinary),
    Column("usage", LargeBinary),
    Column("model", Text),
    Column("output_file", ID),
    Column("error_file", ID),
    Column("validating_at", Double),
    Column("failed_at", Double),
    Column("in_progress_at", Double),
    Column("finalizing_at", Double),
    Column("completed_at", Double),
    Column("expired_at", Double),
    Column("cancelling_at", Double),
    Column("cancelled_at", Double),
    Column("holder", String(64)),  # which worker reads the input
    Column("until", Double),
    Column("fence", Integer, nullable=False),
    Index("batches_by_caller", "caller", "id"),
    Index("batches_by_state", "state", "priority", "id"),
)

ITEMS = Table(
    "batch_items",
    METADATA,
    Column("batch_id", ID, primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("custom_id", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),  # packing.py
    Column("size", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("not_before", Double, nullable=False),
    Column("holder", String(64)),  # the lease: who has it, until when, and which lease it is
    Column("until", Double),
    Column("fence", Integer, nullable=False),
    Index("batch_items_by_state", "batch_id", "state", "line"),
    Index("batch_items_by_holder", "holder"),
)

ATTEMPTS = Table(
    "batch_attempts",
    METADATA,
    Column("batch_id", ID, primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("fence", Integer, primary_key=True),
    Column("worker", String(64), nullable=False),
    Column("began", Double, nullable=False),
    Column("ended", Double),
    Column("outcome", String(16)),  # NULL while it runs
)

RESULTS = Table(
    "batch_results",
    METADATA,
    Column("batch_id", ID, primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("created", Double, nullable=False),
    Column("good", Boolean, nullable=False),
    Column("answer", LargeBinary, nullable=False),  # packing.py, as the figures
    Column("figures", LargeBinary),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("valid", Boolean),
    Column("trace_id", ID),
)
