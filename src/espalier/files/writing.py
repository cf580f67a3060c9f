"""Writes a file whole or not at all: beside its name first, flushed to the disk, then moved there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from espalier.errors import OutputError


@contextlib.contextmanager
def replaced(path: Path, *, hint: str | None = None, is_new: bool = False) -> Iterator[Path]:
    """A temporary file, to be written and closed in the block, that takes this path at the end. If the block raises,
    the path is as it was. is_new: a file that is there already stays, and FileExistsError is raised. Raises
    OutputError, with the hint."""
    temporary = path.with_name(f".espalier-{secrets.token_hex(8)}.part")  # short: a long name may leave no room
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        _move(temporary, path, is_new=is_new)
        sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}", hint=hint) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _move(temporary: Path, path: Path, *, is_new: bool) -> None:
    """In one step. Raises FileExistsError, also if another process was faster."""
    if is_new:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if path.exists():
                raise FileExistsError from None
        else:
            return
    temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Have the disk remember the names in a folder, where the system can. Raises OSError."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
