"""The progress of a run on stderr: a bar with rate, time left, failures and rejection rate; plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich import progress as bars

from espalier.cli import output, progress
from espalier.jobs.values import ItemCounts, ItemEnd

LINE_SECONDS = 10.0
"""Between two lines where stderr is no terminal."""


class BatchProgress:
    """Shown while it is open."""

    def __init__(self) -> None:
        self._bar: bars.Progress | None = None
        self._task = bars.TaskID(0)
        self._began = self._line = time.monotonic()
        self._before: int | None = None
        self._drawn = self._rejected = self._invalid = self._broken = 0

    def __enter__(self) -> BatchProgress:
        if output.is_terminal():
            shown = bars.TextColumn("{task.fields[shown]}")
            self._bar = progress.bar(bars.BarColumn(), bars.MofNCompleteColumn(), shown, bars.TimeRemainingColumn())
            self._task = self._bar.add_task("items", total=None, shown="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def told(self, ended: ItemEnd) -> None:
        """One result was recorded."""
        figures = ended.answer.figures or {}
        self._drawn += figures.get("steps", 0) - figures.get("forced_steps", 0)
        self._rejected += figures.get("rejected_steps", 0)
        self._invalid += ended.answer.valid is False
        self._broken += bool(figures.get("broken"))

    def counted(self, counts: ItemCounts) -> None:
        """The batch as it stands."""
        done = counts.completed + counts.failed + counts.stopped
        if self._before is None:
            self._before = done
        now = time.monotonic()
        rate = (done - self._before) / max(1e-9, now - self._began)
        rejected = self._rejected / self._drawn if self._drawn else 0.0
        shown = f"{rate:.1f}/s, {counts.failed} failed, {self._invalid} not valid, {rejected:.1%} rejected"
        if self._broken:
            shown += f", {self._broken} broken by a fault of Espalier"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=counts.total or None, shown=shown)
        elif now - self._line >= LINE_SECONDS:
            self._line = now
            left = f", {(counts.total - done) / rate:.0f} s left" if rate > 0 else ""
            output.note(f"{done}/{counts.total}, {shown}{left}")
