"""Creates the tables of batch jobs: files, batches, items with their leases, attempts, results."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("batch_results")
    op.drop_table("batch_attempts")
    op.drop_table("batch_items")
    op.drop_table("batches")
    op.drop_table("batch_files")
