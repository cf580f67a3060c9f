"""Creates `responses`: replies of `/v1/responses` with the items that they answer."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"

ID = sa.String(40).with_variant(postgresql.VARCHAR(40, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("id", ID, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("responses")
