"""Keeps traces: in the store, and as files of the output folder; or the latest ones in memory. Files have the same
limits of age and number as rows of the store.

A file that cannot be written is logged, and the next one is tried again: the client's reply never waits for it, and
never fails with it. It knows no model and no request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from espalier.errors import EspalierError, OutputError
from espalier.server.ports import TraceStore
from espalier.store import migrate
from espalier.store.db import open_memory
from espalier.store.open import Store
from espalier.store.retention import Limits, Retention
from espalier.trace.files import json_text, write_bytes
from espalier.trace.text_policy import TextPolicy

log = logging.getLogger(__name__)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST = 80
FILE = re.compile(r"combined_(\d{8}_\d{6}_\d{6})_.*\.json")
"""Names of our files; what other programs write into the folder is left alone."""
STAMP = "%Y%m%d_%H%M%S_%f"
SWEEP_FILES = 100
"""After so many new files, those over the limits are deleted."""


class MemoryStore(Store):
    """A store of the latest traces, gone with the process."""

    def __init__(self, most: int, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(open_memory(), clock=clock)
        migrate.upgrade(self.database)
        # Flagged traces count too: in memory there is no room for those of a model that always fails.
        self._keeping = Retention(self.database, Limits(rows=most), clock=clock, most_flagged=most)

    def save_trace(self, trace: Mapping[str, Any], **more: Any) -> str:
        trace_id = super().save_trace(trace, **more)
        self._keeping.run()
        return trace_id


class TraceKeeper:
    """Where the traces of a proxy go. folder: None for no files. limits: of its files. texts: whether traces have
    prompts and outputs; without them there are no files, which spell the output."""

    def __init__(
        self,
        store: TraceStore,
        folder: Path | None,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        texts: TextPolicy = "yes",
    ) -> None:
        self._store, self._folder, self._clock = store, folder if texts == "yes" else None, clock
        self._texts = texts
        self._limits = limits or Limits()
        self._new_files = count()
        self._sweeping = threading.Lock()

    def path_of(self, request_id: str, *, index: int = 0) -> Path | None:
        """The file that the trace of this request will be: `combined_<time, UTC, with microseconds>_<request id>.json`;
        before the suffix `_<index>` for further outputs. No two requests have one id, so none replaces another's."""
        if self._folder is None:
            return None
        moment = datetime.fromtimestamp(self._clock(), tz=UTC).strftime(STAMP)
        return (
            self._folder
            / f"combined_{moment}_{UNSAFE.sub('-', request_id)[:LONGEST]}{f'_{index}' if index else ''}.json"
        )

    async def keep(
        self,
        trace: Mapping[str, Any],
        combined: Callable[[], Mapping[str, Any]],
        *,
        request_id: str,
        caller: str,
        route: str,
        path: Path | None,
        index: int = 0,
        is_stored: bool = True,
        ids: dict[int, str] | None = None,
    ) -> bool:
        """Write the trace's file, then store it, each whole or not at all; what fails is logged. Returns whether there
        is a file. combined: the content of the file, made in the thread that writes it. index: which output of the
        request. is_stored: whether it goes to the store too, and not only to its file until more is known. ids: gets
        the id of the trace, by the index of its output; one that is there is used."""
        ids = {} if ids is None else ids
        ids.setdefault(index, self._store.new_trace_id())
        return await asyncio.to_thread(
            self._kept, trace, combined, request_id, caller, route, path, index, is_stored, ids
        )

    def promise(self, outputs: int) -> dict[int, str]:
        """Ids for the traces of a request's outputs, so that the head of a stream can name them."""
        return {index: self._store.new_trace_id() for index in range(outputs)}

    def _kept(
        self,
        trace: Mapping[str, Any],
        combined: Callable[[], Mapping[str, Any]],
        request_id: str,
        caller: str,
        route: str,
        path: Path | None,
        index: int,
        is_stored: bool,
        ids: dict[int, str],
    ) -> bool:
        fields = {"fields": {"request_id": request_id}}
        try:
            if path is not None:
                make_folder(path.parent)
                write_bytes(path, indented(combined()))
                if next(self._new_files) % SWEEP_FILES == 0:
                    self.sweep()
                return True
        except EspalierError as error:
            log.warning("a trace could not be written: %s", error, extra=fields)
        finally:  # stored last, so that whoever finds it in the list reads its final file
            try:
                if is_stored:
                    self._store.save_trace(
                        trace,
                        request_id=request_id,
                        caller=caller,
                        index=index,
                        route=route,
                        trace_id=ids[index],
                        texts=self._texts,
                    )
            except EspalierError as error:
                ids.pop(index, None)
                log.warning("a trace could not be stored: %s", error, extra=fields)
        return False

    def sweep(self) -> int:
        """Delete files over the limits, and return how many. One that cannot be deleted is logged. Blocks."""
        if self._folder is None or not self._sweeping.acquire(blocking=False):
            return 0
        try:
            names = sorted((name for name in os.listdir(self._folder) if FILE.fullmatch(name)), reverse=True)
            rows, seconds = self._limits.rows, self._limits.seconds
            oldest = ""
            if seconds is not None:
                oldest = datetime.fromtimestamp(self._clock() - seconds, tz=UTC).strftime(STAMP)
            old = [n for i, n in enumerate(names) if (rows is not None and i >= rows) or stamp_of(n) < oldest]
            for name in old:
                (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("old traces could not be deleted from %s: %s", self._folder, error.strerror or error)
            return 0
        finally:
            self._sweeping.release()
        return len(old)


def stamp_of(name: str) -> str:
    """The time in the name of one of our files."""
    match = FILE.fullmatch(name)
    return "" if match is None else match[1]


def indented(data: Mapping[str, Any]) -> bytes:
    """What `json_text` makes with an indent of 2, ten times as fast."""
    try:
        return to_json(data, indent=2, inf_nan_mode="null") + b"\n"
    except PydanticSerializationError:  # half a character, which has no UTF-8
        return json_text(data, indent=2).encode("utf-8", "backslashreplace")


def make_folder(folder: Path) -> None:
    """Raises OutputError naming it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
