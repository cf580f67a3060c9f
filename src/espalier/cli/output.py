"""Writes data to stdout and everything else to stderr. Colour only on a terminal without NO_COLOR.

On a terminal both streams are one screen: a message never begins in the middle of a line of data. What is redirected
gets its own stream alone, with no newline added to the data.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.errors import EspalierError, InputError, OutputError

if TYPE_CHECKING:
    from rich.console import Console


class OpenLines:
    """Whether the last line of each stream is unfinished. One for the process, as the streams are."""

    def __init__(self) -> None:
        self.out = False
        self.err = False

    def before_message(self) -> None:
        """Begin a new line on stderr, if there is text in the line."""
        if self.err or (self.out and _is_one_screen()):
            sys.stderr.write("\n")
            sys.stderr.flush()
            self.err = False
            if _is_one_screen():
                self.out = False

    def before_data(self) -> None:
        """Begin a new line on the screen, if a message left text in the line."""
        if self.err and _is_one_screen():
            self.before_message()


LINES = OpenLines()


def _is_one_screen() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and sys.stderr is not None and sys.stderr.isatty()


def is_terminal() -> bool:
    """Whether stderr is a terminal: only there is progress shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def console() -> Console:
    """A console on stderr, at the start of a line; rich itself honours NO_COLOR and terminals without colour."""
    LINES.before_message()
    return _console()


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415  # slow to import, and most runs say nothing

    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line for people."""
    lines = console()
    # NO_COLOR asks for plain text; rich would still write "dim".
    lines.print(text, style=None if lines.no_color else "dim", markup=False, soft_wrap=True)


def aside(text: str) -> None:
    """Write a piece of streamed text to stderr."""
    if LINES.out:
        LINES.before_message()
    lines = _console()
    lines.print(text, style=None if lines.no_color else "dim", markup=False, soft_wrap=True, end="")
    LINES.err = not text.endswith("\n") if text else LINES.err


def ask(prompt: str) -> None:
    """Write a prompt to stderr; `answered` is called when something was read."""
    LINES.before_message()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    LINES.err = True


def answered(*, ended: bool) -> None:
    """Say that a line was read after a prompt. ended: whether the answer ended the line of the prompt."""
    if not ended:
        LINES.before_message()
    LINES.err = False


def fail(error: EspalierError) -> int:
    """Print an error as one line, and its hint as another. Returns the exit code."""
    lines = console()
    lines.print(f"error: {error.message}", style="red", markup=False, soft_wrap=True)
    if error.hint:
        lines.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
    return error.exit_code


def data(text: str) -> None:
    """Write to stdout, ending the line. Raises OutputError if stdout is closed."""
    piece(text if text.endswith("\n") else text + "\n")


def piece(text: str) -> None:
    """Write a piece of streamed text to stdout. A lone surrogate (half a character, from a JSON escape) has no UTF-8
    and is written as \\udXXX, which is JSON again. Raises OutputError if stdout is closed."""
    if sys.stdout is None:  # closed by the caller
        raise OutputError("there is no standard output")
    LINES.before_data()
    sys.stdout.write(text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8"))
    sys.stdout.flush()
    LINES.out = not text.endswith("\n") if text else LINES.out


def end_line() -> None:
    """End the line on stdout, if it is unfinished."""
    if LINES.out:
        piece("\n")


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Write a new file, or with force any. Raises InputError if it exists, OutputError if it cannot be written."""
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(
            f"{path} exists already", hint="--force overwrites it; or name another file", field="output"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def data_json(value: Any) -> None:
    data(json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    """JSON has no infinities (a model may write 1e999): they are null here, and the text beside them is as it was."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
