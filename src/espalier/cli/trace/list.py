"""`espalier trace list`: lists the traces of a folder, or of a server's database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from espalier.cli import output
from espalier.cli.trace.read import open_there
from espalier.cli.trace.show import printable
from espalier.errors import EspalierError, InputError
from espalier.trace.foreign.matching import MatchError
from espalier.trace.foreign.read import KIND_NAMES, FormatError, read

SUFFIXES = (".json", ".txt", ".sse", ".log")
PAGE = 100
"""Rows of one query."""


def rows_of_folder(folder: str) -> list[dict[str, Any]]:
    """A row for each file that describes a generation, by name; damaged files are named on stderr. Raises InputError if
    the folder does not exist."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"{folder} is not a folder", field="folder")
    rows, others = [], 0
    for file in sorted(path.iterdir()):
        if file.suffix.lower() not in SUFFIXES or not file.is_file():
            continue
        try:
            rows.append(_row(file))
        except FormatError:
            others += 1
        except EspalierError as error:
            others += 1
            output.note(f"{file.name}: {error.message}")
    if others:
        output.note(f"{others} other files")
    return rows


def _row(path: Path) -> dict[str, Any]:
    try:
        trace, kind, _ = read(path)
    except MatchError as error:
        return _values(path.name, kind=f"{KIND_NAMES['log']}: {error.message.partition(':')[0].removeprefix('the ')}")
    sums = trace.summary()
    return _values(
        path.name,
        kind=KIND_NAMES[kind],
        model=trace.model,
        steps=sums["total_steps"],
        tax_nats=sums["total_tax_nats"],
        rejected_steps=sums["rejected_steps"],
        unknown_steps=sums["unknown_steps"],
        finish_reason=trace.finish_reason,
        bounded=kind != "trace" or any(step.bounds is not None for step in trace.steps),
    )


def _values(name: str, **values: Any) -> dict[str, Any]:
    sums = dict.fromkeys(("steps", "tax_nats", "rejected_steps", "unknown_steps"))
    return {"name": name, "kind": "", "model": "", **sums, "finish_reason": "", "bounded": False, **values}


def rows_of_database(url: str, *, limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows, newest first. Raises InputError if the database does not exist."""
    return list(_read_stored(url, limit))


def _read_stored(url: str, limit: int) -> Iterator[dict[str, Any]]:
    store = open_there(url)
    after: str | None = None
    try:
        while limit > 0:
            page = store.traces(caller=None, limit=min(limit, PAGE), after=after)
            for row in page:
                yield _values(
                    row["id"],
                    kind=KIND_NAMES["trace"],
                    model=row["model"],
                    steps=row["tokens"],
                    tax_nats=row["tax_nats"],
                    rejected_steps=row["rejected_steps"],
                    unknown_steps=row["unknown_steps"],
                    finish_reason=row["finish_reason"],
                    bounded=bool(row["bounded_steps"]),
                )
            if len(page) < min(limit, PAGE):
                return
            limit -= len(page)
            after = page[-1]["id"]
    finally:
        store.close()


NAME_WIDTH, MODEL_WIDTH = 24, 24
"""Characters: at least of a file's name, and at most of a model's."""


def _ending(name: str) -> str:
    """The end of a long name, which tells models in one folder apart."""
    return name if len(name) <= MODEL_WIDTH else "…" + name[1 - MODEL_WIDTH :]


def draw(rows: list[dict[str, Any]], to: Console) -> None:
    """Print rows as a table; names are never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", overflow="fold", min_width=NAME_WIDTH)
    table.add_column("kind", overflow="fold")
    table.add_column("model", no_wrap=True, overflow="ellipsis")
    for name in ("steps", "tax", "rejected"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finish", no_wrap=True)
    for row in rows:
        tax = "" if row["tax_nats"] is None else f"{'≥ ' if row['bounded'] else ''}{row['tax_nats']:.2f}"
        table.add_row(
            printable(row["name"], newline="\\n"),
            row["kind"],
            printable(_ending(str(row["model"])), newline="\\n"),
            "" if row["steps"] is None else str(row["steps"]),
            tax,
            "" if row["rejected_steps"] is None else f"{row['rejected_steps']}{' ?' if row['unknown_steps'] else ''}",
            printable(str(row["finish_reason"]), newline="\\n"),
        )
    to.print(table)
