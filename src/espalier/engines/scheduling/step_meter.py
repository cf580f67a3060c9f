"""CPU seconds that steps take, by owner, with few looks at the CPU clock: each look is a system call, at which the
thread that has the model, and the interpreter's lock, is likely to lose its core to another thread.

It knows no lanes and no limits.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

QUICK = 0.002
"""Seconds: a step that takes less by the clock on the wall is measured by that alone until its round is settled."""


class StepMeter:
    """cpu: CPU seconds of the thread that works. One that is not `time.thread_time` is read before and after each step.

    `begin`, then `start` and `stop` for each step, then `settle`, any number of times; `drain` ends the round.
    seconds: of all steps since then, at least.
    """

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu, self._is_exact = cpu, cpu is not time.thread_time
        self._measured: dict[str, float] = defaultdict(float)  # since `begin`, by owner
        self._estimated: dict[str, float] = defaultdict(float)  # the same of quick steps
        self._settled: dict[str, float] = defaultdict(float)
        self.seconds = 0.0
        self._first = self._last = self._seen = self._start = 0.0

    def begin(self) -> None:
        """Steps follow."""
        if not self._is_exact:
            self._look(time.monotonic())
            self._first = self._last

    def start(self) -> float:
        """A step begins. Returns what the CPU clock says, or up to QUICK more."""
        if self._is_exact:
            self._start = self._cpu()
            return self._start
        now = time.monotonic()
        if now - self._seen >= QUICK:
            self._look(now)
        self._start = now
        return self._last + (now - self._seen)  # no thread gets more CPU time than time passes

    def stop(self, owner: str) -> float:
        """The step has ended. Returns its CPU seconds; of a quick one, the seconds that passed."""
        steps = self._measured
        if self._is_exact:
            took = self._cpu() - self._start
        else:
            now = time.monotonic()
            took = now - self._start
            if took >= QUICK:
                before = self._last
                self._look(now)
                took = min(took, self._last - before)
            else:
                steps = self._estimated
        steps[owner] += took
        self.seconds += took
        return took

    def settle(self) -> None:
        """All steps since `begin` took together what the CPU clock says. A step that was measured is charged as it was;
        the quick ones share what is left by the seconds that passed."""
        estimated = sum(self._estimated.values())
        if estimated > 0.0:
            left = self._cpu() - self._first - sum(self._measured.values())
            share = min(1.0, max(0.0, left / estimated))
            for owner, seconds in self._estimated.items():
                self._settled[owner] += share * seconds
        for owner, seconds in self._measured.items():
            self._settled[owner] += seconds
        self._measured.clear()
        self._estimated.clear()

    def drain(self) -> Mapping[str, float]:
        """Seconds by owner, of everything that was settled."""
        seconds, self._settled, self.seconds = self._settled, defaultdict(float), 0.0
        return seconds

    def _look(self, now: float) -> None:
        self._last, self._seen = self._cpu(), now
