"""Everything that is kept of batch jobs, over one migrated database and one folder of uploads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from espalier.store.batches.batches import Batches
from espalier.store.batches.files import Files
from espalier.store.batches.queue import LEASE_SECONDS
from espalier.store.batches.quota import ResultQuota, UploadQuota
from espalier.store.batches.results import Results
from espalier.store.batches.stages import BatchQueue
from espalier.store.db import Database
from espalier.store.ids import Ids


class BatchStore:
    """files, batches, queue, results: see there. All may be used from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        lease: float = LEASE_SECONDS,
        quota: UploadQuota | None = None,
        results: ResultQuota | None = None,
    ) -> None:
        ids = Ids(clock)
        self.database, self._clock = database, clock
        self.files = Files(database, folder, ids, clock, quota)
        self.batches = Batches(database, ids, clock)
        self.queue = BatchQueue(database, self.files, ids, lease=lease, clock=clock, quota=results)
        self.results = Results(database)

    def sweep(self, seconds: float | None) -> int:
        """Delete batches and uploads that are older than that, and files that have expired. Returns how many."""
        before = None if seconds is None else self._clock() - seconds
        count = self.files.sweep(before)
        while before is not None and (swept := self.batches.sweep(before)):
            count += len(swept)
        return count


def default_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`espalier/batches` below `XDG_DATA_HOME`, or below `~/.local/share`: beside the default database."""
    env = os.environ if environ is None else environ
    base = Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "espalier" / "batches"
