"""`traces` gets `bounded_steps`: at how many steps the removed mass has only bounds. Null in older rows."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        op.add_column("traces", sa.Column("bounded_steps", sa.Integer))
        return
    # SQLite reads a row from its start: before `body`, so that lists need not read past it.
    with op.batch_alter_table("traces", recreate="always") as table:
        table.add_column(sa.Column("bounded_steps", sa.Integer), insert_before="body")


def downgrade() -> None:
    op.drop_column("traces", "bounded_steps")
