"""For which steps of a task a rejection log is complete: only there does "no event" mean "no rejection".

Espalier's logs number the events of each run and note how many there were, so that every lost event leaves a gap. A log
without numbers is complete once its server has closed it, or where the slot went on to another task; in a file that was
cut, nothing is known of what comes after the task's last event. This module knows events by their place only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.trace.foreign.responses import whole

ENDLESS = 1 << 62


@dataclass(slots=True)
class Coverage:
    """gaps: ranges of steps, first and one past the last, of which nothing is known. Events come in order."""

    gaps: list[tuple[int, int]] = field(default_factory=list)
    numbered: bool = False
    is_over: bool = False
    _next: int = 0
    _first: int = -1
    _last: int = -1

    def add(self, event: Mapping[str, Any]) -> None:
        """An event of the task, by its `number` within the run if it has one."""
        number, step = whole(event.get("number")), event["step"]
        if number is not None:
            self.numbered = True
            if number > self._next:
                self.gaps.append((self._last + 1, step))
            self._next = number + 1
        self._first = step if self._first < 0 else self._first
        self._last = step

    def end(self, run: Mapping[str, Any]) -> None:
        """The log's note that the run is over: `events`, how many it had."""
        count = whole(run.get("events"))
        if count is not None and not self.is_over:
            self.is_over = True
            self.numbered = True
            if count > self._next:
                self.gaps.append((self._last + 1, ENDLESS))

    def close(self, *, is_complete: bool, is_late: bool = False) -> None:
        """The log has been read. Of a log without numbers: is_complete, whether it has the last events of the task;
        is_late, whether it may have begun after the task."""
        if not self.is_over and (self.numbered or not is_complete):
            self.gaps.append((self._last + 1, ENDLESS))
        if is_late and not self.numbered:
            self.gaps.append((0, max(0, self._first)))

    def knows(self, step: int) -> bool:
        """Whether an event of this step would be in the log."""
        return not any(first <= step < end for first, end in self.gaps)
