"""Creates `leases`: which process does a task that only one process may do."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    leases = op.create_table(
        "leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.bulk_insert(leases, [{"name": "retention", "holder": "", "until": 0.0}])


def downgrade() -> None:
    op.drop_table("leases")
