"""The table of the sources of drafts, `SOURCES`, by the names under which requests ask for them."""

from __future__ import annotations

from collections.abc import Iterable

from espalier.decoding.drafts import forced, grammar, lookup, model
from espalier.decoding.drafts.source import FORCED, GRAMMAR, LOOKUP, MODEL, DraftSource
from espalier.errors import InputError, UnknownName
from espalier.registry import Registry

SOURCES = Registry(
    "drafts",
    {FORCED: forced.FORCED, GRAMMAR: grammar.GRAMMAR, LOOKUP: lookup.LOOKUP, MODEL: model.MODEL},
    holds=DraftSource,
)


def check_sources(names: Iterable[str], *, field: str = "drafts") -> None:
    """Raises InputError, naming the field, for a source that does not exist."""
    for name in names:
        try:
            SOURCES.require(name)
        except UnknownName as error:
            raise InputError(f"{field}: there is no source {name!r}", hint=error.hint, field=field) from error
