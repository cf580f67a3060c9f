"""Strict JSON text, and writing files whole or not at all. It does not know what the files contain."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from espalier.errors import OutputError
from espalier.files.writing import replaced


def json_text(data: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Strict JSON with a final newline, on one line unless there is an indent. Infinities and NaN become null."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(as_json(data), ensure_ascii=False, separators=separators, allow_nan=False, indent=indent) + "\n"


def as_json(value: Any) -> Any:
    """The value as dicts, lists and finite numbers: JSON has no infinities, so they become null."""
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8, whole or not at all. A lone surrogate (half a character, from a JSON escape) has no UTF-8 and is
    written as \\udXXX, which is JSON again. Raises OutputError as `write_bytes`."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file in one move. Raises OutputError naming the path; the old file is then untouched."""
    try:
        target = Path(os.path.realpath(path))  # follow a symbolic link instead of replacing it
    except ValueError as error:  # a NUL in the name
        raise OutputError(f"cannot write {os.fspath(path)!r}: {error}") from error
    with replaced(target) as draft:
        draft.write_bytes(content)
