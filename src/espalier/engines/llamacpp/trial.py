"""Has llama.cpp read the header and the vocabulary of a GGUF file in a worker process first, so that a file on which it
crashes is an error of that file, and the caller's process goes on.

It is no sandbox: a file that makes llama.cpp run code of its own runs it with the rights of the user. What was tried
once is not tried again: the cache folder remembers a digest of the header. It knows no options and keeps no model.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from espalier.confined.pool import ProcessCrash, Processes, is_supported
from espalier.engines.gguf.header import DAMAGED, Header
from espalier.engines.llamacpp.library import library, version
from espalier.errors import InputError
from espalier.time_limit import OutOfTime

SECONDS = 60.0
"""CPU time to read a header of a gigabyte, the largest one that is read."""
UNLIMITED = -1
"""Drivers of GPUs reserve more address space than a limit would allow; what a header may take is limited before."""


def try_header(path: Path, header: Header, *, cache: Path | None, what: str = "model") -> None:
    """Raises InputError if llama.cpp ends the process that reads the file, or takes too long. cache: the folder that
    remembers which headers were read well; None: every file is tried. what: the field that errors name, `model` or
    `lora`; of an adapter the header alone is read. Raises ConfinedError where no worker process can be started."""
    remembered = None if cache is None else cache / f"{_digest(header, what)}.gguf-tried"
    if not is_supported() or (remembered is not None and remembered.exists()):
        return
    processes = Processes(count=1, memory_bytes=UNLIMITED)
    try:
        request = {"path": os.fspath(path.absolute()), "is_model": what == "model"}
        processes.call(read_in_worker, request, seconds=SECONDS, what=f"reading {path.name}")
    except ProcessCrash as error:
        raise InputError(
            f"{path.name} is damaged: llama.cpp ends the process that reads it ({error.signal_name})",
            hint=DAMAGED,
            field=what,
        ) from error
    except OutOfTime as error:
        raise InputError(f"{path.name} cannot be loaded: {error.message}", hint=DAMAGED, field=what) from error
    finally:
        processes.close()
    if remembered is not None:
        with contextlib.suppress(OSError):  # a folder that cannot be written: the file is tried again the next time
            remembered.parent.mkdir(parents=True, exist_ok=True)
            remembered.touch()


def read_in_worker(request: Mapping[str, Any]) -> None:
    """In a worker process: have llama.cpp read the file and forget it. Why it refuses a file, the caller's own attempt
    says."""
    lib, path = library(), os.fsencode(request["path"])
    if request["is_model"]:
        params = lib.llama_model_default_params()
        params.vocab_only, params.n_gpu_layers = True, 0
        handle = lib.llama_model_load_from_file(path, params)
        if handle:
            lib.llama_model_free(handle)
        return
    base = lib._lib
    read, free = base.gguf_init_from_file, base.gguf_free
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _InitParams]
    free.argtypes = [ctypes.c_void_p]
    handle = read(path, _InitParams(no_alloc=True))
    if handle:
        free(handle)


class _InitParams(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def _digest(header: Header, what: str) -> str:
    """A digest of the header's bytes, the size of the file, and the llama.cpp that reads it."""
    return hashlib.sha256(f"{header.digest} {version()} {what}".encode()).hexdigest()[:32]
