"""A group of kernels that are needed together: loaded once in a process, before a text needs them, and compiled once
for an installation, in processes of their own. Whoever waits for that longer than a second is told.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from espalier.kernels.folder import folder_of, is_compiled
from espalier.time_limit import check

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.02
SHARE_SECONDS = 5
"""What is worth a process of its own, which takes half a second to start."""
TOLD_SECONDS = 1.0
"""Who waits longer is told why."""


class KernelGroup:
    """Modules of kernels. Thread-safe. seconds: about how long compiling them takes on two cores."""

    def __init__(self, name: str, modules: Sequence[str], *, seconds: int) -> None:
        self.name, self.modules, self.seconds = name, tuple(modules), seconds
        self._loaded = threading.Event()
        self._loading = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def is_compiled(self) -> bool:
        """Whether all of its kernels are compiled in this installation."""
        return all(map(is_compiled, self.modules))

    @property
    def is_loaded(self) -> bool:
        """Whether the process has all of its kernels."""
        return self._loaded.is_set()

    def load(self) -> None:
        """Load the kernels, and wait until they are compiled. A caller who is cancelled or out of time waits no
        longer; the CPU time of compiling is not charged to it. Raises what `check` raises."""
        if self._loaded.is_set():
            return
        self._begin()
        told = time.monotonic() + TOLD_SECONDS
        is_told = self.is_compiled
        while not self._loaded.wait(LOOK_SECONDS):
            check()
            if not is_told and time.monotonic() > told:
                is_told = True
                log.warning(
                    "compiling %d kernels (%s), once per installation: about %d s",
                    self.count(),
                    self.name,
                    self.seconds,
                )

    def is_ready(self) -> bool:
        """Whether the kernels can be called. Loads them if they are compiled; else has them compiled, and does not
        wait."""
        if self._loaded.is_set():
            return True
        if not self.is_compiled:
            start(later=[self])
            return False
        self.load()
        return True

    def count(self) -> int:
        """How many kernels it has. Imports their modules."""
        from espalier.kernels.compiled import count_of  # noqa: PLC0415  # it imports numba

        for module in self.modules:
            import_module(module)
        return sum(map(count_of, self.modules))

    def _begin(self) -> None:
        if self._loading.acquire(blocking=False):  # by whoever comes first, and never given back
            threading.Thread(target=self._load, name=f"espalier-kernels-{self.name}", daemon=True).start()

    def _load(self) -> None:
        from espalier.kernels.compiled import load_kernels  # noqa: PLC0415  # it imports numba

        try:
            start([self])
            self.count()
            for process in self._processes:  # what they have not compiled is compiled below
                while process.poll() is None and not self.is_compiled:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_SECONDS)
            for module in self.modules:
                load_kernels(module)
        finally:  # what fails here fails again for the caller
            self._loaded.set()


def start(urgent: Iterable[KernelGroup] = (), *, later: Iterable[KernelGroup] = ()) -> None:
    """Have kernels compiled that are not, in processes that outlive this one, and do not wait for them. Urgent ones
    that take long are shared out among the cores."""
    urgent, later = ([each for each in groups if _is_to_start(each)] for groups in (urgent, later))
    if not (urgent or later):
        return
    modules = [[module for group in groups for module in group.modules] for groups in (urgent, later)]
    shares = min(os.cpu_count() or 1, len(modules[0]), sum(group.seconds for group in urgent) // SHARE_SECONDS)
    processes = []
    try:
        for number in range(max(1, shares)):
            mine = (modules[0][number :: max(1, shares)], [] if number else modules[1])
            processes.append(_start_process(*mine))
    except OSError as error:
        log.info("kernels are compiled in this process, since no other can be started: %s", error)
    for group in (*urgent, *later):
        group._processes += processes


def _start_process(urgent: Sequence[str], later: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that compiles these modules. Raises OSError."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "espalier.kernels.worker", *urgent, "--", *later],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, name="espalier-compiling", daemon=True).start()  # no zombie is left
    return process


def _is_to_start(group: KernelGroup) -> bool:
    """Whether processes can compile the group for this one."""
    return not group._processes and not group.is_compiled and folder_of(group.modules[0]) is not None
