"""One parser as the fuzzer sees it, and its valid inputs."""

from __future__ import annotations

import atexit
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.fuzz.parsers.law import Read

CORPUS = Path(__file__).parent / "corpus"
OUT = Path("out/fuzz")
GROWN = OUT / "corpus"
"""Inputs that reached new code, a folder for each parser."""
IN_MEMORY = Path("/dev/shm")
COMPILE_SECONDS = 0.25
"""CPU time for compiling one input: enough for nearly all, and a limit that is kept is one that could be any."""
HASTE = 16
"""One input of so many may take COMPILE_SECONDS, and the others a sixteenth of them: enough for nine tenths of all,
where the last tenth took three quarters of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserTarget:
    """A parser. Its valid inputs are the files of `corpus/NAME/`."""

    #: imports the parser and gives the function that reads one input; skips by name where a library is missing
    open: Callable[[], Read]
    #: the most bytes of an input
    longest: int = 1024


@cache
def corpus_of(name: str) -> tuple[bytes, ...]:
    """The valid inputs of a parser."""
    return tuple(path.read_bytes() for path in sorted((CORPUS / name).iterdir()))


def compile_here() -> None:
    """From now on what takes long is compiled in this process, where the law sees its time and memory, and not tried
    here first and then compiled in a worker process, for which this one waits."""
    from espalier.confined import builds

    builds.is_supported = lambda: False


def compile_seconds(data: bytes) -> float:
    """The CPU time that compiling this input may take: the same each time."""
    return COMPILE_SECONDS if zlib.crc32(data) % HASTE == 0 else COMPILE_SECONDS / HASTE


def through_file(name: str, read: Callable[[Path], object]) -> Read:
    """A reader of a path as a reader of bytes: each input is written to one file of this name."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-parsers-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
    atexit.register(folder.cleanup)
    path = Path(folder.name, name)

    def read_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return read_bytes
