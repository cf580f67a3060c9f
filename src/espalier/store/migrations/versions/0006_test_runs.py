"""Creates `logit_test_runs`: runs of test cases, with their sums and reports."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("logit_test_runs")
