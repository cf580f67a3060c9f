"""What the commands of `espalier trace` read: a file of any format, or a trace of a server's database by its id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from espalier.cli import output
from espalier.errors import InputError
from espalier.trace.foreign import read as foreign
from espalier.trace.records import Trace

if TYPE_CHECKING:
    from espalier.store.open import Store

TraceArgument = Annotated[
    str, typer.Argument(help="A trace, merged file, rejection log or reply; with --database an id.", metavar="TRACE")
]
Choice = Annotated[int, typer.Option(help="Of a reply with several choices, which.")]
Task = Annotated[int | None, typer.Option(help="Of a rejection log, which task.")]
Slot = Annotated[int | None, typer.Option(help="Of a rejection log, which slot.")]
Temperature = Annotated[float | None, typer.Option(help="Of a reply that does not tell its own.")]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="A server's database, such as sqlite:///espalier.db.", metavar="URL")
]


def read_trace(
    path: str,
    *,
    choice: int = 0,
    task: int | None = None,
    slot: int | None = None,
    temperature: float | None = None,
    database: str | None = None,
) -> Trace:
    """A trace, and on stderr what a person should know about it. Raises what `foreign.read` does, and InputError for an
    id that the database does not have."""
    if database is not None:
        for name, value in {"choice": choice or None, "task": task, "slot": slot, "temperature": temperature}.items():
            if value is not None:
                raise InputError(f"--{name} is for a file, and --database has whole traces", field=name)
        return stored(path, database)
    found = foreign.read(Path(path).expanduser(), choice=choice, task=task, slot=slot, temperature=temperature)
    for note in found.notes:
        output.note(f"note: {note}")
    return found.trace


def stored(trace_id: str, url: str) -> Trace:
    """Of a database. Raises InputError for one that is not there, and for an id that is not in it."""
    store = open_there(url)
    try:
        data = store.trace(trace_id, caller=None)
    finally:
        store.close()
    if data is None:
        raise InputError(f"the database has no trace {trace_id!r}", hint="espalier trace list --database URL")
    return Trace.from_json(data)


def open_there(url: str) -> Store:
    """A database that is there: looking at one makes none. Raises InputError."""
    from espalier.store.open import open_store  # noqa: PLC0415  # sqlalchemy is of an extra

    kind, found, path = url.partition(":///")
    if kind.partition("+")[0] == "sqlite" and found and not Path(path.partition("?")[0]).exists():
        raise InputError(f"there is no database {path!r}", field="database")
    return open_store(url)
