"""Where the CLI writes: data on stdout, everything else on stderr. Colour only on a terminal without NO_COLOR."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

from espalier.errors import EspalierError


def console() -> Console:
    """A console on stderr; rich itself honours NO_COLOR and terminals without colour."""
    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line for people."""
    console().print(text, style="dim", markup=False, soft_wrap=True)


def fail(error: EspalierError) -> int:
    """Print an error as one line, and its hint as another. Returns the exit code."""
    lines = console()
    lines.print(f"error: {error.message}", style="red", markup=False, soft_wrap=True)
    if error.hint:
        lines.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
    return error.exit_code


def data(text: str) -> None:
    """Write to stdout, ending the line."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def piece(text: str) -> None:
    """Write a piece of streamed text to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def data_json(value: Any) -> None:
    data(json.dumps(value, ensure_ascii=False, indent=2))
