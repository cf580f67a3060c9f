"""`espalier trace list`: lists the traces of the store, or of a folder.

Rows of the store come from the query that also serves `GET /traces` and its page. Texts come from models and clients:
control characters are shown as escapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from espalier.cli import output
from espalier.cli.trace.read import store_at
from espalier.cli.trace.show import printable
from espalier.columns import WIDTH, clip, shown
from espalier.errors import EspalierError, InputError
from espalier.store.trace_filter import TraceFilter
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


def stored_rows(url: str | None, wanted: Mapping[str, Any], *, limit: int) -> list[dict[str, Any]]:
    """At most `limit` rows of the store, newest first, as `GET /traces` has them. url: None for the store of the
    server's settings. wanted: fields of a TraceFilter. Raises InputError if the database does not exist, and for a
    wrong filter."""
    return list(_read_stored(url, wanted, limit))


def _read_stored(url: str | None, wanted: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
    after = wanted.get("after")
    with store_at(url) as store:
        while limit > 0:
            size = min(limit, PAGE)
            page = store.traces(TraceFilter(**{**wanted, "after": after}), limit=size)
            yield from map(dict, page)
            if len(page) < size:
                return
            limit -= len(page)
            after = page[-1]["id"]


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """The rows of the store for people, in 80 columns: numbers, then prompt and output where these are kept."""
    lines = [f"{'when':<11} {'model':<10} {'constraint':<15} {'verdict':<8}{'tokens':>6}{'tax':>8}  worst path"]
    for row in rows:
        when = time.strftime("%m-%d %H:%M", time.localtime(row["created"]))
        model = clip(shown(_ending(row["model"], 10)), 10)
        title = clip(shown(row["title"] or row["constraint_kind"] or "-"), 15)
        tax = "∞" if row["tax_nats"] is None else f"{'≥' if row['bounded_steps'] else ''}{row['tax_nats']:.2f}"
        line = f"{when} {model:<10} {title:<15} {_verdict(row):<8}{row['tokens']:>6}{tax:>8}  "
        lines.append(clip(f"{line}{shown(row['worst_path'] or '-')}", WIDTH))
        lines.append(clip(f"  {row['id']}  {shown(row['request_id'])}", WIDTH))
        for mark, text in ((">", row["prompt"]), ("<", row["text"])):
            if text:
                lines.append(clip(f"  {mark} {shown(text)}", WIDTH))
    return lines


def _verdict(row: Mapping[str, Any]) -> str:
    if row["valid"] is not None:
        word = "valid" if row["valid"] else "invalid"
        return "flagged" if row["flagged"] and row["valid"] else word
    return "flagged" if row["flagged"] else "-"


NAME_WIDTH, MODEL_WIDTH = 24, 24
"""Characters: at least of a file's name, and at most of a model's."""


def _ending(name: str, width: int = MODEL_WIDTH) -> str:
    """The end of a long name, which tells models in one folder apart."""
    return name if len(name) <= width else "…" + name[1 - width :]


def draw(rows: list[dict[str, Any]], to: Console) -> None:
    """Print rows of a folder as a table; names are never cut."""
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
