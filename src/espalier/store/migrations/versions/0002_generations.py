"""Creates `generations`: one row each, with texts only if they are kept."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column(
            "id", sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql"), primary_key=True
        ),
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


def downgrade() -> None:
    op.drop_table("generations")
