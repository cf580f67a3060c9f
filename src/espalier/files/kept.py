"""Files of the cache folder: written whole or not at all, and read only as what was written.

A file is a header of fixed length and a body. The header says what the body is and has a digest of it, so that a file
that is damaged, or holds something else, is made again. Of processes that want the same file at once, one makes it
and the others read it. It does not know what the bytes mean.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from espalier.errors import InputError
from espalier.files.code import digest_of_code
from espalier.files.limits import FileLimits
from espalier.files.reading import read_bytes
from espalier.time_limit import check

HEADER_BYTES = 256
"""A multiple of every item size, so that arrays after it are aligned."""
WAIT_SECONDS = 120.0
"""For another process that makes the same file; one that was stopped meanwhile holds nobody up longer."""
LOOK_SECONDS = 0.02

_log = logging.getLogger(__name__)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptKind:
    """Kept files of one kind. name: in their heads. layout: the version of their bodies. sources: patterns of the code
    below the package that makes what they hold."""

    name: str
    suffix: str
    layout: int
    sources: tuple[str, ...]
    reader: FileLimits


def kept_or_made(
    folder: Path | None,
    kind: KeptKind,
    key: str,
    *,
    make: Callable[[], Made],
    pack: Callable[[Made], bytes],
    unpack: Callable[[memoryview], Made | None],
    most: int,
) -> Made:
    """What a kept file holds; otherwise it is made by one of those that want it, and written.

    The file is found by a fingerprint of the key and the code. folder None, or code that is not in files: nothing is
    kept. unpack: None for a body that is none, which is made again after a warning. most: files of this kind that are
    kept, the newest. Raises what `make` raises.
    """
    code = None if folder is None else digest_of_code(*kind.sources)
    if folder is None or code is None:
        return make()
    fingerprint = hashlib.sha256(f"{kind.layout} {code} {key}".encode()).hexdigest()
    path, what = folder / f"{fingerprint[:32]}{kind.suffix}", f"{kind.name}, layout {kind.layout}, {fingerprint}"

    def read() -> Made | None:
        body = kept(path, what, kind.reader)
        value = None if body is None else unpack(body)
        if value is None and body is not None:
            _log.warning("the %s %s is not one; it is made again", kind.reader.noun, path)
        return value

    value = read()
    if value is not None:
        return value
    with made_by_one(path) as was_made:
        value = read() if was_made else None
        if value is None:
            value = make()
            keep(path, what, pack(value), kind.reader)
            keep_newest(folder, kind.suffix, most)
    return value


def kept(path: Path, what: str, reader: FileLimits) -> memoryview | None:
    """The body of a kept file; None if it is not there, cannot be read, is damaged or is not `what`. A warning is
    logged for all but the first."""
    try:
        if not path.exists():
            return None
        data = read_bytes(path, reader)
    except (OSError, InputError) as error:
        _log.warning("the %s %s cannot be read: %s", reader.noun, path, error)
        return None
    body = memoryview(data)[HEADER_BYTES:]
    if data[:HEADER_BYTES] != _header(what, body):
        _log.warning("the %s %s is damaged or another's; it is made again", reader.noun, path)
        return None
    return body


def keep(path: Path, what: str, body: bytes, reader: FileLimits) -> None:
    """Write a file that `kept` reads: a temporary one that is renamed, so that readers see a whole file or none. If the
    folder cannot be written, a warning is logged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_header(what, body))
                file.write(body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        _log.warning("the %s could not be kept at %s: %s", reader.noun, path, error)


@contextmanager
def made_by_one(path: Path) -> Iterator[bool]:
    """While open, no other process or thread makes the file. Yields whether another one did meanwhile, so that it is
    worth a look. It only saves work: where no lock can be had, each makes its own. Raises what `check` raises."""
    lock = path.with_name(path.name + ".lock")
    waited, handle = _lock_file(lock)
    try:
        yield waited
    finally:
        if handle is not None:
            # Whoever waits for the removed file gets it all the same, and then finds what was made.
            with suppress(OSError):
                lock.unlink()
            _unlock(handle)


def _lock_file(path: Path) -> tuple[bool, int | None]:
    """Whether another one had the lock, and the open file that holds it; None without a lock."""
    try:
        import fcntl  # noqa: PLC0415  # not on every system

        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (ImportError, OSError):  # a folder that cannot be written is told by `keep`
        return False, None
    waited, ends = False, time.monotonic() + WAIT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
            else:
                return waited, handle
            if time.monotonic() > ends:
                _log.warning("another process has held %s for %.0f s; it is not waited for", path, WAIT_SECONDS)
                break
            check()
            time.sleep(LOOK_SECONDS)
    except OSError as error:
        _log.warning("%s cannot be locked, so each process makes its own: %s", path, error)
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return waited, None


def _unlock(handle: int) -> None:
    import fcntl  # noqa: PLC0415

    fcntl.flock(handle, fcntl.LOCK_UN)  # closing would not do where a child has inherited it
    os.close(handle)


def keep_newest(folder: Path, suffix: str, most: int) -> None:
    """Remove the oldest files of a kind, so that `most` are left. What cannot be removed stays."""
    try:
        files = sorted((file.stat().st_mtime, file) for file in folder.glob(f"*{suffix}"))
        for _, file in files[: max(0, len(files) - most)]:
            file.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("old files of %s could not be removed: %s", folder, error)


def _header(what: str, body: memoryview | bytes) -> bytes:
    """Raises ValueError if `what` is too long."""
    header = f"espalier {what}, {hashlib.sha256(body).hexdigest()}\n".encode().ljust(HEADER_BYTES)
    if len(header) > HEADER_BYTES:
        raise ValueError(f"{what!r} is too long for a header")
    return header
