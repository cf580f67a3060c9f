"""Creates `traces`: one row each, with the steps packed into one column."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "traces",
        sa.Column(
            "id", sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql"), primary_key=True
        ),
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
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("traces_by_caller", "traces", ["caller", "id"])


def downgrade() -> None:
    op.drop_table("traces")
