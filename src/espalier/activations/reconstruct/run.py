"""Joins the rows of a QA file to the logged requests of a store, and writes the inference file.

The store goes into an index on disk first (`index.py`), then the QA file is read once, row by row: memory does not grow
with either. The output is written beside its name and moved there when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.activations.foreign.entry import StoredRequest
from espalier.activations.foreign.open import open_store
from espalier.activations.foreign.store import DamagedEntry, RequestStore, SalvageLosses
from espalier.activations.reconstruct.index import Index, prompt_hash
from espalier.activations.reconstruct.qa_file import line_of, read_rows
from espalier.activations.reconstruct.report import SHOWN, ReconstructionReport, clipped
from espalier.activations.reconstruct.templates import PromptTemplate, templates_of
from espalier.errors import InputError, NothingMatched, OutputError
from espalier.files.writing import replaced

DUPLICATES = ("last", "first", "all")
MATCHES = ("hash", "request", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How entries are picked and rows are matched.

    match: `hash` (of the prompt that a template makes), `request` (a row's `request_id`), or `run` (the hash, and a
    row's `run_id`). duplicates: which entry a row gets of several, by time of logging. model: the whole name, or what
    comes after its last `/`. since, until: epoch seconds; an entry without a time is then left out.
    """

    match: str = "hash"
    duplicates: str = "last"
    model: str | None = None
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        """Raises InputError naming the field."""
        for name, value, known in (("match", self.match, MATCHES), ("duplicates", self.duplicates, DUPLICATES)):
            if value not in known:
                raise InputError(f"{name} is {value!r}", hint=f"one of {', '.join(known)}", field=name)
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InputError("since is later than until", field="since")

    def takes(self, entry: StoredRequest) -> bool:
        """Whether an entry is within the filters."""
        if self.model is not None and self.model not in (entry.model, entry.model.rpartition("/")[2]):
            return False
        if self.since is None and self.until is None:
            return True
        if entry.timestamp is None:
            return False
        return (self.since is None or entry.timestamp >= self.since) and (
            self.until is None or entry.timestamp <= self.until
        )


def reconstruct(
    qa_output_path: str | os.PathLike[str],
    lmdb_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    *,
    templates: Sequence[PromptTemplate] = (),
    rules: Rules | None = None,
    allow_empty: bool = False,
    salvage: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    step: Callable[[str, int], None] = lambda _, __: None,
) -> ReconstructionReport:
    """Write the inference file: for each row of the QA file that has an entry, its fields in their order, then
    `generation`, `model`, `input_length`, `timestamp`, and `messages` and `trim_position` where the entry has them.

    templates: tried in their order, all known ones if there are none. allow_empty: whether an output without rows is
    written. salvage: read what is left of a damaged LMDB store; the report lists each loss. tell: called with a line
    for each row, for `--verbose`. step: called with the name of the part at work and how many entries or rows it has
    read.

    Raises InputError for an input that cannot be read, NothingMatched without allow_empty, OutputError for an output
    that cannot be written. The output is then as it was before.
    """
    rules = rules or Rules()
    target = Path(output_path).expanduser()
    for given in (qa_output_path, lmdb_path):
        if _is_same(target, Path(given).expanduser()):
            raise InputError(f"the output {target} is also an input", field="output_path")
    store = open_store(lmdb_path, salvage_in=target.parent if salvage else None)
    report = ReconstructionReport(layout=store.layout)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {target.parent}: {error.strerror or error}") from error
    with (
        replaced(Path(os.path.realpath(target))) as draft,
        draft.open("x", encoding="ascii", newline="\n") as file,
        Index(target.parent) as index,
    ):
        _fill(index, store, rules, report, step)
        matcher = _Matcher(index, tuple(templates) or templates_of(()), rules)
        for line, row in read_rows(qa_output_path):
            report.rows += 1
            entries, name = matcher.entries(row, line)
            tell(f"line {line}: {len(entries)} entries{f' by {name}' if entries else ''}: {matcher.said}")
            if not entries:
                if len(report.unmatched_shown) < SHOWN:
                    report.unmatched_shown.append((line, clipped(str(row.get("prompt", "")))))
            else:
                report.matched += 1
                report.templates[name] += 1
                report.duplicates += len(entries) > 1
                report.conflicts += len({entry.model for _, entry in entries}) > 1
                for place, entry in _pick_entries(entries, rules.duplicates):
                    index.use(place)
                    file.write(line_of(_output_row(row, entry)))
                    report.written += 1
            step("rows", report.rows)
        report.lacking = matcher.lacking
        report.entries, report.used = index.counts()
        report.models = index.models()
        report.unused_shown = [clipped(prompt) for prompt in index.unused(SHOWN)]
        if not (report.written or allow_empty):
            raise NothingMatched(_nothing(report), hint=_remedy(report), field="qa_output_path")
    return report


