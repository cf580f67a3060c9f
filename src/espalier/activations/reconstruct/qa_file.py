"""Reads the rows of a QA file and writes those of an inference file: JSON Lines, as HalluLens has them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from espalier.errors import InputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import MIB, QA_FILE
from espalier.files.reading import open_file

MAX_LINE = 64 * MIB


def read_rows(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its line, from 1. Blank lines are passed over. Raises InputError naming the line, TooLarge."""
    with open_file(path, QA_FILE) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            place = f"{os.fspath(path)}, line {number}"
            if len(line) > MAX_LINE:
                raise TooLarge(f"{place} has more than {MAX_LINE:,} bytes", field="qa_output_path")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            check_shape(line, QA_FILE, place)
            try:
                row = json.loads(line, parse_constant=_refuse)
            except ValueError as error:
                raise InputError(
                    f"{place} is no JSON: {error}",
                    hint="a QA file has one JSON object on each line",
                    field="qa_output_path",
                ) from error
            if not isinstance(row, dict):
                raise InputError(f"{place} is not an object", field="qa_output_path")
            yield number, row


def line_of(row: dict[str, Any]) -> str:
    """One line of the output: `", "` and `": "` between, everything beyond ASCII escaped."""
    return json.dumps(row) + "\n"


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
