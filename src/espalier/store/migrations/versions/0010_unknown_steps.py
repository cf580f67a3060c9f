"""`traces` gets `unknown_steps`: of how many steps it is not known whether a token was rejected. Null in older rows."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        op.add_column("traces", sa.Column("unknown_steps", sa.Integer))
        return
    # SQLite reads a row from its start: before `body`, so that lists need not read past it.
    with op.batch_alter_table("traces", recreate="always") as table:
        table.add_column(sa.Column("unknown_steps", sa.Integer), insert_before="body")


def downgrade() -> None:
    op.drop_column("traces", "unknown_steps")
