"""Reads the results of a batch, line by line in the order of the input, in pages: never all at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import and_, func, or_, select

from espalier.jobs.output import never_run, with_custom_id, wordlist_entry
from espalier.jobs.states import ItemState
from espalier.store.batches.tables import ITEMS, RESULTS
from espalier.store.db import Database
from espalier.store.packing import as_bytes, unpack

PAGE = 200
Wanted = Literal["output", "error", "all"]
ENDED = {ItemState.CANCELLED: "batch_cancelled", ItemState.EXPIRED: "batch_expired"}


class Results:
    """Results of all batches. Every method blocks; an iterator holds no transaction between its pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def lines(self, batch_id: str, wanted: Wanted) -> Iterator[bytes]:
        """Lines of JSON with their ends. output: of items that were answered. error: of all that were not, those that
        never ran included. all: both."""
        for row in self._rows(batch_id, wanted):
            yield as_bytes(with_custom_id(_line(row), row["custom_id"]), what="result") + b"\n"

    def wordlist_list(self, batch_id: str, given_ids: bool) -> Iterator[bytes]:
        """The word-list server's results: a JSON list, indented by 2, in pieces. given_ids: whether items show the
        `custom_id` of the input."""
        before = b"[\n"
        for row in self._rows(batch_id, "all"):
            custom_id = row["custom_id"].partition(":")[2] if given_ids else ""
            entry = wordlist_entry(batch_id, row["line"] - 1, _line(row), custom_id or None)
            text = "\n".join(f"  {line}" for line in json.dumps(entry, indent=2).split("\n"))
            yield before + text.encode("ascii")
            before = b",\n"
        yield b"\n]" if before == b",\n" else b"[]"

    def figures(self, batch_id: str) -> Iterator[Mapping[str, Any]]:
        """What the report sums: `line`, `custom_id`, `good`, `valid`, token counts, `trace_id` and `figures`."""
        for row in self._rows(batch_id, "all", with_figures=True):
            if row["answer"] is None:
                yield {"line": row["line"], "custom_id": row["custom_id"], "state": row["state"], "good": None}
                continue
            what = f"item {row['line']} of {batch_id}"
            figures = {} if row["figures"] is None else unpack(row["figures"], what=what)
            names = ("line", "custom_id", "state", "good", "valid", "prompt_tokens", "completion_tokens", "trace_id")
            error = None if row["good"] else _error(_line(row))
            yield {name: row[name] for name in names} | {"figures": figures, "error": error}

    def size(self, batch_id: str, wanted: Wanted) -> int:
        """Bytes of `lines`."""
        return sum(map(len, self.lines(batch_id, wanted)))

    def usage(self, batch_id: str) -> Mapping[str, int]:
        """Tokens of all results, as OpenAI names them, and the verdicts."""
        query = select(
            func.coalesce(func.sum(RESULTS.c.prompt_tokens), 0), func.coalesce(func.sum(RESULTS.c.completion_tokens), 0)
        ).where(RESULTS.c.batch_id == batch_id)
        with self._database.reading() as connection:
            prompt, completion = map(int, connection.execute(query).one())
        return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}

    def _rows(self, batch_id: str, wanted: Wanted, *, with_figures: bool = False) -> Iterator[Mapping[str, Any]]:
        columns = [
            ITEMS.c.line,
            ITEMS.c.custom_id,
            ITEMS.c.state,
            RESULTS.c.good,
            RESULTS.c.answer,
            RESULTS.c.valid,
            RESULTS.c.prompt_tokens,
            RESULTS.c.completion_tokens,
            RESULTS.c.trace_id,
        ]
        if with_figures:
            columns.append(RESULTS.c.figures)
        same = and_(RESULTS.c.batch_id == ITEMS.c.batch_id, RESULTS.c.line == ITEMS.c.line)
        is_wanted: dict[str, Any] = {
            "output": RESULTS.c.good.is_(True),
            "error": or_(RESULTS.c.good.is_(False), ITEMS.c.state.in_(list(ENDED))),
            "all": or_(RESULTS.c.good.is_not(None), ITEMS.c.state.in_(list(ENDED))),
        }
        query = (
            select(ITEMS.c.batch_id, *columns)
            .join(RESULTS, same, isouter=True)
            .where(ITEMS.c.batch_id == batch_id)
            .where(is_wanted[wanted])
            .order_by(ITEMS.c.line)
            .limit(PAGE)
        )
        last = 0
        while True:
            with self._database.reading() as connection:
                page: Sequence[Any] = connection.execute(query.where(ITEMS.c.line > last)).mappings().all()
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1]["line"]


def _line(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row["answer"] is None:
        return never_run(row["batch_id"], row["line"], ENDED[row["state"]])
    return unpack(row["answer"], what=f"item {row['line']} of {row['batch_id']}")


def _error(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Code and message of a result that is an error."""
    error = line["error"] or (line["response"]["body"] or {}).get("error") or {}
    return {name: error.get(name) for name in ("code", "message", "param")}