def _fill(
    index: Index, store: RequestStore, rules: Rules, report: ReconstructionReport, step: Callable[[str, int], None]
) -> None:
    for count, entry in enumerate(store.found(), 1):
        step("entries", count)
        if isinstance(entry, SalvageLosses):
            report.salvaged, report.losses = entry.said, entry.losses
        elif isinstance(entry, DamagedEntry):
            report.damaged += 1
            if len(report.damaged_shown) < SHOWN:
                report.damaged_shown.append((entry.key, entry.reason))
        elif rules.takes(entry):
            index.add(entry)
        else:
            report.filtered += 1
    index.finish()


class _Matcher:
    """Finds the entries of a row. said: what the last row was looked for by. lacking: rows without a column that any
    template names."""

    def __init__(self, index: Index, templates: tuple[PromptTemplate, ...], rules: Rules) -> None:
        self._index, self._templates, self._rules = index, templates, rules
        self.said = ""
        self.lacking = 0

    def entries(self, row: Mapping[str, Any], line: int) -> tuple[list[tuple[int, StoredRequest]], str]:
        """Entries with their places in the order of logging, and what found them. Raises InputError for a row without
        the id that it is matched by."""
        if self._rules.match == "request":
            self.said = _read_text(row, "request_id", line)
            return self._index.by_request(self.said), "request id"
        run = _read_text(row, "run_id", line) if self._rules.match == "run" else None
        tried = []
        for template in self._templates:
            prompt = template.prompt(row)
            if prompt is None:
                continue
            try:
                digest = prompt_hash(prompt)
            except UnicodeEncodeError:  # half a surrogate pair: no model was given that
                continue
            tried.append(f"{template.name} {digest.hex()}")
            entries = self._index.by_hash(digest, run=run)
            if entries:
                self.said = tried[-1]
                return entries, template.name
        self.lacking += not tried
        self.said = "; ".join(tried)
        return [], ""


def _read_text(row: Mapping[str, Any], name: str, line: int) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise InputError(f"line {line} of the QA file has no text {name}, by which rows are matched", field="match")
    return value


def _pick_entries(entries: list[tuple[int, StoredRequest]], rule: str) -> list[tuple[int, StoredRequest]]:
    return {"first": entries[:1], "last": entries[-1:], "all": entries}[rule]


def _output_row(row: Mapping[str, Any], entry: StoredRequest) -> dict[str, Any]:
    """timestamp 0 where the store has none, as the original writes it."""
    return {
        **row,
        "generation": entry.response,
        "model": entry.model,
        "input_length": entry.input_length,
        "timestamp": 0 if entry.timestamp is None else entry.timestamp,
        **entry.optional,
    }


def _nothing(report: ReconstructionReport) -> str:
    return (
        f"none of the {report.rows:,} rows of the QA file has an entry in the store"
        f" ({report.entries:,} entries within the filters, {report.filtered:,} outside, {report.damaged:,} damaged)"
    )


def _remedy(report: ReconstructionReport) -> str:
    if report.lacking:
        return f"{report.lacking:,} rows lack the columns that the templates name"
    if report.unused_shown:
        return f"the store's first prompt begins {report.unused_shown[0]!r}; --template 'TEXT {{prompt}}' says how"
    return "--allow-empty writes an empty file"


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
