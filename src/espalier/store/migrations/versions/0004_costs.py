"""Adds the sums of what constraints cost: by constraint, path and hour."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

WHOLE = ("answers", "tokens", "invalid", "cut", "measured", "measured_tokens")
REAL = ("tax", "tax_squares", "removed")
TABLES: tuple[str, ...] = ("cost_constraints", "cost_sums", "tax_bins", "path_sums", "wanted_tokens")


def _key(name: str, length: int = 0) -> sa.Column[str]:
    return sa.Column(name, sa.String(length) if length else sa.Text(), primary_key=True)


def _moment(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=True)


def _whole(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _real(*names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double, nullable=False) for name in names]


def _owner() -> tuple[sa.Column[str], sa.Column[str]]:
    return _key("caller", 64), _key("fingerprint", 64)


def upgrade() -> None:
    op.create_table(
        "cost_constraints",
        *_owner(),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("spec", sa.Text),
        sa.Column("first_seen", sa.Double, nullable=False),
    )
    op.create_table(
        "cost_sums",
        *_owner(),
        _key("model"),
        _key("template", 64),
        _moment("hour"),
        *_whole(*WHOLE),
        *_real(*REAL),
        *_whole("changed", "forced", "drafted", "timed", "timed_tokens"),
        *_real("seconds"),
    )
    op.create_index("cost_sums_by_hour", "cost_sums", ["hour"])
    op.create_table(
        "tax_bins",
        *_owner(),
        _key("measure", 8),
        sa.Column("bin", sa.Integer, primary_key=True),
        _moment("hour"),
        *_whole("answers"),
    )
    columns = ["hour", "caller", "fingerprint", "measure", "bin", "answers"]
    op.create_index("tax_bins_by_hour", "tax_bins", columns)
    op.create_table("path_sums", *_owner(), _key("path"), _moment("hour"), *_whole("answers", "tokens"), *_real(*REAL))
    op.create_table(
        "wanted_tokens",
        *_owner(),
        _key("path"),
        _key("wanted"),
        _key("taken"),
        _moment("day"),
        *_whole("times"),
        *_real("tax"),
    )


def downgrade() -> None:
    op.drop_index("cost_sums_by_hour", "cost_sums")
    op.drop_index("tax_bins_by_hour", "tax_bins")
    for name in reversed(TABLES):
        op.drop_table(name)
