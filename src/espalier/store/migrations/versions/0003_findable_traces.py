"""Makes traces findable: what they are filtered, searched, flagged and summed by, and the feedback of clients."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")

# Beside `traces` and not over it: FTS5 needs an integer key that is never used again, and `traces` has none.
FTS5 = """CREATE VIRTUAL TABLE trace_words_search
          USING fts5(words, content='trace_words', content_rowid='number', tokenize='ascii')"""
GIN = """CREATE INDEX trace_words_search ON trace_words
         USING gin (array_to_tsvector(string_to_array(words, ' ')))"""

TRACE_COLUMNS = (
    ("level", sa.Text),
    ("prompt_tokens", sa.Integer),
    ("fingerprint", sa.Text),
    ("title", sa.Text),
    ("template", sa.Text),
    ("worst_path", sa.Text),
    ("worst_tax_nats", sa.Double),
    ("to_first_token", sa.Double),
    ("total", sa.Double),
)


def upgrade() -> None:
    for name, kind in TRACE_COLUMNS:
        op.add_column("traces", sa.Column(name, kind))
    for table in ("traces", "generation_logs"):
        op.add_column(table, sa.Column("flagged", sa.Boolean, nullable=False, server_default=sa.false()))
        op.create_index(f"{table}_by_request", table, ["request_id"])
    op.create_index("traces_by_fingerprint", "traces", ["fingerprint", "id"])
    op.create_table(
        "trace_words",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("trace_id", ID, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("trace_words_by_trace", "trace_words", ["trace_id"], unique=True)
    op.execute(FTS5 if op.get_context().dialect.name == "sqlite" else GIN)
    op.create_table(
        "feedback",
        sa.Column("caller", sa.String(64), primary_key=True),
        sa.Column("request_id", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("score", sa.Double),
        sa.Column("text", sa.Text),
        sa.Column("flag", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("feedback")
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE trace_words_search")
    op.drop_table("trace_words")
    op.drop_index("traces_by_fingerprint", "traces")
    for table in ("traces", "generation_logs"):
        op.drop_index(f"{table}_by_request", table)
        op.drop_column(table, "flagged")
    for name, _ in reversed(TRACE_COLUMNS):
        op.drop_column("traces", name)
