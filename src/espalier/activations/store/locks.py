"""A lock file beside a store: whoever may write holds it shared, whoever replaces the file holds it alone.

LMDB has no such lock: a writer that opened the store before its file was replaced would go on writing to the old one.
"""

from __future__ import annotations

import os
from pathlib import Path

from espalier.errors import InputError

NAME = "open.lock"


def shared_lock(folder: Path) -> int:
    """An open file that holds the lock until it is closed. Raises InputError while somebody holds it alone, OSError."""
    return _lock_folder(folder, alone=False)


def lock_alone(folder: Path) -> int:
    """As `shared_lock`. Raises InputError while somebody else may write, OSError."""
    return _lock_folder(folder, alone=True)


def _lock_folder(folder: Path, *, alone: bool) -> int:
    import fcntl  # noqa: PLC0415  # not on every system

    handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        said = "is open for writing elsewhere" if alone else "is being compacted"
        raise InputError(f"the store {folder} {said}", hint="try again once it is closed", field="store") from error
    return handle
