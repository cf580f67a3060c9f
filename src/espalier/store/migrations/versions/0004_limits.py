"""Creates `rates` and `slots`: the token bucket of each API key, and the slots of running requests."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "rates",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("full_at", sa.Double, nullable=False),
    )
    op.create_table(
        "slots",
        sa.Column("holder", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("held", sa.Integer, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_index("slots_by_name", "slots", ["name"])


def downgrade() -> None:
    op.drop_table("slots")
    op.drop_table("rates")
