"""Where compiled kernels are kept: a folder for each module of kernels, named by a digest of all that they depend on.

The first of three folders is used that holds the module's kernels, else the first that can be written: that of
`ESPALIER_CACHE_DIR`; the installation's own, beside Python's compiled code; the user's cache folder. So whoever may
write the installation compiles for all of its users, and a read-only one is compiled once for each user.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

COMPLETE = "complete"
"""The file that says that a folder holds all kernels of its module."""
LAYOUT = 2
"""The version of the files in it."""


@cache
def processor() -> str:
    """What compiled code depends on beside its source: the versions of Python and the compiler, and the processor."""
    from llvmlite import binding  # noqa: PLC0415  # slow to import

    features = binding.get_host_cpu_features().flatten()
    parts = (sys.implementation.cache_tag, version("numba"), version("llvmlite"), binding.get_host_cpu_name(), features)
    return " ".join(map(str, parts))


@cache
def source_of(module: str) -> Path:
    """The file of a module, which is not imported."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise AssertionError(f"there is no module {module}")
    return Path(spec.origin)


@cache
def name_of(module: str) -> str:
    """The name of the folder of a module's kernels."""
    digest = hashlib.sha256(source_of(module).read_bytes() + f"{processor()} {LAYOUT}".encode()).hexdigest()
    return f"{module.removeprefix('espalier.')}-{digest[:16]}"


def bases() -> Iterator[Path]:
    """The folders that may hold compiled kernels, the first choice first."""
    chosen, home = os.environ.get("ESPALIER_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if chosen and chosen != "off":
        yield Path(chosen).expanduser() / "kernels"
    yield Path(__file__).parent / "__pycache__"
    if chosen != "off":
        yield (Path(home) if home else Path("~/.cache").expanduser()) / "espalier" / "kernels"


def folder_of(module: str) -> Path | None:
    """Where a module's kernels are, or are to be kept; None if nothing can be written."""
    return _complete_folder(module) or next(filter(_is_writable, _folders(module)), None)


def is_compiled(module: str) -> bool:
    """Whether all kernels of a module are compiled for this processor. It only looks: it is asked again and again."""
    return _complete_folder(module) is not None


def _folders(module: str) -> Iterator[Path]:
    return (base / name_of(module) for base in bases())


def _complete_folder(module: str) -> Path | None:
    return next((folder for folder in _folders(module) if (folder / COMPLETE).exists()), None)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
