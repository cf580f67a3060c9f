"""The window of time of `espalier costs`, as its flags say it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from espalier.cli.flags.moments import read_since
from espalier.errors import InputError
from espalier.store.costs.window import CostWindow

Since = Annotated[str, typer.Option(help="A date, a time, or an age: 2026-11-23, 90m, 7d.")]


def window_of(since: str, until: str | None, model: str | None, flag: str = "until") -> CostWindow:
    """flag: what is wrong where the window ends before it begins. Raises InputError."""
    now = time.time()
    end = now if until is None else read_since(until, now, flag="until")
    return _between(read_since(since, now), end, model, flag)


def span_of(text: str, now: float, flag: str, model: str | None) -> CostWindow:
    """A window as it is written, FROM..TO. Raises InputError."""
    first, separator, last = text.partition("..")
    if not separator:
        raise InputError(f"--{flag} {text!r:.60} is no window", hint="FROM..TO, such as 14d..7d", field=flag)
    until = now if last.strip() in ("", "now") else read_since(last, now, flag=flag)
    return _between(read_since(first, now, flag=flag), until, model, flag)


def _between(since: float, until: float, model: str | None, flag: str) -> CostWindow:
    if since >= until:
        raise InputError(f"--{flag}: the window ends before it begins", field=flag)
    return CostWindow(since=since, until=until, model=model)
