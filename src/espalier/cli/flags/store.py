"""The store of the server's settings, for commands that read, write or prune it, and Apps that know where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from espalier.cli.flags.server import read_server
from espalier.errors import Unavailable
from espalier.optional import check_extra
from espalier.wiring import App, build_app

if TYPE_CHECKING:
    from espalier.store.open import Store


@contextmanager
def opened() -> Iterator[Store]:
    """The store: DATABASE_URL of the environment or of `.env`, else the SQLite file of the user. Raises
    MissingDependency, and what `open_store` raises."""
    check_extra("server")
    _, settings = read_server({}, None)
    from espalier.store.open import open_store  # noqa: PLC0415  # the extra [server]

    store = open_store(settings.database_url)
    try:
        yield store
    finally:
        store.close()


def app_with_store() -> App:
    """An App whose logs and presets are in the same store as the server's. `.env` is read only when it is needed."""
    return build_app(database_url=_database_url)


def _database_url() -> str | None:
    from espalier.server.environment import read_environment  # noqa: PLC0415  # seldom needed

    return read_environment().values.get("DATABASE_URL", "").strip() or None


def pruned(
    pruning: Callable[..., Any], what: str, *, seconds: float | None, rows: int | None, dry_run: bool = False
) -> str:
    """Delete the rows of a table over the limits, and say how many. Raises Unavailable while a server deletes."""
    from espalier.store.retention import Limits  # noqa: PLC0415  # the extra [server]

    retention = pruning(what, Limits(seconds=seconds, rows=rows))
    noun = what.replace("_", " ")
    over: int = retention.over()
    if dry_run:
        return f"{over:,} {noun} would be deleted"
    count: int = retention.run()
    if not count and over:
        raise Unavailable("another process is deleting old rows now", hint="try again in two minutes")
    return f"{count:,} {noun} deleted"
