"""Rewrites `error.field` to the field of the request body, so that a reply's `param` names what the client wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from espalier.errors import EspalierError

NO_NAMES: Mapping[str, str] = MappingProxyType({})


@contextmanager
def field_names(names: Mapping[str, str] = NO_NAMES, *, otherwise: str | None = None) -> Iterator[None]:
    """Rename the field of every EspalierError that is raised inside; see `rename`."""
    try:
        yield
    except EspalierError as error:
        rename(error, names, otherwise=otherwise)
        raise


def rename(error: EspalierError, names: Mapping[str, str], *, otherwise: str | None = None) -> None:
    """Set `error.field`. names: from the error's own field to the field of the body; the key "" is for errors without a
    field. otherwise: for fields that `names` lacks, `{field}` in it standing for the error's own; None keeps them."""
    own = error.field or ""
    if own in names:
        error.field = names[own]
    elif otherwise is not None:
        error.field = otherwise.format(field=own)
