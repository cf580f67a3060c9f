"""The process that compiles modules of kernels: `python -m espalier.kernels.worker URGENT... -- OTHER...`.

The urgent ones come first, and the others with less priority. Each module is compiled by one process at a time: the
next one finds it done.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from espalier.kernels.folder import folder_of, is_compiled

NICER = 10


def compile_modules(urgent: list[str], others: list[str]) -> None:
    """Compile the kernels of modules that are not compiled."""
    for module in urgent:
        _compile(module)
    if others:
        os.nice(NICER)
    for module in others:
        _compile(module)


def _compile(module: str) -> None:
    with _alone_with(module):
        if not is_compiled(module):
            from espalier.kernels.compiled import load_kernels  # noqa: PLC0415  # it imports numba

            import_module(module)
            load_kernels(module)


@contextmanager
def _alone_with(module: str) -> Iterator[None]:
    folder = folder_of(module)
    if folder is None:
        raise SystemExit(1)  # whoever waits compiles for itself
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    at = sys.argv.index("--")
    compile_modules(sys.argv[1:at], sys.argv[at + 1 :])
