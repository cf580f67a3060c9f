"""The window of time of `espalier costs`, and whose answers are in it, as its flags say it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from espalier.cli.flags.moments import read_since
from espalier.errors import InputError
from espalier.store.costs.window import CostWindow

Since = Annotated[str, typer.Option(help="A date, a time, or an age: 2026-11-23, 90m, 7d.")]
Model = Annotated[str | None, typer.Option("-m", "--model", help="Answers of this model alone.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoseFlags:
    """Whose answers of which model are in the sums."""

    model: Model = None
    caller: Annotated[
        str | None,
        typer.Option(help="Answers to this name of a key alone; `test` for those of `espalier test`.", metavar="NAME"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFlags:
    """A window of time."""

    since: Since = "7d"
    until: Annotated[str | None, typer.Option(help="The same: older than this.")] = None


def window_of(flags: WindowFlags | None = None, whose: WhoseFlags | None = None) -> CostWindow:
    """Raises InputError."""
    flags, now = flags or WindowFlags(), time.time()
    end = now if flags.until is None else read_since(flags.until, now, flag="until")
    return _between(read_since(flags.since, now), end, whose, "since" if flags.until is None else "until")


def span_of(text: str, now: float, flag: str, whose: WhoseFlags) -> CostWindow:
    """A window as it is written, FROM..TO. flag: which one is wrong. Raises InputError."""
    first, separator, last = text.partition("..")
    if not separator:
        raise InputError(f"--{flag} {text!r:.60} is no window", hint="FROM..TO, such as 14d..7d", field=flag)
    until = now if last.strip() in ("", "now") else read_since(last, now, flag=flag)
    return _between(read_since(first, now, flag=flag), until, whose, flag)


def _between(since: float, until: float, whose: WhoseFlags | None, flag: str) -> CostWindow:
    if since >= until:
        raise InputError(f"--{flag}: the window ends before it begins", field=flag)
    whose = whose or WhoseFlags()
    return CostWindow(since=since, until=until, model=whose.model, caller=whose.caller)
