"""`LogFile`: a JSON document on disk that is complete after every append, with a single writer.

Each append overwrites the closing brackets with the next element and the brackets again, in one write. A reader during
a write, or after a crash in it, finds a document without its end; all elements before are complete. This module does
not know what the elements mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from espalier.errors import EspalierError, OutputError, UnsupportedError

CLOSING = b"\n]}\n"
"""The end of a document without fields after the array."""
MODE = 0o600
"""Permissions of a new file, which contains private text."""


class LogFile:
    """Appends elements to one JSON array. Not thread-safe.

    begin: makes the bytes before the first element, for each new file. scan: returns, for an existing file, the offset
    after its last complete element (or after the opening bracket; 0 if there is none) and whether there is an element;
    raises InputError if the file is no such document. max_bytes: if an element would exceed it, the file is renamed to
    `path.1`, the previous one to `path.2`, and so on up to `keep`, and a new file begins; no element is ever split. An
    existing file is continued.

    Raises OutputError naming the path if it cannot be written, another writer has it, or it holds something else;
    UnsupportedError if files cannot be locked.
    """

    def __init__(
        self,
        path: Path,
        *,
        begin: Callable[[], bytes],
        scan: Callable[[Path], tuple[int, bool]],
        max_bytes: int | None = None,
        keep: int = 9,
    ) -> None:
        self.path = path = path.resolve()  # a symbolic link is followed: its target is rotated
        self._begin, self._max, self._keep = begin, max_bytes, keep
        self._file = -1
        self._is_dirty = False  # a write failed half-way
        self._closing = CLOSING
        self._written = 0  # bytes of the file, padding included
        try:
            self._file = _open_locked(path)
            self._end, self._has_any = 0, False  # end: offset after the last element
            if os.fstat(self._file).st_size:
                self._written = os.fstat(self._file).st_size
                self._end, self._has_any = _run_scan(path, scan)
            self._write(b"" if self._end else begin())
        except BaseException as error:
            self._leave()
            if isinstance(error, OSError):
                raise _cannot(path, error) from error
            raise

    @property
    def size(self) -> int:
        """In bytes."""
        return self._end + len(self._closing)

    @property
    def is_closed(self) -> bool:
        return self._file < 0

    def append(self, element: bytes) -> None:
        """Append one element; there are then no fields after the array. Raises OutputError; the file is then as
        before."""
        if self._file < 0:
            raise OutputError(f"{self.path} is closed")
        before, self._closing = self._closing, CLOSING
        try:
            if self._max is not None and self._has_any and self.size + len(element) + 2 > self._max:
                self._rotate()
            self._write((b",\n" if self._has_any else b"\n") + element)
        except OSError as error:
            self._closing = before
            raise _cannot(self.path, error) from error
        self._has_any = True

    def end_with(self, fields: bytes) -> None:
        """Write fields of the document after its array, in place of the ones there. Raises OutputError."""
        if self._file < 0:
            raise OutputError(f"{self.path} is closed")
        before, self._closing = self._closing, b"\n]," + fields + b"}\n" if fields else CLOSING
        try:
            self._write(b"")
        except OSError as error:
            self._closing = before
            raise _cannot(self.path, error) from error

    def close(self) -> None:
        """May be called twice. The document is complete already, unless the last write failed and could not be
        undone."""
        if self._file >= 0 and self._is_dirty:
            try:
                self._undo()
            except OSError as error:
                raise _cannot(self.path, error) from error
            finally:
                self._leave()
        self._leave()

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)  # also releases the lock
            self._file = -1

    def _write(self, text: bytes) -> None:
        """Write text after the last element, and the brackets; white space covers the rest of a longer end that was
        there, so that a reader meets no remains of it. Raises OSError; the file is then as before."""
        if self._is_dirty:
            self._undo()
        data = text + self._closing
        data += b" " * (self._written - self._end - len(data))
        try:
            written = os.pwrite(self._file, data, self._end)
            while written < len(data):  # a full disk: the next try raises
                written += os.pwrite(self._file, data[written:], self._end + written)
            self._written = self._end + len(data)
        except OSError:
            self._is_dirty = True
            self._undo()
            raise
        self._end += len(text)

    def _undo(self) -> None:
        os.ftruncate(self._file, self._end)
        self._written = self._end
        if self._end:
            self._written += os.pwrite(self._file, CLOSING, self._end)
        self._is_dirty = False

    def _rotate(self) -> None:
        """Rename files and start a new one. At every moment the path names a locked file, so that no other writer gets
        in."""
        for number in range(self._keep, 1, -1):
            older = _numbered_path(self.path, number - 1)
            if older.exists():
                older.replace(_numbered_path(self.path, number))
        name = self.path.with_name(f".{self.path.name}.new")
        name.unlink(missing_ok=True)  # left by a writer that was killed here: we hold the lock
        before = self._file, self._end, self._has_any, self._written
        self._file, self._end, self._has_any, self._written = _open(name), 0, False, 0
        try:
            _lock(self._file, self.path)
            self._write(self._begin())
            if self._keep:
                _numbered_path(self.path, 1).unlink(missing_ok=True)  # only if no more than one file is kept
                os.link(self.path, _numbered_path(self.path, 1))
            name.replace(self.path)
        except BaseException:
            os.close(self._file)
            self._file, self._end, self._has_any, self._written = before
            raise
        os.close(before[0])


def _numbered_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)


def _open_locked(path: Path) -> int:
    """The opened file of that name, locked. Reopens if another file has taken its place before the lock."""
    while True:
        file = _open(path)
        try:
            _lock(file, path)
            opened, named = os.fstat(file), path.stat()
        except BaseException:
            os.close(file)
            raise
        if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino):
            return file
        os.close(file)


def _lock(file: int, path: Path) -> None:
    try:
        import fcntl  # noqa: PLC0415  # not everywhere
    except ImportError as error:
        raise UnsupportedError("this system cannot lock files, which keeps a log to one writer") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(f"{path} is being written by another", hint="a log has one writer: name another") from error


def _run_scan(path: Path, scan: Callable[[Path], tuple[int, bool]]) -> tuple[int, bool]:
    try:
        return scan(path)
    except EspalierError as error:
        raise OutputError(
            f"{path} is there, and is not a log that can be continued: {error.message}", hint="name another file"
        ) from error


def _cannot(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror or error}")
