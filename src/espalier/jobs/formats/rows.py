"""Reads and writes tables row by row: JSON Lines, CSV, Parquet, by the name of the file. A row is a dict.

Limits count what is read of a file, not the file: a Parquet file of 600 bytes can hold gigabytes of one text. Parquet
needs the extra `parquet`.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from espalier.errors import InputError, OutputError, TooLarge
from espalier.files.limits import BATCH
from espalier.files.writing import replaced
from espalier.jobs.intake import LINE_BYTES, Refused, parse
from espalier.optional import optional_imports
from espalier.trace.files import as_json

Row = dict[str, Any]
FORMATS = (".jsonl", ".csv", ".parquet")
GOES_ON = "the same command goes on from here"
"""The hint for an output that cannot be written."""
ROWS = 500
"""The size of one row group of a Parquet file that is written, and the most that is read of one at once."""
DECODED_BYTES = 256 * 2**20
"""How much Parquet rows that are read at once may take: each may hold the longest text of its row group."""


def format_of(path: str | os.PathLike[str]) -> str:
    """The suffix that says how the file is written. Raises InputError for another one."""
    suffix = Path(path).suffix.lower()
    if suffix in (".json", ".ndjson"):
        suffix = ".jsonl"
    if suffix not in FORMATS:
        raise InputError(
            f"the format of {os.fspath(path)!r} is not known", hint=f"name it {', '.join(FORMATS)}", field="input"
        )
    return suffix


def read_rows(path: str | os.PathLike[str], *, most: int = BATCH.bytes) -> Iterator[Row]:
    """The rows of a table, in flat memory. most: bytes of all values together. Raises InputError, with the line, for
    what cannot be read, TooLarge."""
    kind = format_of(path)
    size = 0
    try:
        rows = {".jsonl": _json_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}[kind](Path(path))
        for number, row in enumerate(rows, 1):
            size_of_row = _size(row)
            size += size_of_row
            if size_of_row > LINE_BYTES:
                raise TooLarge(f"row {number} has over {LINE_BYTES:,} bytes", field="input")
            if size > most:
                raise TooLarge(
                    f"the rows of {Path(path).name!r} have over {most:,} bytes, at row {number}",
                    hint="split the file",
                    field="input",
                )
            yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {os.fspath(path)!r}: {error}", field="input") from error


def _json_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number in itertools.count(1):
            raw = file.readline(LINE_BYTES + 1)
            if not raw:
                return
            if len(raw) > LINE_BYTES:
                raise InputError(f"line {number} has over {LINE_BYTES:,} bytes", field="input")
            if not raw.strip():
                continue
            try:
                row = parse(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, line=number)
            except Refused as error:
                raise InputError(f"line {number}: {error.message}", field="input") from error
            if not isinstance(row, dict):
                raise InputError(f"line {number} is no JSON object", field="input")
            yield row


def _size(value: Any) -> int:
    """About how many bytes a value takes as JSON."""
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, dict):
        return sum(len(str(name)) + 4 + _size(member) for name, member in value.items())
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 8


def _lines(file: IO[str]) -> Iterator[str]:
    """The lines of a text file. Raises TooLarge for one that is too long to be read."""
    for number in itertools.count(1):
        line = file.readline(LINE_BYTES + 1)
        if len(line) > LINE_BYTES:
            raise TooLarge(f"line {number} has over {LINE_BYTES:,} characters", field="input")
        if not line:
            return
        yield line


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))  # its own limit is 128 KiB
        reader = csv.reader(_lines(file), strict=True)
        names: list[str] | None = None
        for row in _read_checked(reader):
            if not row:  # a blank line
                continue
            if names is None:
                names = row
                twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
                if twice is not None:
                    raise InputError(f"two columns have the name {twice[:60]!r}", hint="rename one", field="input")
            elif len(row) != len(names):
                raise InputError(
                    f"line {reader.line_num} has another number of columns than the first line", field="input"
                )
            else:
                yield dict(zip(names, row, strict=True))


def _read_checked(reader: Any) -> Iterator[list[str]]:
    """The rows of a reader of CSV, whose errors name the line."""
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}", field="input") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            groups = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
            # The most that one row can take, as the file states it: each column's longest value is in it. Columns are
            # not asked: pyarrow ends the process at statistics of a column that are damaged.
            widest = max((group.total_byte_size for group in groups), default=0)
            if widest > DECODED_BYTES:
                raise TooLarge(
                    f"a row group of {path.name!r} has over {DECODED_BYTES:,} bytes",
                    hint="write it with smaller row groups",
                    field="input",
                )
            at_once = max(1, min(ROWS, DECODED_BYTES // max(1, widest)))
            for batch in file.iter_batches(batch_size=at_once):
                yield from batch.to_pylist()
    except (arrow.ArrowException, ValueError, OverflowError, OSError) as error:  # overflow: a date after the year 9999
        raise InputError(f"cannot read {os.fspath(path)!r}: {error}", field="input") from error


def json_text(value: Any, *, is_ascii: bool = True) -> str:
    """A value of a table as JSON. A table holds what JSON lacks: dates, times and decimals are written as texts, bytes
    as the text that they are in UTF-8, infinities and NaN as null."""
    return json.dumps(as_json(value), ensure_ascii=is_ascii, allow_nan=False, default=_text)


def cell_text(value: Any) -> str:
    """A value of a table as text: a text, a date and bytes as they are, all else as JSON."""
    is_json = value is None or isinstance(value, bool | int | float | list | dict)
    return json_text(value, is_ascii=False) if is_json else _text(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def write_rows(path: Path, rows: Iterator[Row]) -> None:
    """Write a table; the file is whole or not there. Columns of CSV and Parquet are those of the first row. Raises
    OutputError."""
    kind = format_of(path)
    with replaced(path, hint=GOES_ON) as temporary:
        {".jsonl": _write_json, ".csv": _write_csv, ".parquet": _write_parquet}[kind](temporary, rows)


def _write_json(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w", encoding="ascii") as file:
        for row in rows:
            file.write(json_text(row) + "\n")


def _write_csv(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="", errors="replace") as file:
        _each(file, rows)


def _each(file: IO[str], rows: Iterator[Row]) -> None:
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
        writer.writerow(
            {name: _text(value) if isinstance(value, bytes) else _cell(value) for name, value in row.items()}
        )


def _cell(value: Any) -> Any:
    return json_text(value, is_ascii=False) if isinstance(value, dict | list) else value


def _write_parquet(path: Path, rows: Iterator[Row]) -> None:
    arrow, parquet = _pyarrow()
    writer: Any = None
    try:
        while chunk := list(itertools.islice(rows, ROWS)):
            table = _table(arrow, chunk) if writer is None else arrow.Table.from_pylist(_cells(chunk), writer.schema)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    except (ValueError, TypeError) as error:
        raise OutputError(f"cannot write {path.name!r} as Parquet: {error}", hint="write CSV or JSON Lines") from error
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(arrow.table({}), path)


def _table(arrow: Any, rows: list[Row]) -> Any:
    """The first rows. A column without any value is one of texts, as later rows may have one."""
    table = arrow.Table.from_pylist(_cells(rows))
    texts, is_null = arrow.string(), arrow.types.is_null
    fields = [column.with_type(texts) if is_null(column.type) else column for column in table.schema]
    return table.cast(arrow.schema(fields))


def _cells(rows: list[Row]) -> list[Row]:
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _pyarrow() -> tuple[Any, Any]:
    with optional_imports("parquet"):
        import pyarrow as pa  # noqa: PLC0415  # the extra [parquet]
        from pyarrow import parquet  # noqa: PLC0415
    return pa, parquet
