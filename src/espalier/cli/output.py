"""Where the CLI writes: data on stdout, everything else on stderr. Colour only on a terminal without NO_COLOR."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from espalier.errors import EspalierError, InputError, OutputError


def console() -> Console:
    """A console on stderr; rich itself honours NO_COLOR and terminals without colour."""
    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line for people."""
    lines = console()
    # NO_COLOR asks for plain text; rich would still write "dim".
    lines.print(text, style=None if lines.no_color else "dim", markup=False, soft_wrap=True)


def fail(error: EspalierError) -> int:
    """Print an error as one line, and its hint as another. Returns the exit code."""
    lines = console()
    lines.print(f"error: {error.message}", style="red", markup=False, soft_wrap=True)
    if error.hint:
        lines.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
    return error.exit_code


def data(text: str) -> None:
    """Write to stdout, ending the line. Raises OutputError where there is none."""
    if sys.stdout is None:  # closed by the caller
        raise OutputError("there is no standard output")
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Raises InputError for a file that is there, OutputError for one that cannot be written."""
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{path} is there already", hint="--force overwrites it", field="output") from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def piece(text: str) -> None:
    """Write a piece of streamed text to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def aside(text: str) -> None:
    """Write a piece of streamed text to stderr."""
    lines = console()
    lines.print(text, style=None if lines.no_color else "dim", markup=False, soft_wrap=True, end="")


def data_json(value: Any) -> None:
    data(json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    """JSON has no infinities (a model may write 1e999): they are null here, and the text beside them is as it was."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
