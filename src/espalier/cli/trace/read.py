"""Reads a trace: from a file of any supported format, or from a store by its id or the id of its request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from espalier.cli import output
from espalier.cli.flags.store import opened
from espalier.errors import InputError
from espalier.store.trace_filter import TraceFilter
from espalier.trace.foreign import read as foreign
from espalier.trace.records import Trace, trace_of

if TYPE_CHECKING:
    from espalier.store.open import Store

TraceArgument = Annotated[
    str,
    typer.Argument(
        help="A trace, merged file, rejection log or reply; or a stored trace's id, or the request id of a reply.",
        metavar="TRACE",
    ),
]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="Another store than the server's, such as sqlite:///espalier.db.", metavar="URL")
]
REQUEST_ID = re.compile(r"[A-Za-z0-9._:+=-]{1,128}")
"""What may be an id of a request or a trace, and no path."""


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
    """A trace; notes about it go to stderr. Raises what `foreign.read` raises, and InputError for an id that no store
    has."""
    parts = [field for field in fields(source) if field.name != "database"]
    if source.database is not None or is_stored_id(path):
        for part in parts:
            if getattr(source, part.name) != part.default and part.name != "choice":
                raise InputError(f"--{part.name} is for a file, and a store has whole traces", field=part.name)
        return stored_trace(path, source.database, choice=source.choice)
    foreign_trace = foreign.read(Path(path).expanduser(), **{flag.name: getattr(source, flag.name) for flag in parts})
    for note in foreign_trace.notes:
        output.note(f"note: {note}")
    return foreign_trace.trace


def is_stored_id(name: str) -> bool:
    """Whether a name is no file here, and may be an id."""
    return not Path(name).expanduser().exists() and REQUEST_ID.fullmatch(name) is not None and not Path(name).suffix


def stored_trace(name: str, url: str | None, *, choice: int = 0) -> Trace:
    """A trace of a store, by its id or by that of its request. url: None for the store of the server's settings.
    choice: which output of the request. Raises InputError if there is none."""
    with store_at(url) as store:
        data = store.trace(name, caller=None)
        if data is not None:
            return trace_of(data, name)
        rows = store.traces(TraceFilter(request_id=name), limit=100)
        outputs = {row["output_index"]: row["id"] for row in reversed(rows)}  # of one id used twice, the newest
        if not outputs:
            where = "there is no file and no stored trace" if url is None else "the database has no trace"
            hint = "espalier trace list" if url is None else "espalier trace list --database URL"
            raise InputError(f"{where} {name!r:.80}", hint=hint, field="trace")
        if choice not in outputs:
            known = ", ".join(map(str, sorted(outputs)))
            raise InputError(f"the request has no stored output {choice}", hint=f"--choice {known}", field="choice")
        if len(rows) > 1:
            output.note(f"{len(rows)} traces of this request; this is {outputs[choice]}: --choice N shows another")
        return trace_of(store.trace(outputs[choice], caller=None), outputs[choice])


@contextmanager
def store_at(url: str | None) -> Iterator[Store]:
    """The store of the server's settings, or an existing database; a missing one is not created. Raises InputError."""
    if url is None:
        with opened() as store:
            yield store
        return
    from espalier.store.open import open_store  # noqa: PLC0415  # sqlalchemy is of an extra

    kind, separator, path = url.partition(":///")
    if kind.partition("+")[0] == "sqlite" and separator and not Path(path.partition("?")[0]).exists():
        raise InputError(f"there is no database {path!r}", field="database")
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()
