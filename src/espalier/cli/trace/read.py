"""Reads a trace: from a file of any supported format, or from a server's database by its id."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from espalier.cli import output
from espalier.errors import InputError
from espalier.trace.foreign import read as foreign
from espalier.trace.records import Trace, trace_of

if TYPE_CHECKING:
    from espalier.store.open import Store

TraceArgument = Annotated[
    str, typer.Argument(help="A trace, merged file, rejection log or reply; with --database an id.", metavar="TRACE")
]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="A server's database, such as sqlite:///espalier.db.", metavar="URL")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlags:
    """Where to read a trace from, and which part of a file."""

    choice: Annotated[int, typer.Option(help="Reply: index of the choice.")] = 0
    task: Annotated[int | None, typer.Option(help="Rejection log: id of the task.")] = None
    slot: Annotated[int | None, typer.Option(help="Rejection log: id of the slot.")] = None
    request: Annotated[str | None, typer.Option(help="Rejection log: the request_id.")] = None
    temperature: Annotated[float | None, typer.Option(help="Reply: its temperature, if it does not say.")] = None
    database: DatabaseUrl = None


def read_trace(path: str, source: SourceFlags) -> Trace:
    """A trace; notes about it go to stderr. Raises what `foreign.read` raises, and InputError for an id that the
    database does not have."""
    parts = [field for field in fields(source) if field.name != "database"]
    if source.database is not None:
        for part in parts:
            if getattr(source, part.name) != part.default:
                raise InputError(f"--{part.name} is for a file, and --database has whole traces", field=part.name)
        return stored(path, source.database)
    foreign_trace = foreign.read(Path(path).expanduser(), **{flag.name: getattr(source, flag.name) for flag in parts})
    for note in foreign_trace.notes:
        output.note(f"note: {note}")
    return foreign_trace.trace


def stored(trace_id: str, url: str) -> Trace:
    """A trace of a database. Raises InputError if the database or the id does not exist."""
    store = open_there(url)
    try:
        data = store.trace(trace_id, caller=None)
    finally:
        store.close()
    if data is None:
        raise InputError(f"the database has no trace {trace_id!r}", hint="espalier trace list --database URL")
    return trace_of(data, trace_id)


def open_there(url: str) -> Store:
    """Open an existing database; a missing one is not created. Raises InputError."""
    from espalier.store.open import open_store  # noqa: PLC0415  # sqlalchemy is of an extra

    kind, separator, path = url.partition(":///")
    if kind.partition("+")[0] == "sqlite" and separator and not Path(path.partition("?")[0]).exists():
        raise InputError(f"there is no database {path!r}", field="database")
    return open_store(url)
