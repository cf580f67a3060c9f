"""The tables of the sums. A row is of one caller, one constraint and one hour; the empty fingerprint is free text."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, String, Table, Text

from espalier.store.tables import METADATA


def _key(name: str, length: int = 0) -> Column[str]:
    return Column(name, String(length) if length else Text(), primary_key=True)


def _whole(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _number(name: str) -> Column[float]:
    return Column(name, Double, nullable=False)


CONSTRAINTS = Table(
    "cost_constraints",
    METADATA,
    _key("caller", 64),
    _key("fingerprint", 64),
    Column("kind", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("spec", Text),  # the constraint as JSON, where texts are kept
    Column("first_seen", Double, nullable=False),  # Unix seconds
)

COST_SUMS = Table(
    "cost_sums",
    METADATA,
    _key("caller", 64),
    _key("fingerprint", 64),
    _key("model"),
    _key("template", 64),  # a hash of the prompt without the last text of a person; empty where it is not known
    Column("hour", BigInteger, primary_key=True),  # Unix seconds of its beginning
    _whole("answers"),
    _whole("tokens"),
    _whole("invalid"),
    _whole("cut"),  # ended by the limit of tokens
    _whole("measured"),  # answers whose tax is known
    _whole("measured_tokens"),
    _number("tax"),  # nats
    _number("tax_squares"),  # of the answers' tax
    _number("removed"),  # mass, over the steps
    _whole("changed"),  # steps at which the favourite was not allowed
    _whole("forced"),  # steps without a draw
    _whole("drafted"),  # tokens that a draft proposed and the model took
    _whole("timed"),  # answers whose time is known
    _whole("timed_tokens"),
    _number("seconds"),
    Index("cost_sums_by_hour", "hour"),
)
SUMMED = [column.name for column in COST_SUMS.c if not column.primary_key]

TAX_BINS = Table(
    "tax_bins",
    METADATA,
    _key("caller", 64),
    _key("fingerprint", 64),
    _key("measure", 8),  # `answer`: its tax; `token`: its tax for each token
    Column("bin", Integer, primary_key=True),  # see `bins.py`
    Column("hour", BigInteger, primary_key=True),
    _whole("answers"),
    Index("tax_bins_by_hour", "hour", "caller", "fingerprint", "measure", "bin", "answers"),
)

PATH_SUMS = Table(
    "path_sums",
    METADATA,
    _key("caller", 64),
    _key("fingerprint", 64),
    _key("path"),  # without indices; the document's own keys and brackets are "/", rules of a grammar have their name
    Column("hour", BigInteger, primary_key=True),
    _whole("answers"),
    _whole("tokens"),
    _number("tax"),
    _number("tax_squares"),
    _number("removed"),
)

WANTED = Table(
    "wanted_tokens",
    METADATA,
    _key("caller", 64),
    _key("fingerprint", 64),
    _key("path"),
    _key("wanted"),  # the token that the model would have taken
    _key("taken"),  # the token that it took, where that was not allowed
    Column("day", BigInteger, primary_key=True),
    _whole("times"),
    _number("tax"),
)
