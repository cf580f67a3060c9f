"""Files of the cache folder: written whole or not at all, and read only as what was written.

A file is a header of fixed length and a body. The header says what the body is and has a digest of it, so that a file
that is damaged, or holds something else, is made again. It does not know what the bytes mean.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

from espalier.errors import InputError
from espalier.files.limits import Reader
from espalier.files.reading import read_bytes

HEADER_BYTES = 256
"""A multiple of every item size, so that arrays after it are aligned."""

_log = logging.getLogger(__name__)


def kept(path: Path, what: str, reader: Reader) -> memoryview | None:
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


def keep(path: Path, what: str, body: bytes, reader: Reader) -> None:
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


def keep_newest(folder: Path, suffix: str, most: int) -> None:
    """Remove the oldest files of a kind, so that `most` are left. What cannot be removed stays."""
    try:
        found = sorted((one.stat().st_mtime, one) for one in folder.glob(f"*{suffix}"))
        for _, one in found[: max(0, len(found) - most)]:
            one.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("old files of %s could not be removed: %s", folder, error)


def _header(what: str, body: memoryview | bytes) -> bytes:
    """Raises ValueError if `what` is too long."""
    found = f"espalier {what}, {hashlib.sha256(body).hexdigest()}\n".encode().ljust(HEADER_BYTES)
    if len(found) > HEADER_BYTES:
        raise ValueError(f"{what!r} is too long for a header")
    return found
