"""Adds the beginnings of prompt and output to the list of traces."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("traces", sa.Column("prompt", sa.Text))
    op.add_column("traces", sa.Column("text", sa.Text))


def downgrade() -> None:
    op.drop_column("traces", "text")
    op.drop_column("traces", "prompt")
