"""Creates the tables of 0.1.0."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")

# No triggers: a schema that is not trusted (PRAGMA trusted_schema=OFF) may not use virtual tables in them.
FTS5 = """CREATE VIRTUAL TABLE generation_logs_search
          USING fts5(words, content='generation_logs', content_rowid='number', tokenize='ascii')"""
GIN = """CREATE INDEX generation_logs_search ON generation_logs
         USING gin (array_to_tsvector(string_to_array(words, ' ')))"""

TABLES = (
    "traces",
    "generation_logs",
    "leases",
    "rates",
    "slots",
    "batch_files",
    "batches",
    "batch_items",
    "batch_attempts",
    "batch_results",
    "logit_test_runs",
    "responses",
    "logit_presets",
    "vocab_cache",
)


def upgrade() -> None:
    _create_traces()
    _create_generation_logs()
    _create_leases()
    _create_limits()
    _create_batches()
    _create_test_runs()
    _create_responses()
    _create_presets()
    _create_vocab_cache()


def downgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE generation_logs_search")
    for table in TABLES:
        op.drop_table(table)


def _create_traces() -> None:
    op.create_table(
        "traces",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("output_index", sa.Integer, nullable=False),
        sa.Column("route", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("constraint_kind", sa.Text),
        sa.Column("finish_reason", sa.Text, nullable=False),
        sa.Column("valid", sa.Boolean),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("tax_nats", sa.Double),
        sa.Column("removed_mass", sa.Double),
        sa.Column("rejected_steps", sa.Integer),
        sa.Column("changed_steps", sa.Integer),
        sa.Column("unknown_steps", sa.Integer),
        sa.Column("bounded_steps", sa.Integer),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("traces_by_caller", "traces", ["caller", "id"])


def _create_generation_logs() -> None:
    op.create_table(
        "generation_logs",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("id", ID, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("route", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("engine", sa.Text),
        sa.Column("strategy", sa.Text),
        sa.Column("constraint_kind", sa.Text),
        sa.Column("streamed", sa.Boolean),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("tax_nats", sa.Double),
        sa.Column("removed_mass", sa.Double),
        sa.Column("rejection_rate", sa.Double),
        sa.Column("queued", sa.Double),
        sa.Column("to_first_token", sa.Double),
        sa.Column("total", sa.Double),
        sa.Column("finish_reason", sa.Text),
        sa.Column("valid", sa.Boolean),
        sa.Column("error", sa.Text),
        sa.Column("trace_id", ID),
        sa.Column("request", sa.LargeBinary),
        sa.Column("content", sa.LargeBinary),
        sa.Column("words", sa.Text, nullable=False),
        sqlite_autoincrement=True,  # a number is never used again, so the index cannot name another row
    )
    op.create_index("generation_logs_by_id", "generation_logs", ["id"], unique=True)
    op.create_index("generation_logs_by_caller", "generation_logs", ["caller", "id"])
    op.create_index("generation_logs_by_model", "generation_logs", ["model", "id"])
    op.execute(FTS5 if op.get_context().dialect.name == "sqlite" else GIN)


def _create_leases() -> None:
    leases = op.create_table(
        "leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.bulk_insert(leases, [{"name": "retention", "holder": "", "until": 0.0}])


def _create_limits() -> None:
    op.create_table(
        "rates", sa.Column("name", sa.String(64), primary_key=True), sa.Column("full_at", sa.Double, nullable=False)
    )
    op.create_table(
        "slots",
        sa.Column("holder", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("held", sa.Integer, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_index("slots_by_name", "slots", ["name"])


def _create_batches() -> None:
    op.create_table(
        "batch_files",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("bytes", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("batch_id", ID),
    )
    op.create_table(
        "batches",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("input_file", ID, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("plan", sa.LargeBinary, nullable=False),
        sa.Column("errors", sa.LargeBinary),
        sa.Column("usage", sa.LargeBinary),
        sa.Column("model", sa.Text),
        sa.Column("output_file", ID),
        sa.Column("error_file", ID),
        sa.Column("validating_at", sa.Double),
        sa.Column("failed_at", sa.Double),
        sa.Column("in_progress_at", sa.Double),
        sa.Column("finalizing_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("expired_at", sa.Double),
        sa.Column("cancelling_at", sa.Double),
        sa.Column("cancelled_at", sa.Double),
        sa.Column("holder", sa.String(64)),
        sa.Column("until", sa.Double),
        sa.Column("fence", sa.Integer, nullable=False),
    )
    op.create_table(
        "batch_items",
        sa.Column("batch_id", ID, primary_key=True),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("custom_id", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("not_before", sa.Double, nullable=False),
        sa.Column("holder", sa.String(64)),
        sa.Column("until", sa.Double),
        sa.Column("fence", sa.Integer, nullable=False),
    )
    op.create_table(
        "batch_attempts",
        sa.Column("batch_id", ID, primary_key=True),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("fence", sa.Integer, primary_key=True),
        sa.Column("worker", sa.String(64), nullable=False),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("outcome", sa.String(16)),
    )
    op.create_table(
        "batch_results",
        sa.Column("batch_id", ID, primary_key=True),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("good", sa.Boolean, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("figures", sa.LargeBinary),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("valid", sa.Boolean),
        sa.Column("trace_id", ID),
    )
    op.create_index("batch_files_by_caller", "batch_files", ["caller", "id"])
    op.create_index("batch_files_by_batch", "batch_files", ["batch_id"])
    op.create_index("batches_by_caller", "batches", ["caller", "id"])
    op.create_index("batches_by_state", "batches", ["state", "priority", "id"])
    op.create_index("batch_items_by_state", "batch_items", ["batch_id", "state", "line"])
    op.create_index("batch_items_by_holder", "batch_items", ["holder"])


def _create_test_runs() -> None:
    op.create_table(
        "logit_test_runs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("preset", sa.Text),
        sa.Column("strategy", sa.Text),
        sa.Column("cases", sa.Integer, nullable=False),
        sa.Column("cases_passed", sa.Integer, nullable=False),
        sa.Column("iterations", sa.Integer, nullable=False),
        sa.Column("iterations_passed", sa.Integer, nullable=False),
        sa.Column("error_count", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _create_responses() -> None:
    op.create_table(
        "responses",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _create_presets() -> None:
    op.create_table(
        "logit_presets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _create_vocab_cache() -> None:
    op.create_table(
        "vocab_cache",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("used", sa.Double, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
