"""Reads prompts and text files, and checks the path of a trace. Schemas are read in `schema.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from espalier.errors import InputError
from espalier.files.limits import READERS
from espalier.files.reading import read_stdin
from espalier.files.reading import read_text as read_file

Prompt = Annotated[str | None, typer.Argument(help="What to ask; `-` reads stdin.", show_default=False)]
System = Annotated[str | None, typer.Option(help="A system message.")]
Raw = Annotated[bool, typer.Option("--raw", help="Take the prompt as it is: no chat template.")]


def read_text(path: str, what: str) -> str:
    """A text file, or stdin for `-`. what: a kind of `files/limits.py`. Raises InputError naming the path, TooLarge."""
    reader = READERS[what]
    return read_stdin(reader) if path == "-" else read_file(os.path.expanduser(path), reader)


def read_prompt(prompt: str | None) -> str:
    """The prompt. `-` is stdin, and so is no argument if stdin is piped. Raises InputError."""
    if prompt is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InputError("there is no prompt", hint='espalier generate "Write ..." (or - for stdin)', field="prompt")
    text = read_text("-", "prompt") if prompt in (None, "-") else str(prompt)
    if not text.strip():
        raise InputError("the prompt is empty", field="prompt")
    # A file or a pipe ends its last line; that newline is not part of what was asked.
    return text.removesuffix("\n") if prompt in (None, "-") else text


def check_trace_path(path: str | None) -> Path | None:
    """The path of a trace file, checked before a long generation starts; its folder is made. Raises InputError."""
    if path is None:
        return None
    target = Path(path).expanduser()
    if target.suffix.lower() not in (".html", ".json"):
        raise InputError(f"--trace {path}: the name must end in .html or .json", field="trace")
    if target.is_dir():
        raise InputError(f"--trace {path} is a folder", field="trace")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"--trace {path}: the folder {target.parent} cannot be made: {why}", field="trace") from error
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"--trace {path}: the folder {target.parent} cannot be written to", field="trace")
    return target
