"""What shows that something is going on: a spinner and a bar, on stderr, and nothing where that is no terminal.

Every command's progress is made here. It knows no work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from espalier.cli import output

if TYPE_CHECKING:
    from rich.progress import Progress

AFTER = 0.5
"""Seconds of silence before a spinner appears: what is quicker needs none."""
Counted: TypeAlias = Callable[[int, int], None]
T = TypeVar("T")


class Spinner:
    """Shows a line with a spinner and the seconds if work takes longer than `AFTER`."""

    def __init__(self, what: str, after: float) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._is_done = False
        self._timer = threading.Timer(after, self._begin)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        """Take the line away; nothing is left on the screen."""
        self._timer.cancel()
        with self._lock:
            self._is_done = True
            if self._bar is not None:
                self._bar.stop()

    def _begin(self) -> None:
        from rich import progress as bars  # noqa: PLC0415  # slow to import, and quick work shows nothing

        with self._lock:
            if self._is_done:
                return
            self._bar = bar(bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
            self._bar.add_task(self._what, total=None)
            self._bar.start()


@contextmanager
def working(what: str, *, after: float = AFTER) -> Iterator[None]:
    """Around work that may take a while: a spinner with `what` beside it. after: seconds before it appears."""
    if not output.is_terminal():
        yield
        return
    spinner = Spinner(what, after)
    spinner.start()
    try:
        yield
    finally:
        spinner.stop()


def first_shown(events: Iterator[T], what: str) -> Iterator[T]:
    """The items of an iterator; until the first has come, a spinner. Closing it closes the iterator."""
    try:
        with working(what):
            first = next(events, _NOTHING)
        if first is _NOTHING:
            return
        yield first  # type: ignore[misc]  # not the mark
        yield from events
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


_NOTHING = object()


def bar(*columns: Any) -> Progress:
    """A bar of these columns (rich's), taken away at its end; disabled where stderr is no terminal.

    Data written to stdout meanwhile stays on stdout where that is no terminal; on one, it is written above the bar.
    """
    from rich import progress as bars  # noqa: PLC0415

    lines = output.console()
    return bars.Progress(
        *columns, console=lines, transient=True, disable=not lines.is_terminal, redirect_stdout=sys.stdout.isatty()
    )


@contextmanager
def counting(what: str) -> Iterator[Counted]:
    """A bar for work whose parts are counted: call what it gives with how many are done, and of how many."""
    from rich import progress as bars  # noqa: PLC0415

    with bar(what, bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn()) as shown:
        task = shown.add_task("")

        def tell(done: int, of: int) -> None:
            shown.update(task, completed=done, total=of)

        yield tell


@contextmanager
def stepping(every: int) -> Iterator[Callable[[str, int], None]]:
    """One progress bar per stage, for work whose end is not known: call what it gives with the stage's name and how
    many are done. every: the bar is redrawn after so many."""
    from rich import progress as bars  # noqa: PLC0415

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
    with bar(*columns, bars.TimeElapsedColumn()) as shown:
        tasks: dict[str, bars.TaskID] = {}

        def step(name: str, count: int) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=None)
            if count % every == 0:
                shown.update(tasks[name], completed=count)

        yield step
