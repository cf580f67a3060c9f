"""`generations` becomes `generation_logs`: with the request, its cost, its trace, and a full-text index of words."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")

KEPT = (
    "id, created, request_id, caller, route, model, constraint_kind, streamed, prompt_tokens, completion_tokens, "
    "queued, to_first_token, total, finish_reason, valid, error, content"
)

# No triggers: a schema that is not trusted (PRAGMA trusted_schema=OFF) may not use virtual tables in them.
FTS5 = """CREATE VIRTUAL TABLE generation_logs_search
          USING fts5(words, content='generation_logs', content_rowid='number', tokenize='ascii')"""
GIN = """CREATE INDEX generation_logs_search ON generation_logs
         USING gin (array_to_tsvector(string_to_array(words, ' ')))"""


def upgrade() -> None:
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
    # An older row has no texts to find it by: none but callers of the store's functions could give it content.
    op.execute(f"INSERT INTO generation_logs ({KEPT}, words) SELECT {KEPT}, '' FROM generations ORDER BY id")
    op.drop_table("generations")


def downgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("route", sa.Text),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("constraint_kind", sa.Text),
        sa.Column("streamed", sa.Boolean),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("queued", sa.Double),
        sa.Column("to_first_token", sa.Double),
        sa.Column("total", sa.Double),
        sa.Column("finish_reason", sa.Text),
        sa.Column("valid", sa.Boolean),
        sa.Column("error", sa.Text),
        sa.Column("content", sa.LargeBinary),
    )
    op.create_index("generations_by_caller", "generations", ["caller", "id"])
    op.execute(f"INSERT INTO generations ({KEPT}) SELECT {KEPT} FROM generation_logs ORDER BY id")
    if op.get_context().dialect.name == "sqlite":
        op.execute("DROP TABLE generation_logs_search")
    op.drop_table("generation_logs")
