"""A disk that is really full or read-only, a small tmpfs; and one whose writes fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


def mounted(where: Path) -> Iterator[Path]:
    """For a fixture: a folder with room for 16 MiB: SQLite's log alone takes 4 before it is folded in. Skips where this
    process may not mount one."""
    folder = where / "disk"
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("mount") is None:
        pytest.skip("a small disk is mounted by root alone")
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    made = subprocess.run(command, check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left. The file that holds it."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nothing can be written to the disk meanwhile. No file may be open for writing."""
    command = ["mount", "-o", "remount,ro", str(disk)]
    refused = subprocess.run(command, check=False, capture_output=True)
    if refused.returncode:
        pytest.skip(f"the disk cannot be made read-only: {refused.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


@contextlib.contextmanager
def failing_writes(most: int) -> Iterator[None]:
    """Every write of this process beyond so many bytes of a file fails meanwhile, and not for lack of room: SQLite
    calls that an I/O error."""
    import resource  # of POSIX alone

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
