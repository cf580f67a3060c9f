"""Creates `vocab_cache`: vocabularies of tokenizers by their fingerprint, as JSON."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "vocab_cache",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("used", sa.Double, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("vocab_cache")
