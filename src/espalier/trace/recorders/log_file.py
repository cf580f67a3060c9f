"""The file under a rejection log: one JSON document that is whole after every append, and has one writer.

Each append overwrites the closing brackets with the next element and the brackets again, in one write. A reader that
comes in the middle of it, and a crash there, meet a document that lacks its end; every element before is whole. It
knows nothing of what the elements say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from espalier.errors import EspalierError, OutputError, UnsupportedError

CLOSING = b"\n]}\n"
MODE = 0o600
"""Of a new file: what people wrote is in it."""


class LogFile:
    """Elements of one JSON array. Not for several threads at once.

    begin: what stands before the first element, asked for each new file. scan: of what is there already, where its last
    whole element ends, or the bracket before the first, 0 where there is none, and whether there is an element; raises
    InputError for what is no such document. max_bytes: where an
    element would go beyond it, the file becomes `path.1`, what was that `path.2`, and so on up to `keep`, and a new one
    begins; no element is ever cut. A file that is there is continued.

    Raises OutputError naming the path: where it cannot be written, where another writer has it, where something else is
    there; UnsupportedError where files cannot be locked.
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
        self.path = path = path.resolve()  # of a link it is the file that is moved away
        self._begin, self._max, self._keep = begin, max_bytes, keep
        self._file = -1
        self._is_dirty = False  # a write has failed half-way
        try:
            self._file = _locked(path)
            self._end, self._has_any = 0, False  # end: of the last element
            if os.fstat(self._file).st_size:
                self._end, self._has_any = _scanned(path, scan)
            self._put(b"" if self._end else begin())
        except BaseException as error:
            self._leave()
            if isinstance(error, OSError):
                raise _cannot(path, error) from error
            raise

    @property
    def size(self) -> int:
        """In bytes."""
        return self._end + len(CLOSING)

    def append(self, element: bytes) -> None:
        """Write one more. Raises OutputError; the file is then as it was before."""
        if self._file < 0:
            raise OutputError(f"{self.path} is closed")
        try:
            if self._max is not None and self._has_any and self.size + len(element) + 2 > self._max:
                self._rotate()
            self._put((b",\n" if self._has_any else b"\n") + element)
        except OSError as error:
            raise _cannot(self.path, error) from error
        self._has_any = True

    def close(self) -> None:
        """Twice is once. The document is whole already, unless the last write failed and could not be undone."""
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
            os.close(self._file)  # and with it goes the lock
            self._file = -1

    def _put(self, text: bytes) -> None:
        """Text after the last element, and the brackets. Raises OSError, the file being as before."""
        if self._is_dirty:
            self._undo()
        data = text + CLOSING
        try:
            written = os.pwrite(self._file, data, self._end)
            while written < len(data):  # a full disk: the next try raises
                written += os.pwrite(self._file, data[written:], self._end + written)
            if not (text and self._end):  # over what was there, which may have been longer
                os.ftruncate(self._file, self._end + len(data))
        except OSError:
            self._is_dirty = True
            self._undo()
            raise
        self._end += len(text)

    def _undo(self) -> None:
        os.ftruncate(self._file, self._end)
        if self._end:
            os.pwrite(self._file, CLOSING, self._end)
        self._is_dirty = False

    def _rotate(self) -> None:
        """The path names a file at every moment, and one that is locked: nobody comes between."""
        for number in range(self._keep, 1, -1):
            older = _numbered(self.path, number - 1)
            if older.exists():
                older.replace(_numbered(self.path, number))
        name = self.path.with_name(f".{self.path.name}.new")
        name.unlink(missing_ok=True)  # of a writer that was killed here: the lock is ours
        before = self._file, self._end, self._has_any
        self._file, self._end, self._has_any = _open(name), 0, False
        try:
            _lock(self._file, self.path)
            self._put(self._begin())
            if self._keep:
                _numbered(self.path, 1).unlink(missing_ok=True)  # only where no more than one is kept
                os.link(self.path, _numbered(self.path, 1))
            name.replace(self.path)
        except BaseException:
            os.close(self._file)
            self._file, self._end, self._has_any = before
            raise
        os.close(before[0])


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)


def _locked(path: Path) -> int:
    """The file of that name, locked. Another may have been put in its place before it was."""
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


def _scanned(path: Path, scan: Callable[[Path], tuple[int, bool]]) -> tuple[int, bool]:
    try:
        return scan(path)
    except EspalierError as error:
        raise OutputError(
            f"{path} is there, and is not a log that can be continued: {error.message}", hint="name another file"
        ) from error


def _cannot(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror or error}")
