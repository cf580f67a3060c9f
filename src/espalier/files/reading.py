"""Opens and reads files from other programs: a size limit before anything is read, and no waiting for what never comes.

A path may name a pipe (`<(command)` of a shell does), which is read within limits of time; devices and sockets are
refused, since they may never end. The kinds of files are in `limits.py`.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import tempfile
import time
from typing import IO, Any, BinaryIO, cast

from espalier.errors import TooLarge
from espalier.files.limits import MIB, FileLimits, size_text

FIRST_SECONDS = 10.0
"""How long a pipe may take to give its first byte."""
PIPE_SECONDS = 120.0
"""How long a pipe may take in all."""
CHUNK = 1 << 16
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_bytes(path: str | os.PathLike[str], reader: FileLimits) -> bytes:
    """The content of a file. Raises TooLarge, and the reader's error, both naming the file."""
    with open_file(path, reader) as file:
        return read_within(file, reader, os.fspath(path))


def read_text(path: str | os.PathLike[str], reader: FileLimits) -> str:
    """The text of a UTF-8 file, without its byte order mark, its line ends as `\\n`. Raises as `read_bytes`, and the
    reader's error naming the byte that is not UTF-8."""
    return decoded(read_bytes(path, reader), reader, os.fspath(path))


def decoded(data: bytes, reader: FileLimits, source: str) -> str:
    """Bytes as `read_text` gives them. Raises the reader's error."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the {reader.noun} {source} is not UTF-8 at byte {error.start}"
        raise reader.error(message, **_field(reader)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_stdin(reader: FileLimits) -> str:
    """The text of standard input, as `read_text` reads a file. Raises the reader's error, TooLarge."""
    if sys.stdin is None:  # closed by the caller
        raise reader.error("there is no standard input", **_field(reader, "stdin"))
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:  # put there by a program
        text = sys.stdin.read(reader.bytes + 1)
        if len(text) > reader.bytes:
            raise too_large(reader, "standard input")
        return text
    return decoded(read_within(buffer, reader, "standard input"), reader, "standard input")


def open_file(path: str | os.PathLike[str], reader: FileLimits) -> BinaryIO:
    """A file opened for reading, seekable; the content of a pipe is copied first. Raises TooLarge, and the reader's
    error for what cannot be read, is a folder or a device, or a pipe into which nothing is written."""
    name = os.fspath(path)
    try:
        handle = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(reader, name, getattr(error, "strerror", None) or str(error)) from error
    try:
        status = os.fstat(handle)
        fault = _fault(status)
        if fault:
            raise _unreadable(reader, name, fault)
        if stat.S_ISFIFO(status.st_mode):
            return _copy_pipe(handle, reader, name)
        if status.st_size > reader.bytes:
            raise too_large(reader, name, status.st_size)
        os.set_blocking(handle, True)
        opened, handle = os.fdopen(handle, "rb"), -1
        return opened
    except OSError as error:
        raise _unreadable(reader, name, error.strerror or str(error)) from error
    finally:
        if handle >= 0:
            os.close(handle)


def read_within(file: IO[bytes], reader: FileLimits, source: str) -> bytes:
    """The rest of a file that may be larger than its status says. Raises TooLarge, and the reader's error."""
    try:
        data = file.read(reader.bytes + 1)
    except OSError as error:
        raise _unreadable(reader, source, error.strerror or str(error)) from error
    if len(data) > reader.bytes:
        raise too_large(reader, source)
    return data


def too_large(reader: FileLimits, source: str, size: int | None = None) -> TooLarge:
    """The error for a file above the limit."""
    shown_size = "" if size is None else f" ({size:,} bytes)"
    return TooLarge(
        f"the {reader.noun} {shortened(source)} is larger than {size_text(reader.bytes)}{shown_size}",
        hint="is it the right file?",
        field=reader.field or reader.noun,
    )


def shortened(text: str, length: int = 400) -> str:
    """A text that an error shows: its beginning, if it is long."""
    return text if len(text) <= length else f"{text[:length]}…"


def _fault(status: os.stat_result) -> str:
    """Why this is no file to read, "" if it is one."""
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return "Is a directory"
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        return ""
    if stat.S_ISCHR(mode) and status.st_rdev == os.stat(os.devnull).st_rdev:
        return ""
    return "it is a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "it is not a file"


def _copy_pipe(handle: int, reader: FileLimits, name: str) -> BinaryIO:
    """A copy of what comes from a pipe. The handle does not block, and stays open."""
    copy: Any = tempfile.SpooledTemporaryFile(max_size=16 * MIB)  # noqa: SIM115  # the caller closes it
    try:
        start, size = time.monotonic(), 0
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        while True:
            seconds = PIPE_SECONDS if size else FIRST_SECONDS
            left = start + seconds - time.monotonic()
            if left <= 0 or not waiting.poll(left * 1000):
                raise _unreadable(reader, name, f"nothing came from this pipe within {seconds:g} s")
            try:
                piece = os.read(handle, CHUNK)
            except BlockingIOError:
                continue
            if not piece:
                copy.seek(0)
                return cast(BinaryIO, copy)
            size += len(piece)
            if size > reader.bytes:
                raise too_large(reader, name)
            copy.write(piece)
    except BaseException:
        copy.close()
        raise


def _unreadable(reader: FileLimits, name: str, reason: str) -> Exception:
    return reader.error(f"cannot read the {reader.noun} {shortened(name)}: {reason}", **_field(reader))


def _field(reader: FileLimits, usual: str | None = None) -> dict[str, Any]:
    return {"field": usual or reader.field or reader.noun}
