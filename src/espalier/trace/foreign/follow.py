"""Follow a rejection log while its server writes it: each call returns what is new, whatever happened to the file.

The log may not exist yet, may be unclosed, may be rotated (renamed, with a new file in its place) or truncated and
begun again. Nothing is read twice but what a new file repeats; `Tasks` leaves that out. This module knows no replies.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from espalier.files.limits import LOG
from espalier.files.reading import open_file
from espalier.trace.foreign.log_reader import LogError, LogHeader, LogReader

MARK = 64
"""Bytes before the offset that are compared: if they changed, the file was begun again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News(LogHeader):
    """What is new. events: in order. header: the fields beside the events, with `ended`, the runs that ended since the
    last event of a log of Espalier. is_closed, is_cut: of the file as it is now, as in LogReader. files: how many files
    were begun since the start."""

    events: list[dict[str, Any]] = field(default_factory=list)
    header: Mapping[str, Any] = field(default_factory=dict)
    is_closed: bool = False
    is_cut: bool = False
    files: int = 0


class LogFollower:
    """Follows the log at `path`. Calls may come from several threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None
        self._offset = 0
        self._mark = b""
        self._header: dict[str, Any] = {}
        self._files = 0
        self._lock = threading.Lock()

    def poll(self) -> News:
        """What came since the last call; nothing if there is no log yet. Raises LogError for a file that is no log,
        TooLarge, InputError for one that cannot be read."""
        with self._lock:
            events: list[dict[str, Any]] = []
            reader: LogReader | None = None
            if self._file is not None:
                if not self._is_same_text():
                    self._begin(self._file)
                reader = self._read(events)
                if self._is_replaced():
                    self._leave()
            if self._file is None and self.path.exists():
                self._file = _open_unbuffered(open_file(self.path, LOG), self.path)
                self._begin(self._file)
                reader = self._read(events)
            closed, cut = (reader.is_closed, reader.is_cut) if reader else (False, False)
            header = dict(self._header)
            return News(events=events, header=header, is_closed=closed, is_cut=cut, files=self._files)

    def close(self) -> None:
        with self._lock:
            self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _begin(self, file: BinaryIO) -> None:
        file.seek(0)
        self._offset, self._mark, self._header = 0, b"", {}
        self._files += 1

    def _read(self, events: list[dict[str, Any]]) -> LogReader:
        assert self._file is not None
        self._file.seek(0)
        reader = LogReader(self._file, offset=self._offset)
        try:
            events += reader
        finally:
            self._offset = reader.offset
            self._header = {**{k: v for k, v in self._header.items() if k != "ended"}, **reader.header}
            self._file.seek(max(0, self._offset - MARK))
            self._mark = self._file.read(min(MARK, self._offset))
        return reader

    def _is_same_text(self) -> bool:
        """Whether the file still begins with what was read."""
        assert self._file is not None
        self._file.seek(max(0, self._offset - MARK))
        return self._file.read(min(MARK, self._offset)) == self._mark

    def _is_replaced(self) -> bool:
        assert self._file is not None
        try:
            named, opened = self.path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return True
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _open_unbuffered(file: BinaryIO, path: Path) -> BinaryIO:
    """The file without a buffer, which would hold old content. Raises LogError for a pipe."""
    detach = getattr(file, "detach", None)
    if not isinstance(getattr(file, "raw", None), io.FileIO) or detach is None:
        file.close()
        raise LogError(f"{path} is no file, so it cannot be followed")
    return cast(BinaryIO, detach())
